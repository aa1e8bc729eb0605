//! A handler may take longer than the visibility timeout; a worker may not be silent that long.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Bench, StageFile, figures, for_the_time_of_the_fault, holds_for};

const STOPPED_FOR: Duration = Duration::from_secs(25);

fn stage(bench: &Bench) -> StageFile {
    bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "10s")
        .set("delivery.reclaimInterval", "1s")
        .set("idempotency.keyFields", json!(["key"]))
        .set("output.stream", "mails")
}

#[tokio::test]
async fn handler_of_40_s_runs_once_with_a_visibility_of_10_s() {
    let bench = Bench::new().await;
    let stage = stage(&bench);
    bench.add(&stage, "long", "sleep:40000;emit").await;
    let mut workers = [bench.worker(&stage), bench.worker(&stage)];
    bench.started(1, Duration::from_secs(20)).await;
    bench.settled(&stage, Duration::from_secs(60)).await;

    let mut done = 0;
    for worker in &mut workers {
        done += worker.drain(Duration::from_secs(20)).await.done;
    }
    let starts = bench.journal().starts();
    figures(&format!("long handler: {starts} start, {done} done"));
    assert_eq!((starts, done), (1, 1));
    assert_eq!(bench.db().size("mails").await, 1);
}

#[tokio::test]
async fn worker_stopped_for_25_s_loses_its_entry_and_settles_nothing() {
    let bench = Bench::new().await;
    let stage = stage(&bench);
    bench.add(&stage, "long", "sleep:20000;emit").await;
    let mut stopped = bench.worker(&stage);
    bench.started(1, Duration::from_secs(20)).await;
    let mut other = bench.worker(&stage);
    bench.reported(&stage, 2, Duration::from_secs(20)).await;

    // Its handler is not stopped: the answer waits in the pipe when the worker wakes, and the second run is half-way.
    stopped.signal(Signal::STOP);
    for_the_time_of_the_fault(STOPPED_FOR).await;
    let journal = bench.journal();
    assert_eq!(journal.starts(), 2, "a second run elsewhere");
    stopped.signal(Signal::CONT);
    holds_for(
        "nothing is committed by the first",
        Duration::from_secs(2),
        async || bench.db().size("mails").await == 0,
    )
    .await;
    bench.settled(&stage, Duration::from_secs(40)).await;

    let first = stopped.drain(Duration::from_secs(20)).await;
    let second = other.drain(Duration::from_secs(20)).await;
    let (starts, outputs) = (bench.journal().starts(), bench.db().size("mails").await);
    figures(&format!(
        "worker stopped for 25 s: {starts} starts, {outputs} commit, settled {} + {}",
        first.done, second.done
    ));
    assert_eq!((starts, outputs), (2, 1));
    assert_eq!(
        (first, second.done),
        (crate::support::Summary::default(), 1)
    );
}
