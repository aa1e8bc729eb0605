//! Entries that are gone: counted once, never handled, never invented.

use std::time::Duration;

use crate::faults::SOON;
use crate::support::{Bench, eventually, holds_for};

#[tokio::test]
async fn entries_trimmed_while_their_worker_was_dead_are_counted_once_and_never_run() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "2s")
        .set("delivery.concurrency", 4);
    bench.add_many(&stage, "trimmed", 3, "gate:never").await;
    bench.add(&stage, "kept", "skip:open;gate:open").await;
    let mut victim = bench.worker(&stage);
    bench.started(4, SOON).await;
    victim.kill().await;
    bench.open("open");
    let _trimmed: u64 = bench
        .db()
        .call(&["XTRIM", stage.stream(), "MAXLEN", "1"])
        .await;

    let mut workers = [bench.worker(&stage), bench.worker(&stage)];
    bench.settled(&stage, SOON).await;
    let period = Duration::from_secs(4);
    holds_for("three are lost", period, async || {
        bench.lost(&stage).await == 3
    })
    .await;
    let mut counts = (0, 0);
    for worker in &mut workers {
        let summary = worker.drain(SOON).await;
        counts = (counts.0 + summary.done, counts.1 + summary.lost);
    }
    assert_eq!(counts, (1, 3), "done, lost");
    assert_eq!(bench.journal().starts(), 5, "four, and the kept one again");
    assert!(bench.dead_letters(&stage).await.is_empty());
}

#[tokio::test]
async fn entries_trimmed_before_any_worker_came_are_counted_once() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("delivery.visibilityTimeout", "2s");
    bench.add_many(&stage, "first", 5, "ok").await;
    bench.run_dry(&stage, SOON).await;
    bench.add_many(&stage, "never", 7, "ok").await;
    let _trimmed: u64 = bench
        .db()
        .call(&["XTRIM", stage.stream(), "MAXLEN", "0"])
        .await;
    bench.add(&stage, "last", "ok").await;

    let _workers = [bench.worker(&stage), bench.worker(&stage)];
    bench.started(6, SOON).await;
    eventually("seven are lost", SOON, async || {
        (bench.lost(&stage).await == 7).then_some(())
    })
    .await;
    let period = Duration::from_secs(4);
    holds_for("still seven", period, async || {
        bench.lost(&stage).await == 7
    })
    .await;
}

#[tokio::test]
async fn delayed_member_that_cannot_be_decoded_is_dead_lettered() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    bench.add(&stage, "plain", "ok").await;
    let _added: u64 = bench
        .db()
        .call(&["ZADD", &stage.key("delayed"), "1", "no such member"])
        .await;
    let mut worker = bench.worker(&stage);
    eventually("it is among the dead letters", SOON, async || {
        let dead = bench.db().entries(&stage.key("dead")).await;
        let undecodable = |(_, pairs): &(String, Vec<(String, String)>)| {
            pairs
                .iter()
                .any(|(name, value)| name == "reason" && value == "Undecodable")
        };
        dead.iter().any(undecodable).then_some(())
    })
    .await;
    bench.settled(&stage, SOON).await;
    assert_eq!(worker.drain(SOON).await.done, 1);
}
