//! The stream and its group vanish under a worker, in every way a server knows.

use crate::faults::SOON;
use crate::support::{Bench, Db, StageFile, Worker, eventually};

/// An entry added after the fault is handled, and that is on record: a group is made again where the last report says.
async fn goes_on(bench: &Bench, stage: &StageFile, key: &str) {
    bench.add(stage, key, "ok").await;
    eventually(&format!("{key} is handled"), SOON, async || {
        (bench.journal().starts_of(key).len() == 1).then_some(())
    })
    .await;
    bench.settled(stage, SOON).await;
    bench.next_report(stage, SOON).await;
}

async fn do_all(db: &Db, commands: &[&[&str]]) {
    for command in commands {
        let _answer: redis::Value = db.call(command).await;
    }
}

async fn blocked_worker(bench: &Bench, stage: &StageFile) -> Worker {
    let worker = bench.worker(stage);
    goes_on(bench, stage, "before").await;
    worker
}

#[tokio::test]
async fn blocked_worker_survives_every_way_a_stream_can_vanish() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let mut worker = blocked_worker(&bench, &stage).await;
    let faults: [(&str, &[&[&str]]); 5] = [
        ("deleted", &[&["DEL", "orders"]]),
        ("renamed", &[&["RENAME", "orders", "elsewhere"]]),
        ("destroyed", &[&["XGROUP", "DESTROY", "orders", "mail"]]),
        ("flushed", &[&["FLUSHALL"]]),
        (
            "overwritten",
            &[&["SET", "orders", "text"], &["DEL", "orders"]],
        ),
    ];
    for (name, commands) in faults {
        do_all(&bench.db(), commands).await;
        goes_on(&bench, &stage, &format!("after-{name}")).await;
    }
    let summary = worker.drain(SOON).await;
    assert_eq!(summary.done, 6, "each entry once");
    assert_eq!(bench.journal().starts(), 6);
}

#[tokio::test]
async fn stream_replaced_in_one_transaction_is_read_from_its_beginning() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let _worker = blocked_worker(&bench, &stage).await;
    let mut connection = bench.db().connection().await.expect("connects");
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("DEL").arg(stage.stream()).ignore();
    for key in ["first", "second"] {
        let pairs = [("key", key), ("do", "ok")];
        pipe.cmd("XADD")
            .arg(stage.stream())
            .arg("*")
            .arg(&pairs)
            .ignore();
    }
    let () = pipe.query_async(&mut connection).await.expect("replaced");
    bench.started(3, SOON).await;
    bench.settled(&stage, SOON).await;
    assert_eq!(bench.journal().starts(), 3);
}

#[tokio::test]
async fn group_destroyed_under_running_handlers_starts_nothing_twice() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.concurrency", 4)
        .set("output.stream", "mails");
    bench.add_many(&stage, "running", 4, "gate:open;emit").await;
    bench.add_many(&stage, "waiting", 20, "emit").await;
    let mut worker = bench.worker(&stage);
    bench.started(4, SOON).await;
    bench.reported(&stage, 1, SOON).await;
    do_all(&bench.db(), &[&["XGROUP", "DESTROY", "orders", "mail"]]).await;
    bench.open("open");
    bench.started(24, SOON).await;
    bench.settled(&stage, SOON).await;
    worker.drain(SOON).await;
    let journal = bench.journal();
    let twice: Vec<_> = journal
        .starts_by_key()
        .into_iter()
        .filter(|(_, n)| *n > 1)
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
    let outputs = bench.db().count_by_key("mails").await;
    assert_eq!(outputs.len(), 24);
    assert!(outputs.values().all(|count| *count == 1), "{outputs:?}");
}

#[tokio::test]
async fn retry_stream_deleted_while_idle_is_made_again() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("retry.initialDelay", "100ms");
    let _worker = blocked_worker(&bench, &stage).await;
    do_all(&bench.db(), &[&["DEL", &stage.key("retry")]]).await;
    bench.add(&stage, "healing", "error:Down|ok").await;
    bench.started(3, SOON).await;
    bench.settled(&stage, SOON).await;
}

#[tokio::test]
async fn worker_that_may_not_create_the_group_waits_for_it() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("source.groupCreation", "Never");
    let mut worker = bench.worker(&stage);
    eventually("the log names the reason", SOON, async || {
        worker.log().contains("GroupMissing").then_some(())
    })
    .await;
    let create: &[&str] = &["XGROUP", "CREATE", "orders", "mail", "0", "MKSTREAM"];
    do_all(&bench.db(), &[create]).await;
    goes_on(&bench, &stage, "after").await;
    assert_eq!(worker.drain(SOON).await.done, 1);
}

#[tokio::test]
async fn five_workers_started_before_the_stream_share_it_when_it_comes() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("delivery.concurrency", 2);
    let _workers: Vec<Worker> = (0..5).map(|_| bench.worker(&stage)).collect();
    bench.reported(&stage, 5, SOON).await;
    bench.add_many(&stage, "entry", 50, "ok").await;
    bench.started(50, SOON).await;
    bench.settled(&stage, SOON).await;
    assert_eq!(bench.journal().starts(), 50);
}
