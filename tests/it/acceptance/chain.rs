//! Two stages, six workers, ten kills: every entry comes out once.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Bench, StageFile, Stopwatch, Worker, eventually, figures, for_the_time_of_the_fault,
    whole_machine,
};

const ENTRIES: u32 = 10_000;
const KILLS: u32 = 10;
const PART: u32 = ENTRIES / KILLS;

fn link(bench: &Bench, name: &str, from: &str, to: &str) -> StageFile {
    bench
        .scripted("rand:5;emit")
        .named(name, from)
        .set("output.stream", to)
        .set("idempotency.keyFields", json!(["key"]))
        .set("delivery.visibilityTimeout", "3s")
        .set("delivery.concurrency", 8)
        .set("delivery.maxDeliveries", 100)
}

#[tokio::test]
async fn chain_of_two_stages_gives_every_entry_once_through_ten_kills() {
    let _machine = whole_machine().await;
    let bench = Bench::new().await;
    let first = link(&bench, "first", "{chain}:a", "{chain}:b");
    let second = link(&bench, "second", "{chain}:b", "{chain}:c");
    let watch = Stopwatch::start();
    let stages = [&first, &first, &first, &second, &second, &second];
    let mut workers: Vec<Worker> = stages.iter().map(|stage| bench.worker(stage)).collect();
    for kill in 0..KILLS {
        // Fed in parts, so that every kill hits workers at work, however fast the machine is.
        let entries = (kill * PART..(kill + 1) * PART)
            .map(|n| (format!("entry-{n}"), "rand:5;emit".to_owned()));
        bench.add_all(&first, entries).await;
        let flowing = u64::from(kill * PART + PART / 4);
        eventually("a part is under way", Duration::from_secs(30), async || {
            (bench.db().size("{chain}:c").await >= flowing).then_some(())
        })
        .await;
        let victim = fastrand::usize(..workers.len());
        workers[victim].kill().await;
        workers[victim] = bench.worker(stages[victim]);
        for_the_time_of_the_fault(Duration::from_secs(1)).await;
    }
    bench.settled(&first, Duration::from_secs(180)).await;
    bench.settled(&second, Duration::from_secs(60)).await;

    let counts = bench.db().count_by_key("{chain}:c").await;
    let twice = counts.values().filter(|count| **count > 1).count();
    let missing = (0..ENTRIES)
        .filter(|n| !counts.contains_key(&format!("entry-{n}")))
        .count();
    let starts = bench.journal().starts();
    figures(&format!(
        "chain: {} keys out of {ENTRIES}, {twice} twice, {missing} missing, \
         {starts} starts, {:.1} s",
        counts.len(),
        watch.elapsed().as_secs_f32()
    ));
    assert_eq!((counts.len(), twice, missing), (ENTRIES as usize, 0, 0));
    assert!(bench.dead_letters(&first).await.is_empty());
    assert!(bench.dead_letters(&second).await.is_empty());
}
