//! Reports, grace, retirement and the numbers.

use std::time::Duration;

use streamstage::streams::{Backlog, Broker, Error, ReclaimCursor, Reported};

use super::fixture::{
    A, B, Fixture, SOURCE, dead_letter, done, eventually, pairs, read, read_one, release,
    retry_now, settle_one,
};

const EVERY: Duration = Duration::from_secs(5);
const VISIBILITY: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

async fn report(broker: &impl Broker) -> Reported {
    broker
        .report(r#"{"v":1}"#, EVERY, VISIBILITY)
        .await
        .unwrap()
}

pub(crate) async fn an_outage_grants_everybody_a_grace<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let id = fixture.add("n", "1").await;
    read_one(&a).await;
    report(&a).await;
    fixture.silence(SOURCE, A, id, HOUR).await;
    fixture.forget_reports(VISIBILITY / 2 + EVERY).await;

    assert!(report(&b).await.outage, "an outage has just ended");
    assert!(!report(&a).await.outage, "for the first one back only");
    let reclaimed = b
        .reclaim(&ReclaimCursor::default(), VISIBILITY, 5)
        .await
        .unwrap();
    assert_eq!(reclaimed.claimed, []);
    let grace = reclaimed.grace.unwrap();
    assert!(grace <= VISIBILITY && grace > VISIBILITY / 2, "{grace:?}");
}

pub(crate) async fn the_first_report_is_no_outage<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    assert!(!report(&a).await.outage);
    fixture.forget_reports(EVERY * 2).await;
    assert!(!report(&a).await.outage, "nor is a late one");
}

pub(crate) async fn a_consumer_retires_only_with_empty_hands<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    report(&a).await;
    assert_eq!(a.retire(true, Duration::ZERO).await.unwrap(), 0);
    assert_eq!(fixture.consumers().await, [A]);
    settle_one(&a, &delivery, done()).await;
    assert_eq!(a.retire(true, Duration::ZERO).await.unwrap(), 1);
    assert_eq!(fixture.consumers().await, [""; 0]);
}

pub(crate) async fn silent_consumers_of_ours_are_retired<F: Fixture>(fixture: F) {
    let mut deliveries = Vec::new();
    for name in [
        "idle.0000000a",
        "busy.0000000b",
        "foreign",
        "reports.0000000c",
        A,
    ] {
        let broker = fixture.broker(name).await;
        fixture.add("n", name).await;
        deliveries.push((read_one(&broker).await, broker));
    }
    for (delivery, broker) in &deliveries {
        if delivery.entry.fields != pairs(&[("n", "busy.0000000b")]) {
            settle_one(broker, delivery, done()).await;
        }
    }
    report(&deliveries[3].1).await;
    let a = &deliveries[4].1;
    assert_eq!(a.retire(false, HOUR).await.unwrap(), 1);
    let mut left = fixture.consumers().await;
    left.sort();
    assert_eq!(left, [A, "busy.0000000b", "foreign", "reports.0000000c"]);
    eventually("a report grows old", || async {
        a.retire(false, Duration::ZERO).await.unwrap() == 1
    })
    .await;
}

pub(crate) async fn the_backlog_counts_both_streams<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    assert!(a.backlog().await.unwrap().is_idle());
    fixture.add_many(6).await;
    let held = read(&a, 4).await;
    settle_one(&a, &held[0], retry_now(&held[0])).await;
    settle_one(&a, &held[1], dead_letter()).await;
    settle_one(&a, &held[2], release(held[2].entry.meta.clone())).await;
    let expected = Backlog {
        undelivered: Some(3),
        pending: 1,
        delayed: 1,
        dead_letters: 1,
        lost: 0,
    };
    assert_eq!(a.backlog().await.unwrap(), expected);
    a.read_retry(5).await.unwrap();
    let backlog = a.backlog().await.unwrap();
    assert_eq!((backlog.undelivered, backlog.pending), (Some(2), 2));
}

pub(crate) async fn entries_trimmed_before_delivery_are_lost_once<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(3).await;
    let held = read(&a, 2).await;
    report(&a).await;
    fixture.trim(SOURCE).await;
    fixture.add_many(2).await;
    if !fixture.counts_added().await {
        assert_eq!(report(&a).await.lost, 0, "unknown is not a number");
        assert_eq!(a.backlog().await.unwrap().undelivered, Some(2));
        return;
    }
    for newly in [1, 0] {
        assert_eq!(report(&a).await.lost, newly);
        let backlog = a.backlog().await.unwrap();
        assert_eq!((backlog.lost, backlog.undelivered), (1, Some(2)));
    }
    let mut all = held;
    all.extend(read(&a, 2).await);
    report(&a).await;
    fixture.add_many(4).await;
    fixture.trim(SOURCE).await;
    report(&a).await;
    assert_eq!(a.backlog().await.unwrap().lost, 5);
    assert_eq!(a.backlog().await.unwrap().undelivered, Some(0));
}

pub(crate) async fn a_full_server_takes_no_report<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.set_full(true).await;
    assert_eq!(a.report("{}", EVERY, VISIBILITY).await, Err(Error::Full));
    fixture.set_full(false).await;
    assert!(!report(&a).await.outage);
}

pub(crate) async fn what_one_stream_lost_does_not_hide_what_the_next_one_loses<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    if !fixture.counts_added().await {
        return;
    }
    for count in [4, 5] {
        fixture.add_many(count + 1).await;
        read_one(&a).await;
        fixture.trim(SOURCE).await;
        assert_eq!(report(&a).await.lost, u64::try_from(count).unwrap());
        fixture.delete(SOURCE).await;
        a.connect().await.unwrap();
    }
    assert_eq!(a.backlog().await.unwrap().lost, 9);
}

pub(crate) async fn without_its_group_a_consumer_can_retire_itself_only<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.destroy_group(SOURCE).await;
    let others = a.retire(false, HOUR).await;
    assert!(
        matches!(others, Err(Error::GroupMissing { .. })),
        "{others:?}"
    );
    assert_eq!(a.retire(true, HOUR).await, Ok(1));
}

pub(crate) async fn what_was_trimmed_behind_the_group_does_not_wait_for_ever<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.add_many(5).await;
    read(&a, 1).await;
    fixture.trim(SOURCE).await;
    fixture.add_many(5).await;
    report(&a).await;
    assert_eq!(a.backlog().await.unwrap().undelivered, Some(5));
    read(&a, 3).await;
    assert_eq!(a.backlog().await.unwrap().undelivered, Some(2));
    read(&a, 2).await;
    report(&a).await;
    fixture.add("n", "last").await;
    assert_eq!(a.backlog().await.unwrap().undelivered, Some(1));
}

pub(crate) async fn a_backlog_without_a_report_is_counted<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add_many(30).await;
    read(&a, 3).await;
    assert_eq!(a.backlog().await.unwrap().undelivered, Some(27));
}
