//! A planned stop costs no entry anything.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Bench, Journal, Stopwatch, What, eventually, figures, holds_for};

const RUNNING: u32 = 16;
const BACKLOG: u32 = 40;
const REST_STARTS_WITHIN: Duration = Duration::from_secs(2);

/// No start was a second one, and none knew of a spent delivery or attempt.
fn nothing_was_spent(journal: &Journal) {
    for line in journal.lines(What::Start) {
        assert_eq!((line.attempt, line.deliveries), (1, 1), "{line:?}");
    }
}

#[tokio::test]
async fn drain_finishes_what_runs_and_leaves_the_backlog_to_the_next_worker() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.concurrency", RUNNING)
        .set("delivery.visibilityTimeout", "60s");
    bench
        .add_many(&stage, "running", RUNNING, "gate:open")
        .await;
    bench.add_many(&stage, "waiting", BACKLOG, "ok").await;
    let mut worker = bench.worker(&stage);
    bench
        .started(RUNNING as usize, Duration::from_secs(20))
        .await;

    worker.signal(Signal::TERM);
    holds_for(
        "nothing starts during a drain",
        Duration::from_secs(1),
        async || bench.journal().starts() == RUNNING as usize,
    )
    .await;
    bench.open("open");
    let first = worker.summary(Duration::from_secs(20)).await;
    assert_eq!(
        bench.pending(&stage).await,
        0,
        "nothing is left to a visibility timeout"
    );

    let begun = Stopwatch::start();
    let mut next = bench.worker_until_idle(&stage);
    let journal = bench
        .started((RUNNING + BACKLOG) as usize, Duration::from_secs(20))
        .await;
    let last = journal.lines(What::Start).map(|line| line.at).max();
    let took = last.expect("56 starts") - begun.started_at();
    let second = next.summary(Duration::from_secs(20)).await;

    let twice = bench
        .journal()
        .starts_by_key()
        .values()
        .filter(|n| **n > 1)
        .count();
    figures(&format!(
        "drain: {} + {} done, {twice} started twice, the rest started {took} ms after the next worker",
        first.done, second.done
    ));
    nothing_was_spent(&bench.journal());
    assert_eq!((first.done, second.done, twice), (16, 40, 0));
    assert!(u128::try_from(took).unwrap_or(0) <= REST_STARTS_WITHIN.as_millis());
    let consumers: u64 = bench.db().size(&stage.key("workers")).await;
    assert_eq!(consumers, 0, "both workers have retired");
}

#[tokio::test]
async fn handlers_beyond_the_drain_timeout_are_handed_back_uncharged() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.concurrency", 4)
        .set("delivery.visibilityTimeout", "60s")
        .set("drain.timeout", "1s");
    bench
        .add_many(&stage, "stuck", 4, "skip:open;gate:open")
        .await;
    let mut worker = bench.worker(&stage);
    bench.started(4, Duration::from_secs(20)).await;
    let first = worker.drain(Duration::from_secs(10)).await;
    assert_eq!((first.done, first.released), (0, 4));

    bench.open("open");
    let mut next = bench.worker_until_idle(&stage);
    let second = next.summary(Duration::from_secs(20)).await;
    assert_eq!(second.done, 4);
    nothing_was_spent(&bench.journal());
}

#[tokio::test]
async fn second_signal_releases_and_exits_at_once() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "60s");
    bench.add(&stage, "stuck", "skip:open;gate:open").await;
    let mut worker = bench.worker(&stage);
    bench.started(1, Duration::from_secs(20)).await;
    // Signals of one kind that come too close together are one signal: an impatient person sends it again.
    eventually("the worker ends", Duration::from_secs(5), async || {
        let running = worker.is_running();
        if running {
            worker.signal(Signal::TERM);
        }
        (!running).then_some(())
    })
    .await;
    let term = 15;
    assert_eq!(worker.exit(Duration::ZERO).await, 128 + term);
    assert_eq!(bench.pending(&stage).await, 0, "the entry was released");

    bench.open("open");
    let mut next = bench.worker_until_idle(&stage);
    assert_eq!(next.summary(Duration::from_secs(20)).await.done, 1);
    nothing_was_spent(&bench.journal());
}

#[tokio::test]
async fn entry_that_meets_five_deploys_is_neither_charged_nor_lost() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "60s")
        .set("delivery.maxDeliveries", 2)
        .set("retry.maxAttempts", 1)
        .set("drain.timeout", "100ms");
    bench.add(&stage, "long", "skip:open;gate:open").await;
    for deploy in 1..=5 {
        let mut worker = bench.worker(&stage);
        bench.started(deploy, Duration::from_secs(20)).await;
        let summary = worker.drain(Duration::from_secs(10)).await;
        assert_eq!((summary.done, summary.released), (0, 1));
    }
    bench.open("open");
    let summary = bench.run_dry(&stage, Duration::from_secs(20)).await;
    assert_eq!((summary.done, summary.dead_lettered), (1, 0));
    nothing_was_spent(&bench.journal());
}
