//! Delays, promotion and release.

use std::time::Duration;

use streamstage::streams::{Broker, Error, Lane, Promoted, Settled, Settlement};

use super::fixture::{
    A, B, DEAD, DELAYED, Fixture, RETRY, SOURCE, assert_nothing_to_read, commit, done, eventually,
    key_of, pairs, read, read_one, release, retry_now, settle, settle_one,
};

pub(crate) async fn a_retry_comes_back_through_the_retry_stream_with_its_meta<F: Fixture>(
    fixture: F,
) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let fields = vec![
        (b"\xff".to_vec(), Vec::new()),
        (b"n".to_vec(), b"\x00".to_vec()),
    ];
    let id = fixture.add_as(SOURCE, "*", &fields).await;
    let first = read_one(&a).await;
    assert_eq!(
        settle_one(&a, &first, retry_now(&first)).await,
        Settled::Applied
    );
    assert_eq!(a.backlog().await.unwrap().delayed, 1);

    let promoted = b.promote().await.unwrap();
    assert_eq!(
        (promoted.moved, promoted.more, promoted.next_in),
        (1, false, None)
    );
    let again = read_one(&b).await;
    assert_eq!(again.entry.place.lane, Lane::Retry);
    assert_eq!((&again.entry.fields, again.count), (&fields, 1));
    assert_eq!(
        (again.entry.meta.origin, again.entry.meta.attempts),
        (id, 1)
    );
    assert_eq!(
        fixture.entries(SOURCE).await.len(),
        1,
        "other groups do not see it twice"
    );
}

pub(crate) async fn a_retry_is_not_promoted_before_it_is_due<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    for (delivery, seconds) in read(&a, 2).await.iter().zip([600, 60]) {
        let later = Settlement::RetryAfter {
            delay: Duration::from_secs(seconds),
            meta: delivery.entry.meta.clone(),
        };
        settle_one(&a, delivery, later).await;
    }
    let promoted = a.promote().await.unwrap();
    assert_eq!((promoted.moved, promoted.more), (0, false));
    let next_in = promoted.next_in.unwrap();
    assert!(next_in <= Duration::from_secs(60), "{next_in:?}");
    assert!(next_in > Duration::from_secs(40), "{next_in:?}");
    assert_nothing_to_read(&a).await;
}

pub(crate) async fn equal_payloads_stay_apart<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    for _ in 0..3 {
        fixture.add_as(SOURCE, "*", &pairs(&[("n", "same")])).await;
    }
    for delivery in read(&a, 3).await {
        let mut meta = delivery.entry.meta.clone();
        meta.origin = streamstage::streams::EntryId::new(1, 1);
        meta.first_enqueued_at = 1;
        let settlement = Settlement::RetryAfter {
            delay: Duration::ZERO,
            meta,
        };
        settle_one(&a, &delivery, settlement).await;
    }
    assert_eq!(a.promote().await.unwrap().moved, 3);
    assert_eq!(read(&a, 3).await.len(), 3);
}

pub(crate) async fn a_settled_retry_leaves_the_retry_stream<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let first = read_one(&a).await;
    settle_one(&a, &first, retry_now(&first)).await;
    a.promote().await.unwrap();
    let again = read_one(&a).await;
    settle_one(&a, &again, retry_now(&again)).await;
    assert_eq!(fixture.entries(RETRY).await, []);
    a.promote().await.unwrap();
    let third = read_one(&a).await;
    assert_eq!(third.entry.meta.attempts, 2);
    assert_eq!(settle_one(&a, &third, done()).await, Settled::Applied);
    assert_eq!(fixture.entries(RETRY).await, []);
    assert!(a.backlog().await.unwrap().is_idle());
}

pub(crate) async fn a_release_comes_back_uncharged<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let id = fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let mut meta = delivery.entry.meta.clone();
    meta.crashes = 2;
    meta.suspect = true;
    assert_eq!(
        settle_one(&a, &delivery, release(meta.clone())).await,
        Settled::Applied
    );
    let backlog = a.backlog().await.unwrap();
    assert_eq!((backlog.undelivered, backlog.pending), (Some(1), 0));
    let again = b.read_retry(5).await.unwrap().remove(0);
    assert_eq!((again.entry.meta.origin, &again.entry.meta), (id, &meta));
    assert_eq!(again.entry.fields, delivery.entry.fields);
}

pub(crate) async fn a_member_that_cannot_be_decoded_is_dead_lettered_once<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let good = read_one(&a).await;
    settle_one(&a, &good, retry_now(&good)).await;
    // Not MessagePack; an array of numbers; an array with a value missing.
    for member in [
        b"\xc1odd".as_slice(),
        b"\x94\x01\x02\x03\x04",
        b"\x93\xa1s\xa1m\xa1n",
    ] {
        fixture.delay_raw(member).await;
    }
    let promoted = a.promote().await.unwrap();
    assert_eq!((promoted.moved, promoted.undecodable), (1, 3));
    assert_eq!(a.promote().await.unwrap(), Promoted::default());
    let letters = fixture.entries(DEAD).await;
    assert_eq!(letters.len(), 3);
    let fields = &letters[0].1;
    assert!(fields.contains(&(b"reason".to_vec(), b"Undecodable".to_vec())));
    let last_two = [
        pairs(&[("fields", "1")]),
        vec![(b"member".to_vec(), b"\xc1odd".to_vec())],
    ];
    let odd_one = letters
        .iter()
        .any(|(_, fields)| fields.ends_with(&last_two.concat()));
    assert!(odd_one, "the member itself is kept: {letters:?}");
    read_one(&a).await;
}

pub(crate) async fn a_full_server_keeps_what_is_due<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    settle_one(&a, &delivery, retry_now(&delivery)).await;
    fixture.set_full(true).await;
    assert_eq!(a.promote().await, Err(Error::Full));
    assert_eq!(a.backlog().await.unwrap().delayed, 1, "{DELAYED} keeps it");
    fixture.set_full(false).await;
    assert_eq!(a.promote().await.unwrap().moved, 1);
}

pub(crate) async fn more_than_a_batch_is_promoted_in_turns<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(70).await;
    let deliveries = read(&a, 70).await;
    let batch = deliveries
        .iter()
        .map(|delivery| settle(delivery, retry_now(delivery)));
    a.settle(&batch.collect::<Vec<_>>()).await.unwrap();
    let first = a.promote().await.unwrap();
    assert_eq!((first.moved, first.more), (64, true));
    let second = a.promote().await.unwrap();
    assert_eq!((second.moved, second.more), (6, false));
    eventually("all are delivered again", || async {
        a.read(100, Duration::from_millis(1)).await.unwrap();
        a.backlog().await.unwrap().pending == 70
    })
    .await;
}

/// Around every border of the lengths that a delayed member is written with, and beyond one call's mebibyte.
pub(crate) async fn values_of_every_size_come_back_as_they_were<F: Fixture>(fixture: F) {
    const SIZES: [usize; 9] = [0, 1, 31, 32, 255, 256, 65_535, 65_536, 2_000_000];
    let a = fixture.broker(A).await;
    let field = |size: usize| (size.to_string().into_bytes(), vec![0xff; size]);
    let wide = vec![(b"n".to_vec(), b"1".to_vec()); 3499];
    let each = SIZES.map(|size| vec![field(size)]);
    let together = SIZES.map(field).to_vec();
    let all = [each.to_vec(), vec![together, wide]].concat();
    for fields in &all {
        fixture.add_as(SOURCE, "*", fields).await;
    }
    let deliveries = read(&a, all.len()).await;
    let batch = deliveries
        .iter()
        .map(|delivery| settle(delivery, retry_now(delivery)));
    let settled = a.settle(&batch.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(settled, vec![Settled::Applied; all.len()]);
    while a.promote().await.unwrap().more {}
    let mut again = read(&a, all.len()).await;
    again.sort_by_key(|delivery| delivery.entry.meta.origin);
    for (delivery, fields) in again.iter().zip(&all) {
        assert!(delivery.entry.fields == *fields, "{} values", fields.len());
    }
}

pub(crate) async fn a_key_is_forgotten_after_its_window<F: Fixture>(fixture: F) {
    let window = Duration::from_millis(100);
    let a = fixture.broker_with(A, |settings| settings.ledger_window = Some(window));
    a.connect().await.unwrap();
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    settle_one(&a, &delivery, commit(&[], Some(1))).await;
    eventually("the key is forgotten", || async {
        a.known(&[key_of(1)]).await.unwrap() == [false]
    })
    .await;
}

pub(crate) async fn members_nobody_can_bury_do_not_hold_up_those_that_are_due<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.make_string(DEAD).await;
    for number in 0..100 {
        fixture.delay_raw(&[0xc1, number]).await;
    }
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    settle_one(&a, &delivery, retry_now(&delivery)).await;
    let expected = Promoted {
        moved: 1,
        more: true,
        ..Promoted::default()
    };
    assert_eq!(a.promote().await.unwrap(), expected);
    let nothing = Promoted::default();
    assert_eq!(a.promote().await.unwrap(), nothing, "nobody asks at once");

    fixture.delete(DEAD).await;
    for (undecodable, more) in [(64, true), (36, false)] {
        let expected = Promoted {
            undecodable,
            more,
            ..Promoted::default()
        };
        assert_eq!(a.promote().await.unwrap(), expected);
    }
}

pub(crate) async fn what_a_later_version_wrote_is_carried_on_as_far_as_it_is_known<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    let deliveries = read(&a, 2).await;
    for (delivery, version) in deliveries.iter().zip([2, 0]) {
        let mut meta = delivery.entry.meta.clone();
        (meta.v, meta.attempts) = (version, 4);
        let delay = Duration::ZERO;
        settle_one(&a, delivery, Settlement::RetryAfter { delay, meta }).await;
    }
    let promoted = a.promote().await.unwrap();
    assert_eq!((promoted.moved, promoted.undecodable), (1, 1));
    let again = read_one(&a).await.entry.meta.clone();
    let expected = (1, deliveries[0].entry.place.id, 4);
    assert_eq!((again.v, again.origin, again.attempts), expected);
}
