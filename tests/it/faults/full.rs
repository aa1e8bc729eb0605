//! A server at `maxmemory` that evicts nothing refuses every add: nothing is acknowledged without its record.

use serde_json::json;

use crate::faults::SOON;
use crate::support::{Bench, Db, eventually, holds_for};

const FILLING: &str = "filling";
const MEBIBYTE: usize = 1 << 20;

/// Fills the server and closes it: every further add is refused.
async fn fill(db: &Db) {
    let filling = "x".repeat(8 * MEBIBYTE);
    let _ok: String = db.call(&["SET", FILLING, &filling]).await;
    let policy = [
        "CONFIG",
        "SET",
        "maxmemory-policy",
        "noeviction",
        "maxmemory",
        "6mb",
    ];
    let _ok: String = db.call(&policy).await;
    let refused = db.try_call::<String>(&["SET", "probe", "x"]).await;
    assert_eq!(refused.expect_err("the server is full").code(), Some("OOM"));
}

/// Gives the memory back.
async fn empty(db: &Db) {
    let _deleted: u64 = db.call(&["DEL", FILLING]).await;
    let _ok: String = db.call(&["CONFIG", "SET", "maxmemory", "0"]).await;
}

#[tokio::test]
async fn full_server_acknowledges_nothing_without_its_record_and_resumes_alone() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.concurrency", 9)
        .set("retry.initialDelay", "200ms")
        .set("retry.maxDelay", "1s")
        .set("idempotency.keyFields", json!(["key"]))
        .set("output.stream", "mails");
    bench.add_many(&stage, "good", 3, "gate:open;emit").await;
    bench
        .add_many(&stage, "healing", 3, "gate:open;error:Down|emit")
        .await;
    bench
        .add_many(&stage, "bad", 3, "gate:open;reject:Wrong")
        .await;
    bench.add_many(&stage, "later", 20, "sleep:50;emit").await;
    let mut worker = bench.worker(&stage);
    bench.started(9, SOON).await;
    fill(&bench.db()).await;
    bench.open("open");
    eventually("the log names the reason", SOON, async || {
        worker.log().contains("OutOfMemory").then_some(())
    })
    .await;
    eventually("every handler has answered", SOON, async || {
        (bench.journal().running() == 0).then_some(())
    })
    .await;
    // What was on its way to its first refusal had left its slot to another.
    let held = bench.journal().starts();
    assert!((9..29).contains(&held), "{held} held with nine slots");
    let period = std::time::Duration::from_secs(8);
    holds_for("all stay pending, nothing new starts", period, async || {
        bench.pending(&stage).await == held as u64 && bench.journal().starts() == held
    })
    .await;

    worker.did_not_spin();
    empty(&bench.db()).await;
    bench.settled(&stage, SOON).await;
    let summary = worker.drain(SOON).await;
    assert_eq!(
        (summary.done, summary.retried, summary.dead_lettered),
        (26, 3, 3)
    );
    assert_eq!(bench.db().count_by_key("mails").await.len(), 26);
    assert_eq!(bench.dead_letters(&stage).await.len(), 3);
    assert_eq!(bench.journal().starts(), 32, "29 entries and 3 retries");
}

#[tokio::test]
async fn work_without_a_record_goes_on_while_the_server_is_full() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    bench.add_many(&stage, "entry", 50, "sleep:20").await;
    let mut worker = bench.worker(&stage);
    bench.started(4, SOON).await;
    fill(&bench.db()).await;
    bench.started(50, SOON).await;
    bench.settled(&stage, SOON).await;
    empty(&bench.db()).await;
    assert_eq!(worker.drain(SOON).await.done, 50);
}

#[tokio::test]
async fn promotion_on_a_full_server_loses_no_delayed_entry() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("retry.initialDelay", "1s");
    bench.add_many(&stage, "healing", 20, "error:Down|ok").await;
    let mut worker = bench.worker(&stage);
    eventually("all are delayed", SOON, async || {
        (bench.delayed(&stage).await == 20).then_some(())
    })
    .await;
    fill(&bench.db()).await;
    let period = std::time::Duration::from_secs(4);
    holds_for("they stay delayed", period, async || {
        bench.delayed(&stage).await == 20
    })
    .await;
    empty(&bench.db()).await;
    bench.settled(&stage, SOON).await;
    assert_eq!(worker.drain(SOON).await.done, 20);
    assert_eq!(bench.journal().starts(), 40);
}
