//! Reads: sharing, bytes, parking and waking.

use std::sync::Arc;
use std::time::Duration;

use streamstage::streams::{Broker, EntryId, Meta, Place};

use super::fixture::{
    A, B, Fixture, RETRY, SOURCE, assert_nothing_to_read, eventually, pairs, read, read_one,
    release, settle_one,
};

/// Longer than any test takes: a read that ends was ended.
const LONG: Duration = Duration::from_secs(30);

pub(crate) async fn two_consumers_share_a_stream_without_overlap<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    let ids = fixture.add_many(4).await;
    let mut seen = Vec::new();
    for delivery in [read(&a, 2).await, read(&b, 2).await].concat() {
        assert_eq!(delivery.count, 1);
        seen.push(delivery.entry.place);
    }
    assert_eq!(
        seen,
        ids.iter().map(|id| Place::source(*id)).collect::<Vec<_>>()
    );
    assert_nothing_to_read(&a).await;
}

pub(crate) async fn entries_come_as_the_bytes_they_are<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    let odd = vec![
        (b"\xfe".to_vec(), b"\xff\x00\x1b[31m".to_vec()),
        (b"twice".to_vec(), b"1".to_vec()),
        (b"twice".to_vec(), Vec::new()),
        (Vec::new(), b"\r\n".to_vec()),
    ];
    fixture.add_as(SOURCE, "*", &odd).await;
    assert_eq!(read_one(&a).await.entry.fields, odd);
}

pub(crate) async fn the_meta_field_means_nothing_in_the_source<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    let mut meta = Meta::fresh(EntryId::new(1, 0), 1);
    meta.attempts = 9;
    let meta = String::from_utf8(meta.render()).unwrap();
    let fields = pairs(&[("streamstage.meta", &meta), ("n", "1")]);
    let id = fixture.add_as(SOURCE, "*", &fields).await;
    let entry = read_one(&a).await.entry;
    assert_eq!(entry.fields, fields);
    assert_eq!(entry.meta, Meta::fresh(id, 0));
}

pub(crate) async fn a_parked_read_ends_when_an_entry_is_added<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    let (deliveries, id) = tokio::join!(a.read(5, LONG), async {
        tokio::task::yield_now().await;
        fixture.add("n", "1").await
    });
    assert_eq!(deliveries.unwrap()[0].entry.place.id, id);
}

pub(crate) async fn a_parked_read_ends_when_it_is_unblocked<F: Fixture>(fixture: F) {
    let a = Arc::new(fixture.broker(A).await);
    let parked = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.read(5, LONG).await }
    });
    eventually("the parked read ends", || async {
        a.unblock().await.unwrap();
        parked.is_finished()
    })
    .await;
    assert_eq!(parked.await.unwrap().unwrap(), []);
}

pub(crate) async fn a_parked_read_ends_when_an_entry_is_released<F: Fixture>(fixture: F) {
    let (a, b) = (fixture.broker(A).await, fixture.broker(B).await);
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let (read, _) = tokio::join!(b.read(5, LONG), async {
        tokio::task::yield_now().await;
        settle_one(&a, &delivery, release(delivery.entry.meta.clone())).await
    });
    assert_eq!(read.unwrap()[0].entry.fields, delivery.entry.fields);
}

pub(crate) async fn unblocking_nobody_changes_nothing<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    a.unblock().await.unwrap();
    fixture.add("n", "1").await;
    read_one(&a).await;
}

pub(crate) async fn a_read_of_the_retry_stream_does_not_wait<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    assert_eq!(a.read_retry(5).await.unwrap(), []);
    fixture.add("n", "1").await;
    assert_eq!(
        a.read_retry(5).await.unwrap(),
        [],
        "the source is not asked"
    );
    let id = fixture.add_as(RETRY, "*", &pairs(&[("n", "2")])).await;
    assert_eq!(
        a.read_retry(5).await.unwrap()[0].entry.place,
        Place::retry(id)
    );
}

pub(crate) async fn the_count_holds_per_stream<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    for stream in [SOURCE, RETRY, SOURCE, RETRY] {
        fixture.add_as(stream, "*", &pairs(&[("n", "1")])).await;
    }
    let read = a.read(1, Duration::from_millis(1)).await.unwrap();
    let mut lanes = read
        .iter()
        .map(|delivery| delivery.entry.place.lane)
        .collect::<Vec<_>>();
    lanes.sort();
    lanes.dedup();
    assert_eq!((read.len(), lanes.len()), (2, 2));
}
