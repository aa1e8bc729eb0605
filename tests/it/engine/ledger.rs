//! The same work twice: done once.

use serde_json::json;

use crate::engine::SOON;
use crate::support::{Bench, StageFile, What};

fn keyed(bench: &Bench) -> StageFile {
    bench
        .scripted("ok")
        .set("idempotency.keyFields", json!(["key"]))
        .set("delivery.concurrency", 8)
        .set("retry.initialDelay", "100ms")
        .set("output.stream", "mails")
}

#[tokio::test]
async fn duplicate_of_committed_work_is_skipped() {
    let bench = Bench::new().await;
    let stage = keyed(&bench);
    bench.add(&stage, "same", "emit").await;
    bench.run_dry(&stage, SOON).await;
    bench.add(&stage, "same", "emit").await;
    bench.add(&stage, "new", "emit").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.skipped), (1, 1));
    assert_eq!(bench.journal().starts_of("same").len(), 1);
    assert_eq!(bench.db().size("mails").await, 2);
}

#[tokio::test]
async fn duplicate_runs_where_no_ledger_is_kept() {
    let bench = Bench::new().await;
    let stage = keyed(&bench).set("idempotency.ledger", "Off");
    bench.add_many(&stage, "same", 1, "emit").await;
    bench.add_many(&stage, "same", 1, "emit").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.skipped), (2, 0));
}

#[tokio::test]
async fn twins_in_one_worker_run_one_after_the_other() {
    let bench = Bench::new().await;
    let stage = keyed(&bench);
    for _ in 0..5 {
        bench
            .add(&stage, "twin", "sleep:100;error:Down|sleep:100;emit")
            .await;
    }
    let mut worker = bench.worker_until_idle(&stage);
    let summary = worker.summary(SOON).await;
    assert_eq!((summary.done, summary.skipped), (1, 4));
    assert_eq!(bench.db().size("mails").await, 1);

    let journal = bench.journal();
    let mut marks: Vec<(i64, bool)> = [What::Start, What::Ok, What::Failed]
        .into_iter()
        .flat_map(|what| {
            journal
                .lines(what)
                .map(move |line| (line.at, what == What::Start))
        })
        .collect();
    marks.sort_unstable();
    let overlaps = marks
        .windows(2)
        .filter(|pair| pair[0].1 && pair[1].1)
        .count();
    assert_eq!(
        overlaps, 0,
        "two starts without an answer between them: {marks:?}"
    );
}

#[tokio::test]
async fn twins_in_two_workers_commit_once() {
    let bench = Bench::new().await;
    let stage = keyed(&bench).set("delivery.concurrency", 1);
    let mut workers = [bench.worker(&stage), bench.worker(&stage)];
    bench.reported(&stage, 2, SOON).await;
    for _ in 0..2 {
        bench.add(&stage, "twin", "gate:open;emit").await;
    }
    bench.started(2, SOON).await;
    bench.open("open");
    bench.settled(&stage, SOON).await;
    let mut counts = (0, 0);
    for worker in &mut workers {
        let summary = worker.drain(SOON).await;
        counts = (counts.0 + summary.done, counts.1 + summary.skipped);
    }
    assert_eq!(counts, (1, 1));
    assert_eq!(bench.db().size("mails").await, 1);
}
