//! Settlements: one atomic step each, refused one by one, and only by who holds the entry.

use std::time::Duration;

use streamstage::streams::{Broker, Fields, Refusal, RefusalReason, Settle, Settled, Settlement};

use super::fixture::{
    A, B, DEAD, DELAYED, Fixture, OUTPUT, RETRY, SOURCE, commit, dead_letter, done, key_of, pairs,
    read, read_one, release, retry_now, settle, settle_one,
};

fn refused(key: &str, reason: RefusalReason) -> Settled {
    Settled::Refused(Refusal {
        key: key.to_owned(),
        reason,
    })
}

async fn fields_of<F: Fixture>(fixture: &F, stream: &str) -> Vec<Fields> {
    let entries = fixture.entries(stream).await;
    entries.into_iter().map(|(_, fields)| fields).collect()
}

async fn pending(broker: &impl Broker) -> u64 {
    broker.backlog().await.unwrap().pending
}

pub(crate) async fn a_committed_entry_is_acknowledged_and_its_outputs_are_appended<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let outputs = [pairs(&[("o", "1")]), pairs(&[("o", "2"), ("o", "3")])];
    let settled = settle_one(&a, &delivery, commit(&outputs, Some(1))).await;
    assert_eq!(settled, Settled::Applied);
    assert_eq!(fields_of(&fixture, OUTPUT).await, outputs);
    assert_eq!(
        a.known(&[key_of(1), key_of(2)]).await.unwrap(),
        [true, false]
    );
    assert_eq!(pending(&a).await, 0);
    assert_eq!(
        fixture.entries(SOURCE).await.len(),
        1,
        "the source is never trimmed"
    );
}

pub(crate) async fn a_known_key_is_acknowledged_without_outputs<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    fixture.add_many(2).await;
    let (first, twin) = (read_one(&a).await, read_one(&b).await);
    let outputs = [pairs(&[("o", "1")])];
    assert_eq!(
        settle_one(&a, &first, commit(&outputs, Some(1))).await,
        Settled::Applied
    );
    assert_eq!(
        settle_one(&b, &twin, commit(&outputs, Some(1))).await,
        Settled::AlreadyDone
    );
    assert_eq!(fields_of(&fixture, OUTPUT).await, outputs);
    assert_eq!(pending(&a).await, 0);
}

pub(crate) async fn twins_in_one_batch_commit_once<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    let deliveries = read(&a, 2).await;
    let twins = deliveries
        .iter()
        .map(|delivery| settle(delivery, commit(&[], Some(1))));
    let settled = a.settle(&twins.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(settled, [Settled::Applied, Settled::AlreadyDone]);
    assert_eq!(pending(&a).await, 0);
}

pub(crate) async fn a_forced_commit_does_not_ask_the_ledger<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    let deliveries = read(&a, 2).await;
    settle_one(&a, &deliveries[0], commit(&[], Some(1))).await;
    let forced = Settlement::Commit {
        outputs: vec![pairs(&[("o", "1")])],
        key: Some(key_of(1)),
        force: true,
    };
    assert_eq!(
        settle_one(&a, &deliveries[1], forced).await,
        Settled::Applied
    );
    assert_eq!(fixture.entries(OUTPUT).await.len(), 1);
    assert_eq!(a.known(&[key_of(1)]).await.unwrap(), [true]);
}

pub(crate) async fn without_a_ledger_no_key_is_known<F: Fixture>(fixture: F) {
    let a = fixture.broker_with(A, |settings| settings.ledger_window = None);
    a.connect().await.unwrap();
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    assert_eq!(
        settle_one(&a, &delivery, commit(&[], Some(1))).await,
        Settled::Applied
    );
    assert_eq!(a.known(&[key_of(1)]).await.unwrap(), [false]);
    assert_eq!(pending(&a).await, 0);
}

pub(crate) async fn an_output_stream_of_another_type_refuses_only_entries_with_outputs<
    F: Fixture,
>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.make_string(OUTPUT).await;
    fixture.add_many(3).await;
    let deliveries = read(&a, 3).await;
    let output = [pairs(&[("o", "1")])];
    let batch = [
        settle(&deliveries[0], commit(&[], Some(1))),
        settle(&deliveries[1], commit(&output, Some(2))),
        settle(&deliveries[2], commit(&[], Some(3))),
    ];
    let refusal = refused(OUTPUT, RefusalReason::WrongKeyType);
    let settled = a.settle(&batch).await.unwrap();
    assert_eq!(settled, [Settled::Applied, refusal, Settled::Applied]);
    let known = a.known(&[key_of(1), key_of(2), key_of(3)]).await.unwrap();
    assert_eq!(known, [true, false, true]);

    fixture.delete(OUTPUT).await;
    assert_eq!(a.settle(&batch[1..2]).await.unwrap(), [Settled::Applied]);
    assert_eq!(fields_of(&fixture, OUTPUT).await, output);
}

pub(crate) async fn a_dead_letter_stream_of_another_type_holds_up_nobody_else<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.make_string(DEAD).await;
    fixture.add_many(2).await;
    let deliveries = read(&a, 2).await;
    let batch = [
        settle(&deliveries[0], dead_letter()),
        settle(&deliveries[1], done()),
    ];
    let settled = a.settle(&batch).await.unwrap();
    assert_eq!(
        settled,
        [refused(DEAD, RefusalReason::WrongKeyType), Settled::Applied]
    );
    assert_eq!(pending(&a).await, 1);
}

pub(crate) async fn a_full_server_refuses_adds_and_acknowledges_nothing<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(4).await;
    let deliveries = read(&a, 4).await;
    let batch = [
        settle(&deliveries[0], commit(&[pairs(&[("o", "1")])], None)),
        settle(&deliveries[1], retry_now(&deliveries[1])),
        settle(&deliveries[2], dead_letter()),
        settle(&deliveries[3], release(deliveries[3].entry.meta.clone())),
    ];
    fixture.set_full(true).await;
    let keys = [OUTPUT, DELAYED, DEAD, RETRY];
    let full = keys.map(|key| refused(key, RefusalReason::OutOfMemory));
    assert_eq!(a.settle(&batch).await.unwrap(), full);
    assert_eq!(pending(&a).await, 4);

    fixture.set_full(false).await;
    assert_eq!(
        a.settle(&batch).await.unwrap(),
        [const { Settled::Applied }; 4]
    );
    assert_eq!(pending(&a).await, 0);
}

pub(crate) async fn a_full_server_lets_acks_and_counts_through<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    fixture.set_full(true).await;
    let deliveries = read(&a, 2).await;
    let place = deliveries[0].entry.place;
    let uncharged = streamstage::streams::SetCount { place, count: 0 };
    assert_eq!(a.set_counts(&[uncharged]).await.unwrap(), [true]);
    assert_eq!(fixture.delivery_count(SOURCE, place.id).await, Some(0));
    assert_eq!(
        settle_one(&a, &deliveries[0], done()).await,
        Settled::Applied
    );
}

pub(crate) async fn answers_come_in_the_order_of_the_batch<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(4).await;
    let deliveries = read(&a, 4).await;
    settle_one(&a, &deliveries[2], done()).await;
    settle_one(&a, &deliveries[0], commit(&[], Some(1))).await;
    let batch = [
        settle(&deliveries[3], commit(&[pairs(&[("o", "1")])], Some(1))),
        settle(&deliveries[2], dead_letter()),
        settle(&deliveries[1], retry_now(&deliveries[1])),
    ];
    let settled = a.settle(&batch).await.unwrap();
    assert_eq!(
        settled,
        [Settled::AlreadyDone, Settled::NotOurs, Settled::Applied]
    );
}

pub(crate) async fn who_does_not_hold_an_entry_changes_nothing<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    fixture.add_many(4).await;
    let deliveries = read(&a, 4).await;
    let stolen = [
        settle(&deliveries[0], commit(&[pairs(&[("o", "1")])], Some(1))),
        settle(&deliveries[1], retry_now(&deliveries[1])),
        settle(&deliveries[2], dead_letter()),
        settle(&deliveries[3], release(deliveries[3].entry.meta.clone())),
    ];
    assert_eq!(
        b.settle(&stolen).await.unwrap(),
        [const { Settled::NotOurs }; 4]
    );
    let backlog = a.backlog().await.unwrap();
    assert_eq!(
        (backlog.pending, backlog.delayed, backlog.dead_letters),
        (4, 0, 0)
    );
    assert_eq!(backlog.undelivered, Some(0));
    assert_eq!(fixture.entries(OUTPUT).await, []);
    assert_eq!(a.known(&[key_of(1)]).await.unwrap(), [false]);
}

pub(crate) async fn a_settlement_repeated_is_not_ours<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    let deliveries = read(&a, 2).await;
    let batch = [
        settle(&deliveries[0], done()),
        settle(&deliveries[1], retry_now(&deliveries[1])),
    ];
    assert_eq!(
        a.settle(&batch).await.unwrap(),
        [const { Settled::Applied }; 2]
    );
    assert_eq!(
        a.settle(&batch).await.unwrap(),
        [const { Settled::NotOurs }; 2]
    );
    assert_eq!(a.backlog().await.unwrap().delayed, 1);
}

pub(crate) async fn one_entry_twice_in_a_batch_settles_once<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let twice = [
        settle(&delivery, dead_letter()),
        settle(&delivery, dead_letter()),
    ];
    assert_eq!(
        a.settle(&twice).await.unwrap(),
        [Settled::Applied, Settled::NotOurs]
    );
    assert_eq!(fixture.entries(DEAD).await.len(), 1);
}

pub(crate) async fn an_unowned_settlement_needs_no_pending_entry<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    fixture.trim(SOURCE).await;
    a.renew(&[delivery.entry.place]).await.unwrap();
    let unowned = |settlement| Settle {
        unowned: true,
        ..settle(&delivery, settlement)
    };
    let batch = [
        unowned(commit(&[pairs(&[("o", "1")])], None)),
        unowned(done()),
    ];
    assert_eq!(
        a.settle(&batch).await.unwrap(),
        [const { Settled::Applied }; 2]
    );
    assert_eq!(fixture.entries(OUTPUT).await.len(), 1);
}

pub(crate) async fn a_dead_letter_keeps_the_pairs_in_order_after_the_context<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    let fields = pairs(&[("error", "mine"), ("fields", "7"), ("n", "1"), ("n", "2")]);
    fixture.add_as(SOURCE, "*", &fields).await;
    let delivery = read_one(&a).await;
    assert_eq!(
        settle_one(&a, &delivery, dead_letter()).await,
        Settled::Applied
    );
    let letter = [pairs(&[("reason", "Rejected"), ("fields", "4")]), fields].concat();
    assert_eq!(fields_of(&fixture, DEAD).await, [letter]);
    assert_eq!(pending(&a).await, 0);
}

fn wide() -> Fields {
    vec![(b"n".to_vec(), b"1".to_vec()); 3600]
}

pub(crate) async fn an_entry_too_wide_for_a_script_is_dead_lettered_all_the_same<F: Fixture>(
    fixture: F,
) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    fixture.add_as(SOURCE, "*", &wide()).await;
    let delivery = read_one(&a).await;
    assert_eq!(
        settle_one(&b, &delivery, dead_letter()).await,
        Settled::NotOurs
    );
    assert_eq!(fixture.entries(DEAD).await, []);
    assert_eq!(
        settle_one(&a, &delivery, dead_letter()).await,
        Settled::Applied
    );
    let letters = fields_of(&fixture, DEAD).await;
    assert_eq!((letters.len(), letters[0].len()), (1, 3602));
    assert_eq!(pending(&a).await, 0);
}

pub(crate) async fn an_entry_too_wide_for_a_script_cannot_be_delayed<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_as(SOURCE, "*", &wide()).await;
    let delivery = read_one(&a).await;
    let too_large = |key| refused(key, RefusalReason::TooLarge);
    let retry = settle_one(&a, &delivery, retry_now(&delivery)).await;
    assert_eq!(retry, too_large(DELAYED));
    let released = settle_one(&a, &delivery, release(delivery.entry.meta.clone())).await;
    assert_eq!(released, too_large(RETRY));
    let committed = settle_one(&a, &delivery, commit(&[wide()], None)).await;
    assert_eq!(committed, too_large(OUTPUT));
    assert_eq!(pending(&a).await, 1);
}

pub(crate) async fn a_batch_larger_than_one_call_is_settled_whole<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(150).await;
    let deliveries = read(&a, 150).await;
    let outputs = [pairs(&[("o", "1")])];
    let batch = deliveries
        .iter()
        .map(|delivery| settle(delivery, commit(&outputs, None)));
    let settled = a.settle(&batch.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(settled, vec![Settled::Applied; 150]);
    assert_eq!(fixture.entries(OUTPUT).await.len(), 150);
    assert_eq!(a.read(10, Duration::from_millis(1)).await.unwrap(), []);
    assert_eq!(pending(&a).await, 0);
}
