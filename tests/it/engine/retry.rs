//! Errors that heal, waits that cost nothing.

use crate::engine::SOON;
use crate::support::{Bench, HttpHandler, StageFile, eventually};

fn quick(stage: StageFile) -> StageFile {
    stage
        .set("retry.initialDelay", "300ms")
        .set("retry.jitterPercent", 0)
}

#[tokio::test]
async fn entry_that_fails_twice_heals_and_waits_longer_each_time() {
    let bench = Bench::new().await;
    let stage = quick(bench.scripted("ok"));
    bench
        .add(&stage, "healing", "error:Down|error:Down|ok")
        .await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!(
        (summary.done, summary.retried, summary.dead_lettered),
        (1, 2, 0)
    );

    let journal = bench.journal();
    let starts = journal.starts_of("healing");
    let attempts: Vec<u32> = starts.iter().map(|line| line.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    let waits = [starts[1].at - starts[0].at, starts[2].at - starts[1].at];
    assert!(waits[0] >= 300 && waits[1] >= 600, "{waits:?} ms");
    let ids: std::collections::BTreeSet<&str> =
        starts.iter().map(|line| line.id.as_str()).collect();
    assert_eq!(ids.len(), 1, "the origin id stays over retries");
}

#[tokio::test]
async fn busy_exec_handler_costs_no_attempt() {
    let bench = Bench::new().await;
    let stage = quick(bench.scripted("ok")).set("retry.maxAttempts", 1);
    bench.add(&stage, "patient", "skip:free;busy:1").await;
    let mut worker = bench.worker_until_idle(&stage);
    bench.started(3, SOON).await;
    bench.open("free");
    let summary = worker.summary(SOON).await;
    assert_eq!((summary.done, summary.dead_lettered), (1, 0));
    let journal = bench.journal();
    for line in journal.starts_of("patient") {
        assert_eq!((line.attempt, line.deliveries), (1, 1), "{line:?}");
    }
}

#[tokio::test]
async fn busy_http_handler_is_asked_again_when_it_said_and_costs_no_attempt() {
    let bench = Bench::new().await;
    let server = HttpHandler::start();
    let stage = quick(bench.http(server.port())).set("retry.maxAttempts", 1);
    bench.add(&stage, "patient", "busy:1|busy:1|ok").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.dead_lettered), (1, 0));
    let attempts: Vec<String> = server
        .requests()
        .iter()
        .map(|request| request.header("streamstage-attempt").to_owned())
        .collect();
    assert_eq!(attempts, ["1", "1", "1"]);
}

#[tokio::test]
async fn route_that_a_deploy_broke_is_tried_again() {
    let bench = Bench::new().await;
    let server = HttpHandler::start();
    let stage = quick(bench.http(server.port()));
    bench.add(&stage, "moved", "status:404|status:500|ok").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!(
        (summary.done, summary.retried, summary.dead_lettered),
        (1, 2, 0)
    );
}

#[tokio::test]
async fn handler_that_fails_for_all_is_slowed_down_and_recovers() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("skip:healed;error:Down")
        .set("delivery.concurrency", 8)
        .set("retry.initialDelay", "500ms")
        .set("retry.maxDelay", "2s")
        .set("retry.maxAttempts", 100);
    bench
        .add_many(&stage, "entry", 300, "skip:healed;error:Down")
        .await;
    let mut worker = bench.worker_until_idle(&stage);
    eventually("the report says that all fail", SOON, async || {
        let reports = bench.reports(&stage).await;
        let all_fail = |report: &serde_json::Value| report.to_string().contains("FailingAll");
        reports.iter().any(all_fail).then_some(())
    })
    .await;
    let before = bench.journal().starts();
    crate::support::for_the_time_of_the_fault(std::time::Duration::from_secs(8)).await;
    let during = bench.journal().starts() - before;
    // One at a time, two seconds apart: 5 in 8 s. At full speed there would be hundreds.
    assert!(during <= 12, "{during} starts in 8 s");
    bench.open("healed");
    let summary = worker.summary(2 * SOON).await;
    assert_eq!((summary.done, summary.dead_lettered), (300, 0));
}

#[tokio::test]
async fn retries_of_one_group_are_not_seen_by_another_on_the_same_stream() {
    let bench = Bench::new().await;
    let mail = quick(bench.scripted("ok"));
    let bill = mail
        .clone()
        .named("biller", mail.stream())
        .set("source.consumerGroup", "bill");
    bench.add_many(&mail, "entry", 10, "error:Down|ok").await;
    for stage in [&mail, &bill] {
        let summary = bench.run_dry(stage, SOON).await;
        assert_eq!((summary.done, summary.retried), (10, 10));
    }
    assert_eq!(bench.journal().starts(), 40, "each group twice");
    assert_eq!(
        bench.db().size(mail.stream()).await,
        10,
        "nothing is trimmed"
    );
}
