//! One entry that kills what touches it, among 99 that do no harm: it alone ends in the dead letters.

use std::time::Duration;

use crate::support::{Bench, HttpHandler, StageFile, Worker, eventually, figures, whole_machine};

const INNOCENTS: u32 = 99;

/// A stage that gives an entry three deliveries and does not wait long between them.
fn guarded(stage: StageFile) -> StageFile {
    stage
        .set("delivery.concurrency", 16)
        .set("delivery.maxDeliveries", 3)
        .set("delivery.visibilityTimeout", "2s")
        .set("delivery.reclaimInterval", "500ms")
        .set("retry.initialDelay", "200ms")
        .set("retry.maxDelay", "1s")
}

/// The poison in the middle of the others, so that it always has company.
async fn feed(bench: &Bench, stage: &StageFile, poison: &str, innocent: &str) {
    bench.add_many(stage, "before", 20, innocent).await;
    bench.add(stage, "poison", poison).await;
    bench
        .add_many(stage, "after", INNOCENTS - 20, innocent)
        .await;
}

/// One dead letter: the poison, condemned for having killed, not for having failed.
async fn only_the_poison_is_dead(bench: &Bench, stage: &StageFile) {
    let dead = bench.dead_letters(stage).await;
    let found: Vec<_> = dead
        .iter()
        .map(|letter| (letter.key(), letter.says("reason")))
        .collect();
    assert_eq!(found, [("poison", "Poison")]);
}

#[tokio::test]
async fn poison_that_kills_its_child_is_dead_lettered_and_99_are_done() {
    let bench = Bench::new().await;
    let stage = guarded(bench.scripted("ok"));
    feed(&bench, &stage, "exit:1", "sleep:50").await;
    let mut worker = bench.worker_until_idle(&stage);
    let summary = worker.summary(Duration::from_secs(60)).await;

    let journal = bench.journal();
    let poisoned = journal.starts_of("poison").len();
    let others = journal.starts() - poisoned;
    figures(&format!(
        "poison (Exec child): {} done, {} dead, {poisoned} starts of the poison, {others} of the others",
        summary.done, summary.dead_lettered
    ));
    only_the_poison_is_dead(&bench, &stage).await;
    assert_eq!((summary.done, summary.dead_lettered), (99, 1));
    assert_eq!((poisoned, others), (3, 99));
}

#[tokio::test]
async fn poison_that_kills_the_http_server_is_dead_lettered_and_99_are_done() {
    let bench = Bench::new().await;
    let server = HttpHandler::start();
    let stage = guarded(bench.http(server.port()));
    feed(&bench, &stage, "sleep:30;die", "sleep:50").await;
    let mut worker = bench.worker_until_idle(&stage);
    let summary = worker.summary(Duration::from_secs(90)).await;

    let requests = server.requests();
    let poisoned = requests.iter().filter(|r| r.key == "poison").count();
    figures(&format!(
        "poison (HTTP server): {} done, {} dead, {} deaths, {poisoned} starts of the poison, {} of the others",
        summary.done,
        summary.dead_lettered,
        server.deaths(),
        requests.len() - poisoned
    ));
    only_the_poison_is_dead(&bench, &stage).await;
    assert_eq!((summary.done, summary.dead_lettered), (99, 1));
    // Three charged starts, and at most one uncharged (as a suspect among others) for each.
    assert!((3..=6).contains(&poisoned), "{poisoned} starts");
}

#[tokio::test]
async fn poison_that_kills_the_workers_group_is_dead_lettered_and_99_are_done() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let stage = guarded(bench.scripted("ok"));
    feed(&bench, &stage, "sleep:30;slay", "sleep:50").await;
    let mut workers: Vec<Worker> = vec![bench.worker(&stage)];
    let mut killed = 0;
    eventually(
        "one is dead-lettered and nothing is left",
        Duration::from_secs(90),
        async || {
            if !workers[0].is_running() {
                killed += 1;
                workers[0] = bench.worker(&stage);
            }
            if bench.dead_letters(&stage).await.is_empty() {
                return None;
            }
            (bench.pending(&stage).await + bench.delayed(&stage).await == 0).then_some(())
        },
    )
    .await;
    bench.settled(&stage, Duration::from_secs(20)).await;

    let journal = bench.journal();
    let poisoned = journal.starts_of("poison").len();
    let done: std::collections::BTreeSet<&str> = journal
        .lines(crate::support::What::Ok)
        .map(|line| line.key.as_str())
        .collect();
    figures(&format!(
        "poison (worker's group): {} done, {killed} workers killed, {poisoned} starts of the poison, {} of the others",
        done.len(),
        journal.starts() - poisoned
    ));
    only_the_poison_is_dead(&bench, &stage).await;
    assert_eq!((done.len(), killed, poisoned), (99, 3, 3));
}
