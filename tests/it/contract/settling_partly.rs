//! Settlements that end a session, or cannot be carried at all: what was answered is never hidden.

use std::time::Duration;

use streamstage::streams::{
    Broker, Error, Fields, Lane, Refusal, RefusalReason, Settle, Settled, Settlement,
};

use super::fixture::{
    A, B, DEAD, Fixture, OUTPUT, RETRY, SOURCE, commit, dead_letter, done, pairs, read, read_one,
    release, retry_now, settle, settle_one,
};

const EVERY: Duration = Duration::from_secs(5);
const VISIBILITY: Duration = Duration::from_secs(30);

fn refused(key: &str, reason: RefusalReason) -> Settled {
    Settled::Refused(Refusal {
        key: key.to_owned(),
        reason,
    })
}

fn wide() -> Fields {
    vec![(b"n".to_vec(), b"1".to_vec()); 3600]
}

fn is_missing<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::GroupMissing { .. }))
}

pub(crate) async fn an_acknowledgement_to_a_group_that_is_gone_is_not_taken_for_a_lost_lease<
    F: Fixture,
>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    let id = fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    a.report("{}", EVERY, VISIBILITY).await.unwrap();
    fixture.destroy_group(SOURCE).await;
    let batch = [settle(&delivery, done())];
    assert!(is_missing(&a.settle(&batch).await));
    let unowned = Settle {
        unowned: true,
        ..batch[0].clone()
    };
    assert!(is_missing(&a.settle(&[unowned]).await));
    a.connect().await.unwrap();
    assert_eq!(read_one(&a).await.entry.place.id, id);
}

pub(crate) async fn an_error_does_not_hide_what_was_answered_before_it<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    fixture.add_as(RETRY, "*", &pairs(&[("n", "2")])).await;
    let read = a.read(5, Duration::from_millis(1)).await.unwrap();
    let in_lane = |lane| read.iter().find(|d| d.entry.place.lane == lane).unwrap();
    let (source, retry) = (in_lane(Lane::Source), in_lane(Lane::Retry));
    fixture.trim(SOURCE).await;
    a.renew(&[source.entry.place]).await.unwrap();
    fixture.destroy_group(RETRY).await;
    let batch = [
        Settle {
            unowned: true,
            ..settle(source, dead_letter())
        },
        settle(retry, release(retry.entry.meta.clone())),
    ];
    let settled = a.settle(&batch).await.unwrap();
    assert_eq!(settled, [Settled::Applied, Settled::Unanswered]);
    assert!(is_missing(&a.settle(&batch[1..]).await));
    assert_eq!(fixture.entries(DEAD).await.len(), 1);
}

pub(crate) async fn outputs_that_cannot_be_carried_are_refused_only_to_who_would_commit_them<
    F: Fixture,
>(
    fixture: F,
) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    fixture.add_many(3).await;
    let held = read(&a, 3).await;
    settle_one(&a, &held[0], commit(&[], Some(1))).await;
    let known = settle_one(&a, &held[1], commit(&[wide()], Some(1))).await;
    assert_eq!(known, Settled::AlreadyDone);
    let fresh = commit(&[wide()], Some(2));
    assert_eq!(
        settle_one(&b, &held[2], fresh.clone()).await,
        Settled::NotOurs
    );
    let too_large = refused(OUTPUT, RefusalReason::TooLarge);
    assert_eq!(settle_one(&a, &held[2], fresh).await, too_large);
    assert_eq!(a.backlog().await.unwrap().pending, 1);
}

pub(crate) async fn a_wide_entry_of_somebody_else_is_not_ours_to_delay<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    fixture.add_as(SOURCE, "*", &wide()).await;
    let delivery = read_one(&a).await;
    let retry = settle_one(&b, &delivery, retry_now(&delivery)).await;
    let released = settle_one(&b, &delivery, release(delivery.entry.meta.clone())).await;
    assert_eq!((retry, released), (Settled::NotOurs, Settled::NotOurs));
}

pub(crate) async fn outputs_without_an_output_stream_are_refused<F: Fixture>(fixture: F) {
    let a = fixture.broker_with(A, |settings| settings.output = None);
    a.connect().await.unwrap();
    let b = fixture.broker_with(B, |settings| settings.output = None);
    b.connect().await.unwrap();
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let outputs = commit(&[pairs(&[("o", "1")])], Some(1));
    assert_eq!(
        settle_one(&b, &delivery, outputs.clone()).await,
        Settled::NotOurs
    );
    let refusal = refused("", RefusalReason::Other);
    assert_eq!(settle_one(&a, &delivery, outputs).await, refusal);
}

pub(crate) async fn an_output_without_fields_is_refused_and_nothing_is_added<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let empty: Settlement = commit(&[pairs(&[("o", "1")]), Vec::new()], Some(1));
    let refusal = refused(OUTPUT, RefusalReason::Other);
    assert_eq!(settle_one(&a, &delivery, empty).await, refusal);
    assert_eq!(fixture.entries(OUTPUT).await, []);
    assert_eq!(a.backlog().await.unwrap().pending, 1);
}
