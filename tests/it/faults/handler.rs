//! A handler that is not there: the breaker opens, nothing is spent, and work resumes when it comes.

use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::faults::SOON;
use crate::support::{Bench, HttpHandler, StageFile, eventually, for_the_time_of_the_fault};

/// Waits until the worker's report says that the breaker is open, and why.
async fn breaker_opens(bench: &Bench, stage: &StageFile, reason: &str) {
    eventually(
        "the report says why the breaker is open",
        SOON,
        async || {
            let reports = bench.reports(stage).await;
            let breaker = &reports.first()?["breaker"];
            (breaker["open"] == true && breaker["reason"] == reason).then_some(())
        },
    )
    .await;
}

#[tokio::test]
async fn absent_http_handler_spends_nothing_and_work_resumes_when_it_comes() {
    let bench = Bench::new().await;
    let mut server = HttpHandler::not_yet();
    let stage = bench.http(server.port()).set("retry.maxAttempts", 1);
    bench.add_many(&stage, "entry", 20, "ok").await;
    let mut worker = bench.worker_until_idle(&stage);
    breaker_opens(&bench, &stage, "ConnectionRefused").await;
    // Longer than a visibility timeout, after which the worker hands back what it holds.
    for_the_time_of_the_fault(Duration::from_secs(5)).await;
    worker.did_not_spin();
    server.begin();
    let summary = worker.summary(2 * SOON).await;
    assert_eq!(
        (summary.done, summary.retried, summary.dead_lettered),
        (20, 0, 0)
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 20);
    for request in requests {
        let spent = (
            request.header("streamstage-attempt"),
            request.header("streamstage-deliveries"),
        );
        assert_eq!(spent, ("1", "1"), "{request:?}");
    }
}

#[tokio::test]
async fn command_that_cannot_be_spawned_spends_nothing_and_work_resumes_when_it_can() {
    let bench = Bench::new().await;
    let command = bench.file("not-yet-there");
    let directory = bench.file("");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/handlers/scripted.pl");
    let words = [
        &command.to_string_lossy(),
        script,
        &directory.to_string_lossy(),
        "ok",
    ];
    let stage = bench.exec(&words).set("retry.maxAttempts", 1);
    bench.add_many(&stage, "entry", 20, "ok").await;
    let mut worker = bench.worker_until_idle(&stage);
    breaker_opens(&bench, &stage, "SpawnFailed").await;
    for_the_time_of_the_fault(Duration::from_secs(5)).await;
    worker.did_not_spin();
    symlink("/usr/bin/perl", &command).expect("the program appears");
    let summary = worker.summary(2 * SOON).await;
    assert_eq!((summary.done, summary.dead_lettered), (20, 0));
    assert_eq!(bench.journal().starts(), 20);
}

#[tokio::test]
async fn command_that_keeps_exiting_while_idle_is_unavailable() {
    let bench = Bench::new().await;
    let stage = bench.exec(&["false"]);
    let mut worker = bench.worker(&stage);
    bench.reported(&stage, 1, SOON).await;
    bench.add_many(&stage, "entry", 5, "ok").await;
    eventually("the report names the reason", SOON, async || {
        let reports = bench.reports(&stage).await;
        (reports.first()?["breaker"]["reason"] == "ProcessExiting").then_some(())
    })
    .await;
    worker.did_not_spin();
    worker.drain(SOON).await;
    assert!(bench.dead_letters(&stage).await.is_empty());
    assert_eq!(bench.pending(&stage).await, 0, "handed back");
}

#[tokio::test]
async fn handler_beyond_its_timeout_is_killed_and_spends_an_attempt() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.handlerTimeout", "500ms")
        .set("retry.initialDelay", "100ms");
    bench.add(&stage, "slow", "sleep:60000|ok").await;
    bench.add_many(&stage, "quick", 10, "ok").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.retried), (11, 1));
    let journal = bench.journal();
    let attempts: Vec<u32> = journal
        .starts_of("slow")
        .iter()
        .map(|line| line.attempt)
        .collect();
    assert_eq!(attempts, [1, 2]);
}

#[tokio::test]
async fn sound_entries_beside_a_failing_one_are_not_held_up() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.concurrency", 2)
        .set("retry.initialDelay", "100ms")
        .set("retry.maxAttempts", 3);
    bench.add(&stage, "failing", "error:Down").await;
    bench.add_many(&stage, "sound", 50, "ok").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.dead_lettered), (50, 1));
}
