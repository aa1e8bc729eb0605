//! Redis goes away for three visibility timeouts while handlers run: nothing starts twice.

use std::time::Duration;

use crate::support::{
    Bench, Redis, StageFile, Worker, eventually, figures, for_the_time_of_the_fault, whole_machine,
};

const RUNNING: u32 = 50;
/// Together three visibility timeouts.
const BEFORE_THE_FIRST_HALF_ENDS: Duration = Duration::from_secs(3);
const AFTER_IT: Duration = Duration::from_secs(6);

fn stage(bench: &Bench) -> StageFile {
    bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "3s")
        .set("delivery.concurrency", 17)
}

/// Three workers run fifty handlers; half of them will end during the outage, half after it.
async fn fifty_running(bench: &Bench, stage: &StageFile) -> Vec<Worker> {
    bench
        .add_many(stage, "during", RUNNING / 2, "gate:during")
        .await;
    bench
        .add_many(stage, "after", RUNNING / 2, "gate:after")
        .await;
    let workers = (0..3).map(|_| bench.worker(stage)).collect();
    bench
        .started(RUNNING as usize, Duration::from_secs(30))
        .await;
    bench.reported(stage, 3, Duration::from_secs(20)).await;
    workers
}

async fn away(bench: &Bench) {
    for_the_time_of_the_fault(BEFORE_THE_FIRST_HALF_ENDS).await;
    bench.open("during");
    for_the_time_of_the_fault(AFTER_IT).await;
}

async fn fifty_starts_and_fifty_done(
    name: &str,
    bench: &Bench,
    stage: &StageFile,
    mut workers: Vec<Worker>,
) {
    eventually(
        "the first half is settled",
        Duration::from_secs(30),
        async || (bench.pending(stage).await == u64::from(RUNNING / 2)).then_some(()),
    )
    .await;
    bench.open("after");
    bench.settled(stage, Duration::from_secs(30)).await;
    let mut done = 0;
    for worker in &mut workers {
        done += worker.drain(Duration::from_secs(20)).await.done;
    }
    let starts = bench.journal().starts();
    figures(&format!("{name}: {starts} starts, {done} done"));
    assert_eq!((starts, done), (50, 50));
}

#[tokio::test]
async fn redis_frozen_for_three_visibility_timeouts_starts_nothing_twice() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let stage = stage(&bench);
    let workers = fifty_running(&bench, &stage).await;
    bench.redis.freeze();
    away(&bench).await;
    bench.redis.thaw();
    fifty_starts_and_fifty_done("Redis frozen", &bench, &stage, workers).await;
}

#[tokio::test]
async fn redis_restarted_after_three_visibility_timeouts_starts_nothing_twice() {
    let _machine = whole_machine().await;
    let redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let mut bench = Bench::on(redis);
    let stage = stage(&bench);
    let workers = fifty_running(&bench, &stage).await;
    bench.redis.kill().await;
    away(&bench).await;
    bench.redis.begin().await;
    fifty_starts_and_fifty_done("Redis restarted", &bench, &stage, workers).await;
}
