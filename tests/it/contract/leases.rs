//! Leases: renewal, counts, reclaim.

use std::time::Duration;

use streamstage::streams::{
    Broker, Delivery, EntryId, Error, Lane, LeaseState, Place, ReclaimCursor, Reclaimed, SetCount,
    Settled,
};

use super::fixture::{
    A, B, Fixture, RETRY, SOURCE, commit, done, pairs, read, read_one, settle_one,
};

const VISIBILITY: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

fn ids(deliveries: &[Delivery]) -> Vec<EntryId> {
    deliveries
        .iter()
        .map(|delivery| delivery.entry.place.id)
        .collect()
}

async fn reclaim(broker: &impl Broker, limit: usize) -> Reclaimed {
    let start = ReclaimCursor::default();
    broker.reclaim(&start, VISIBILITY, limit).await.unwrap()
}

pub(crate) async fn a_renewed_entry_is_held_and_not_reclaimed<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let id = fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    fixture.silence(SOURCE, A, id, HOUR).await;
    let states = a.renew(&[delivery.entry.place]).await.unwrap();
    assert_eq!(states, [LeaseState::Held]);
    assert_eq!(reclaim(&b, 10).await, Reclaimed::default());
    assert_eq!(
        fixture.delivery_count(SOURCE, id).await,
        Some(1),
        "renewing charges nothing"
    );
}

pub(crate) async fn an_entry_with_somebody_else_is_stolen<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let held = fixture.add_many(3).await;
    read(&a, 3).await;
    fixture.silence(SOURCE, A, held[1], HOUR).await;
    assert_eq!(ids(&reclaim(&b, 10).await.claimed), [held[1]]);
    let places = [held[2], held[1], held[0]].map(Place::source);
    let states = a.renew(&places).await.unwrap();
    assert_eq!(
        states,
        [LeaseState::Held, LeaseState::Stolen, LeaseState::Held]
    );
    let still = b.renew(&[Place::source(held[1])]).await.unwrap();
    assert_eq!(
        still,
        [LeaseState::Held],
        "a renewal never takes an entry back"
    );
}

pub(crate) async fn an_entry_trimmed_while_held_is_gone<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let place = delivery.entry.place;
    fixture.trim(SOURCE).await;
    let state = a.renew(&[place]).await.unwrap().remove(0);
    if state == LeaseState::Held {
        // Before Redis 7 a claim keeps what was trimmed in the pending list: there it is settled like any other.
        let settled = settle_one(&a, &delivery, commit(&[], Some(1))).await;
        assert_eq!(settled, Settled::Applied);
    } else {
        assert_eq!(state, LeaseState::Trimmed, "nobody else can have it");
    }
    assert_eq!(a.renew(&[place]).await.unwrap(), [LeaseState::Gone]);
    assert_eq!(a.backlog().await.unwrap().pending, 0);
}

pub(crate) async fn a_settled_entry_is_found_settled<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    fixture.add_as(RETRY, "*", &pairs(&[("n", "2")])).await;
    let mut places = Vec::new();
    for delivery in a.read(5, Duration::from_millis(1)).await.unwrap() {
        settle_one(&a, &delivery, done()).await;
        places.push(delivery.entry.place);
    }
    let states = a.renew(&places).await.unwrap();
    assert_eq!(states, [LeaseState::Settled, LeaseState::Settled]);
}

pub(crate) async fn counts_are_written_for_the_owner_only<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let id = fixture.add("n", "1").await;
    let place = read_one(&a).await.entry.place;
    let count = |count| SetCount { place, count };
    assert_eq!(a.set_counts(&[count(3)]).await.unwrap(), [true]);
    assert_eq!(b.set_counts(&[count(9)]).await.unwrap(), [false]);
    assert_eq!(fixture.delivery_count(SOURCE, id).await, Some(3));
    assert_eq!(a.set_counts(&[count(0)]).await.unwrap(), [true]);
    assert_eq!(fixture.delivery_count(SOURCE, id).await, Some(0));
}

pub(crate) async fn a_reclaimed_entry_keeps_its_count<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let id = fixture.add("n", "1").await;
    let place = read_one(&a).await.entry.place;
    a.set_counts(&[SetCount { place, count: 4 }]).await.unwrap();
    fixture.silence(SOURCE, A, id, HOUR).await;
    let claimed = reclaim(&b, 10).await.claimed;
    assert_eq!((claimed[0].count, claimed[0].entry.place), (4, place));
    assert_eq!(claimed[0].entry.fields, pairs(&[("n", "1")]));
    assert_eq!(
        settle_one(&a, &claimed[0], commit(&[], Some(1))).await,
        Settled::NotOurs
    );
    assert_eq!(
        settle_one(&b, &claimed[0], commit(&[], Some(1))).await,
        Settled::Applied
    );
}

pub(crate) async fn a_young_entry_is_left_alone<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let held = fixture.add_many(2).await;
    read(&a, 2).await;
    fixture.silence(SOURCE, A, held[0], VISIBILITY / 2).await;
    fixture.silence(SOURCE, A, held[1], VISIBILITY * 2).await;
    assert_eq!(ids(&reclaim(&b, 10).await.claimed), [held[1]]);
}

pub(crate) async fn old_entries_behind_a_fresh_head_are_reached<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let held = fixture.add_many(150).await;
    read(&a, 150).await;
    for id in &held[100..] {
        fixture.silence(SOURCE, A, *id, HOUR).await;
    }
    let first = reclaim(&b, 100).await;
    assert_eq!((first.claimed.len(), first.more), (0, true));
    assert_eq!(first.cursor.source, Some(held[99]));
    let second = b.reclaim(&first.cursor, VISIBILITY, 100).await.unwrap();
    assert_eq!(ids(&second.claimed), held[100..]);
    assert_eq!(
        (second.more, second.cursor),
        (false, ReclaimCursor::default())
    );
}

pub(crate) async fn reclaiming_stops_at_the_limit_and_goes_on_after_it<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let held = fixture.add_many(5).await;
    read(&a, 5).await;
    for id in &held {
        fixture.silence(SOURCE, A, *id, HOUR).await;
    }
    let first = reclaim(&b, 3).await;
    assert_eq!(
        (ids(&first.claimed), first.more),
        (held[..3].to_vec(), true)
    );
    let second = b.reclaim(&first.cursor, VISIBILITY, 3).await.unwrap();
    assert_eq!(
        (ids(&second.claimed), second.more),
        (held[3..].to_vec(), false)
    );
}

pub(crate) async fn an_entry_trimmed_while_pending_is_lost_once<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let held = fixture.add_many(2).await;
    read(&a, 2).await;
    for id in &held {
        fixture.silence(SOURCE, A, *id, HOUR).await;
    }
    fixture.trim(SOURCE).await;
    let reclaimed = reclaim(&b, 10).await;
    assert_eq!((reclaimed.lost, reclaimed.claimed), (2, Vec::new()));
    assert_eq!(reclaim(&b, 10).await.lost, 0);
    let backlog = b.backlog().await.unwrap();
    assert_eq!((backlog.lost, backlog.pending), (2, 0));
}

pub(crate) async fn a_longer_promise_to_the_owner_is_kept<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let id = fixture.add("n", "1").await;
    read_one(&a).await;
    let every = Duration::from_secs(5);
    let promise = r#"{"v":1,"visibilityMs":1800000}"#;
    a.report(promise, every, VISIBILITY).await.unwrap();
    fixture.silence(SOURCE, A, id, VISIBILITY * 10).await;
    assert_eq!(reclaim(&b, 10).await.claimed, []);
    fixture.silence(SOURCE, A, id, HOUR).await;
    assert_eq!(ids(&reclaim(&b, 10).await.claimed), [id]);
}

pub(crate) async fn the_retry_stream_is_reclaimed_too<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let source = fixture.add("n", "1").await;
    let retry = fixture.add_as(RETRY, "*", &pairs(&[("n", "2")])).await;
    assert_eq!(a.read(5, Duration::from_millis(1)).await.unwrap().len(), 2);
    fixture.silence(SOURCE, A, source, HOUR).await;
    fixture.silence(RETRY, A, retry, HOUR).await;
    let first = reclaim(&b, 1).await;
    assert_eq!(first.claimed[0].entry.place, Place::retry(retry));
    let second = b.reclaim(&first.cursor, VISIBILITY, 1).await.unwrap();
    assert_eq!(second.claimed[0].entry.place, Place::source(source));
}

pub(crate) async fn a_full_server_lets_renewals_and_reclaims_through<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let held = fixture.add_many(2).await;
    read(&a, 2).await;
    fixture.silence(SOURCE, A, held[1], HOUR).await;
    fixture.set_full(true).await;
    let states = a.renew(&[Place::source(held[0])]).await.unwrap();
    assert_eq!(states, [LeaseState::Held]);
    assert_eq!(ids(&reclaim(&b, 10).await.claimed), [held[1]]);
    for id in &held {
        fixture.silence(SOURCE, B, *id, HOUR).await;
    }
    fixture.trim(SOURCE).await;
    assert_eq!(reclaim(&a, 10).await.lost, 2);
    assert_eq!(a.backlog().await.unwrap().lost, 2);
}

pub(crate) async fn an_entry_trimmed_before_its_start_stays_with_its_owner<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    fixture.trim(SOURCE).await;
    let start = SetCount {
        place: delivery.entry.place,
        count: 2,
    };
    assert_eq!(a.set_counts(&[start]).await.unwrap(), [true]);
    let settled = settle_one(&a, &delivery, commit(&[], Some(1))).await;
    assert_eq!(settled, Settled::Applied);
}

pub(crate) async fn a_list_that_ended_is_looked_at_again_while_the_other_goes_on<F: Fixture>(
    fixture: F,
) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let held = fixture.add_many(150).await;
    let retry = fixture.add_as(RETRY, "*", &pairs(&[("n", "2")])).await;
    while !a
        .read(200, Duration::from_millis(1))
        .await
        .unwrap()
        .is_empty()
    {}
    let first = reclaim(&b, 10).await;
    assert_eq!((first.claimed.len(), first.more), (0, true));
    let cursor = ReclaimCursor {
        source: Some(held[99]),
        retry: None,
    };
    assert_eq!(first.cursor, cursor);
    fixture.silence(RETRY, A, retry, HOUR).await;
    let second = b.reclaim(&first.cursor, VISIBILITY, 10).await.unwrap();
    assert_eq!(ids(&second.claimed), [retry]);
    let ended = (second.more, second.cursor);
    assert_eq!(ended, (false, ReclaimCursor::default()));
}

pub(crate) async fn a_count_written_renews_the_lease<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let id = fixture.add("n", "1").await;
    let place = read_one(&a).await.entry.place;
    fixture.silence(SOURCE, A, id, HOUR).await;
    let start = SetCount { place, count: 2 };
    assert_eq!(a.set_counts(&[start]).await.unwrap(), [true]);
    assert_eq!(reclaim(&b, 10).await, Reclaimed::default());
}

pub(crate) async fn a_missing_group_of_retries_is_met_only_by_who_asks_for_it<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let retry = fixture.add_as(RETRY, "*", &pairs(&[("n", "2")])).await;
    let read = a.read(5, Duration::from_millis(1)).await.unwrap();
    let delivery = read.iter().find(|d| d.entry.place.lane == Lane::Source);
    let place = delivery.unwrap().entry.place;
    fixture.destroy_group(RETRY).await;
    assert_eq!(a.renew(&[place]).await.unwrap(), [LeaseState::Held]);
    let start = SetCount { place, count: 2 };
    assert_eq!(a.set_counts(&[start]).await.unwrap(), [true]);
    for missing in [
        a.renew(&[place, Place::retry(retry)]).await.map(drop),
        a.reclaim(&ReclaimCursor::default(), VISIBILITY, 1)
            .await
            .map(drop),
        a.read_retry(1).await.map(drop),
        a.backlog().await.map(drop),
    ] {
        assert!(
            matches!(missing, Err(Error::GroupMissing { .. })),
            "{missing:?}"
        );
    }
}
