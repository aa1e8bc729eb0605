//! A key of another type where the stage expects its own: one named reason, nothing lost, and it heals.

use crate::faults::SOON;
use crate::support::{Bench, StageFile, eventually, for_the_time_of_the_fault, holds_for};

fn stage(bench: &Bench) -> StageFile {
    bench
        .scripted("ok")
        .set("retry.initialDelay", "200ms")
        .set("retry.maxDelay", "1s")
        .set("output.stream", "mails")
}

/// One that is done, one that fails first, one that is rejected.
async fn feed(bench: &Bench, stage: &StageFile) {
    bench.add(stage, "good", "emit").await;
    bench.add(stage, "healing", "error:Down|emit").await;
    bench.add(stage, "bad", "reject:Wrong").await;
}

/// All three ended as they should, in no more starts than that takes.
async fn all_ended(bench: &Bench, stage: &StageFile, starts: usize) {
    eventually("two are done and one is dead", SOON, async || {
        let done = bench.db().count_by_key("mails").await;
        (done.len() == 2 && bench.dead_letters(stage).await.len() == 1).then_some(())
    })
    .await;
    bench.settled(stage, SOON).await;
    assert_eq!(bench.journal().starts(), starts);
}

async fn wrong(bench: &Bench, key: &str) {
    let _ok: String = bench.db().call(&["SET", key, "not what you expect"]).await;
}

/// The key holds a text from the start on; the worker says so, and goes on when the key is gone.
async fn named_and_healed(suffix: &str) {
    let bench = Bench::new().await;
    let stage = stage(&bench);
    let key = stage.key(suffix);
    wrong(&bench, &key).await;
    feed(&bench, &stage).await;
    let mut worker = bench.worker(&stage);
    eventually("the log names key and reason", SOON, async || {
        let log = worker.log();
        (log.contains("WrongKeyType") && log.contains(&key)).then_some(())
    })
    .await;
    for_the_time_of_the_fault(std::time::Duration::from_secs(3)).await;
    worker.did_not_spin();
    assert!(worker.is_running());
    let _deleted: u64 = bench.db().call(&["DEL", &key]).await;
    all_ended(&bench, &stage, 4).await;
}

#[tokio::test]
async fn retry_stream_of_another_type_is_named_and_heals() {
    named_and_healed("retry").await;
}

#[tokio::test]
async fn delayed_set_of_another_type_is_named_and_heals() {
    named_and_healed("delayed").await;
}

#[tokio::test]
async fn reports_of_another_type_are_named_and_heal() {
    named_and_healed("workers").await;
}

#[tokio::test]
async fn cursor_of_another_type_is_named_and_heals() {
    named_and_healed("cursor").await;
}

#[tokio::test]
async fn source_of_another_type_is_named_and_heals() {
    let bench = Bench::new().await;
    let stage = stage(&bench);
    wrong(&bench, stage.stream()).await;
    let worker = bench.worker(&stage);
    eventually("the log names key and reason", SOON, async || {
        let log = worker.log();
        (log.contains("WrongKeyType") && log.contains(stage.stream())).then_some(())
    })
    .await;
    let _deleted: u64 = bench.db().call(&["DEL", stage.stream()]).await;
    feed(&bench, &stage).await;
    all_ended(&bench, &stage, 4).await;
}

#[tokio::test]
async fn refused_dead_letter_stays_pending_until_its_stream_is_one() {
    let bench = Bench::new().await;
    let stage = stage(&bench);
    let dead = stage.key("dead");
    wrong(&bench, &dead).await;
    feed(&bench, &stage).await;
    let _worker = bench.worker(&stage);
    eventually("the report names key and reason", SOON, async || {
        let reports = bench.reports(&stage).await;
        let refused = reports.first()?["refused"].as_array()?.first()?.clone();
        (refused["key"] == dead.as_str() && refused["reason"] == "WrongKeyType").then_some(())
    })
    .await;
    let others = "the others are done and the refused one is held";
    eventually(others, SOON, async || {
        let done = bench.db().size("mails").await;
        (done == 2 && bench.pending(&stage).await == 1).then_some(())
    })
    .await;
    let _deleted: u64 = bench.db().call(&["DEL", &dead]).await;
    all_ended(&bench, &stage, 4).await;
}

#[tokio::test]
async fn worker_full_of_refused_outputs_reads_nothing_new() {
    let bench = Bench::new().await;
    let stage = stage(&bench).set("delivery.concurrency", 2);
    wrong(&bench, "mails").await;
    bench.add_many(&stage, "entry", 60, "sleep:50;emit").await;
    let _worker = bench.worker(&stage);
    eventually("the report names what is refused", SOON, async || {
        let reports = bench.reports(&stage).await;
        (reports.first()?["refused"][0]["key"] == "mails").then_some(())
    })
    .await;
    // What was on its way to its first refusal had left its slot to another.
    let held = bench.journal().starts();
    assert!((2..30).contains(&held), "{held} held with two slots");
    let period = std::time::Duration::from_secs(5);
    holds_for("nothing new starts", period, async || {
        bench.journal().starts() == held && bench.pending(&stage).await == held as u64
    })
    .await;
    let _deleted: u64 = bench.db().call(&["DEL", "mails"]).await;
    bench.settled(&stage, SOON).await;
    assert_eq!(bench.db().size("mails").await, 60);
    assert_eq!(bench.journal().starts(), 60);
}
