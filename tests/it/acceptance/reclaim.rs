//! How soon the entries of a dead worker start again.

use std::time::Duration;

use crate::support::{Bench, StageFile, Stopwatch, What, figures, whole_machine};

const SLOTS: u32 = 4;
const VISIBILITY: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_secs(1);
const MARGIN: Duration = Duration::from_secs(2);

fn stage(bench: &Bench) -> StageFile {
    bench
        .scripted("ok")
        .set("delivery.concurrency", SLOTS)
        .set("delivery.visibilityTimeout", "3s")
        .set("delivery.reclaimInterval", "1s")
}

/// Kills a worker that holds four entries while another one lives; how long until the last of them runs again.
async fn restarts_after(bench: &Bench, stage: &StageFile, backlog: u32) -> Duration {
    bench.add_many(stage, "held", SLOTS, "gate:open").await;
    let mut victim = bench.worker(stage);
    bench.started(SLOTS as usize, Duration::from_secs(20)).await;
    let _survivor = bench.worker(stage);
    bench.reported(stage, 2, Duration::from_secs(20)).await;
    bench.add_many(stage, "busy", backlog, "sleep:300").await;
    let busy_slots = SLOTS.min(backlog) as usize;
    bench
        .started(SLOTS as usize + busy_slots, Duration::from_secs(20))
        .await;

    victim.kill().await;
    let death = Stopwatch::start();
    bench.open("open");
    let again = crate::support::eventually(
        "the dead worker's entries run again",
        Duration::from_secs(30),
        async || {
            let journal = bench.journal();
            let again: Vec<i64> = journal
                .lines(What::Start)
                .filter(|line| line.key.starts_with("held") && line.worker != victim.id())
                .map(|line| line.at)
                .collect();
            (again.len() >= SLOTS as usize).then_some(again)
        },
    )
    .await;
    let last = again.into_iter().max().expect("four starts") - death.started_at();
    Duration::from_millis(u64::try_from(last).unwrap_or(0))
}

#[tokio::test]
async fn entries_of_a_dead_worker_restart_in_time_on_an_idle_stream() {
    let bench = Bench::new().await;
    let stage = stage(&bench);
    let took = restarts_after(&bench, &stage, 0).await;
    let limit = VISIBILITY + INTERVAL + MARGIN;
    figures(&format!("reclaim (idle stream): {took:.1?} of {limit:?}"));
    assert!(took <= limit, "{took:?}");
}

#[tokio::test]
async fn entries_of_a_dead_worker_restart_in_time_under_a_backlog_that_fills_every_slot() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let stage = stage(&bench);
    let took = restarts_after(&bench, &stage, 1_000).await;
    let limit = VISIBILITY + 2 * INTERVAL + MARGIN;
    figures(&format!("reclaim (full slots): {took:.1?} of {limit:?}"));
    let journal = bench.journal();
    let busy = journal
        .lines(What::Start)
        .filter(|line| line.key.starts_with("busy"))
        .count();
    assert!(busy < 1_000, "the backlog lasted all the time");
    assert!(took <= limit, "{took:?}");
}
