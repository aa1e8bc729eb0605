//! Several workers share a backlog: each entry runs once, and how fast that goes.

use crate::engine::SOON;
use crate::support::{Bench, HttpHandler, StageFile, Stopwatch, figures, whole_machine};

const ENTRIES: u32 = 4_000;
const WORKERS: usize = 3;

/// Runs the backlog with three workers: entries per second, from the first worker's start to the last settlement.
async fn run(name: &str, bench: &Bench, stage: &StageFile) {
    bench.add_many(stage, "entry", ENTRIES, "ok").await;
    let watch = Stopwatch::start();
    let mut workers: Vec<_> = (0..WORKERS).map(|_| bench.worker(stage)).collect();
    bench.settled(stage, 4 * SOON).await;
    let millis = watch.elapsed().as_millis();
    let mut done = 0;
    for worker in &mut workers {
        done += worker.drain(SOON).await.done;
    }
    figures(&format!(
        "{name}: {done} entries in {millis} ms with {WORKERS} workers, {} per second (debug build)",
        u128::from(done) * 1_000 / millis
    ));
    assert_eq!(done, u64::from(ENTRIES));
}

#[tokio::test]
async fn exec_workers_share_a_backlog_and_start_each_entry_once() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("delivery.concurrency", 8);
    run("no-op Exec handler", &bench, &stage).await;
    assert_eq!(bench.journal().starts(), ENTRIES as usize);
}

#[tokio::test]
async fn http_workers_share_a_backlog_and_start_each_entry_once() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let server = HttpHandler::start();
    let stage = bench.http(server.port()).set("delivery.concurrency", 8);
    run("no-op HTTP handler", &bench, &stage).await;
    assert_eq!(server.requests().len(), ENTRIES as usize);
}
