//! A producer's MAXLEN trims what runs, and what never ran.

use std::time::Duration;

use crate::support::{Bench, eventually, figures, holds_for};

const RUNNING: u32 = 8;
const NEVER_DELIVERED: u32 = 10;

#[tokio::test]
async fn result_of_a_trimmed_entry_is_kept_and_the_undelivered_are_counted_lost_once() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.concurrency", 4)
        .set("output.stream", "mails");
    bench
        .add_many(&stage, "running", RUNNING, "gate:open;emit")
        .await;
    let mut workers = [bench.worker(&stage), bench.worker(&stage)];
    bench
        .started(RUNNING as usize, Duration::from_secs(20))
        .await;
    bench
        .add_many(&stage, "waiting", NEVER_DELIVERED, "emit")
        .await;
    bench.reported(&stage, 2, Duration::from_secs(20)).await;

    let trimmed: u64 = bench
        .db()
        .call(&["XTRIM", stage.stream(), "MAXLEN", "0"])
        .await;
    assert_eq!(trimmed, u64::from(RUNNING + NEVER_DELIVERED));
    let counted = Duration::from_secs(20);
    eventually("the loss is counted", counted, async || {
        (bench.lost(&stage).await >= u64::from(NEVER_DELIVERED)).then_some(())
    })
    .await;
    bench.open("open");
    eventually(
        "every result is kept",
        Duration::from_secs(20),
        async || (bench.db().size("mails").await == u64::from(RUNNING)).then_some(()),
    )
    .await;
    bench.settled(&stage, Duration::from_secs(20)).await;
    // Long enough for both workers to reclaim and report again.
    holds_for(
        "the loss is counted once",
        Duration::from_secs(5),
        async || bench.lost(&stage).await == u64::from(NEVER_DELIVERED),
    )
    .await;

    let mut done = 0;
    for worker in &mut workers {
        done += worker.drain(Duration::from_secs(20)).await.done;
    }
    let (starts, lost) = (bench.journal().starts(), bench.lost(&stage).await);
    figures(&format!(
        "trimmed while running: {starts} starts, {done} done, {lost} lost"
    ));
    assert_eq!((starts, done, lost), (8, 8, 10));
}
