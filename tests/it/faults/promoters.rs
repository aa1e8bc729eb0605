//! Many workers promote delayed entries at once, and die doing it: each retry happens, and happens once.

use std::time::Duration;

use serde_json::json;

use crate::faults::SOON;
use crate::support::{Bench, StageFile, Worker, for_the_time_of_the_fault, whole_machine};

/// Every second one fails at first: a worker that saw nothing but errors would slow down.
const ENTRIES: u32 = 1_000;
const FAIL_FIRST: u32 = ENTRIES / 2;

async fn feed(bench: &Bench, stage: &StageFile) {
    let entries = (0..ENTRIES).map(|n| {
        let steps = if n % 2 == 0 {
            "error:Down|emit"
        } else {
            "emit"
        };
        (format!("entry-{n}"), steps.to_owned())
    });
    bench.add_all(stage, entries).await;
}

fn stage(bench: &Bench) -> StageFile {
    bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "2s")
        .set("delivery.concurrency", 4)
        .set("delivery.maxDeliveries", 100)
        .set("retry.initialDelay", "1s")
        .set("idempotency.keyFields", json!(["key"]))
        .set("output.stream", "mails")
}

#[tokio::test]
async fn racing_promoters_promote_each_delayed_entry_once() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let stage = stage(&bench);
    feed(&bench, &stage).await;
    let _workers: Vec<Worker> = (0..4).map(|_| bench.worker(&stage)).collect();
    bench
        .started((ENTRIES + FAIL_FIRST) as usize, 2 * SOON)
        .await;
    bench.settled(&stage, SOON).await;
    assert_eq!(bench.journal().starts(), (ENTRIES + FAIL_FIRST) as usize);
    assert_eq!(bench.db().size("mails").await, u64::from(ENTRIES));
}

#[tokio::test]
async fn equal_entries_are_retried_each_for_itself() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("retry.initialDelay", "200ms");
    for _ in 0..5 {
        bench.add(&stage, "equal", "error:Down|ok").await;
    }
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.retried), (5, 5));
    assert_eq!(bench.journal().starts(), 10);
}

#[tokio::test]
async fn dying_promoters_lose_and_double_nothing() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let stage = stage(&bench);
    feed(&bench, &stage).await;
    let mut workers: Vec<Worker> = (0..4).map(|_| bench.worker(&stage)).collect();
    bench.started(100, SOON).await;
    for n in 0..8 {
        for_the_time_of_the_fault(Duration::from_millis(400)).await;
        let victim = n % workers.len();
        workers[victim].kill().await;
        workers[victim] = bench.worker(&stage);
    }
    bench.settled(&stage, 3 * SOON).await;
    let counts = bench.db().count_by_key("mails").await;
    assert_eq!(counts.len(), ENTRIES as usize);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    assert!(bench.dead_letters(&stage).await.is_empty());
}
