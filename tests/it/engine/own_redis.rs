//! A local run with a redis-server of its own: what it says of its end, and that the server never outlives it.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use tokio::net::TcpStream;

use crate::engine::SOON;
use crate::support::{Bench, Redis, StageFile, Worker, eventually};

/// Starts a run without `--redis`.
fn begin(bench: &Bench, stage: &StageFile, lines: &str) -> Worker {
    let input = bench.file("lines");
    std::fs::write(&input, lines).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamstage"));
    command
        .args(["dev", "-o", "json", "-f"])
        .arg(stage.write())
        .arg("--input")
        .arg(&input)
        .stdin(Stdio::null());
    Worker::start(&mut command, &bench.file("own"))
}

/// Where the run's server is.
async fn server(worker: &Worker) -> String {
    eventually("it has told its server's address", SOON, async || {
        let log = worker.log();
        let (_, told) = log.split_once("for this run address=\"")?;
        Some(told.split_once('"')?.0.to_owned())
    })
    .await
}

async fn is_gone(address: &str) {
    eventually("the server is gone", SOON, async || {
        TcpStream::connect(address).await.is_err().then_some(())
    })
    .await;
}

#[tokio::test]
async fn server_of_a_killed_run_is_gone_soon() {
    let bench = Bench::on(Redis::not_yet(&[]));
    let mut worker = begin(&bench, &bench.scripted("ok"), "{\"key\":\"one\"}\n");
    bench.started(1, SOON).await;
    let address = server(&worker).await;
    worker.signal(Signal::KILL);
    assert_eq!(worker.exit(SOON).await, 137);
    is_gone(&address).await;
}

#[tokio::test]
async fn drained_run_says_what_ends_with_its_server() {
    let bench = Bench::on(Redis::not_yet(&[]));
    let stage = bench.scripted("ok").set("drain.timeout", "0s");
    let lines =
        "{\"key\":\"bad\",\"do\":\"reject:No\"}\n{\"key\":\"slow\",\"do\":\"gate:never\"}\n";
    let mut worker = begin(&bench, &stage, lines);
    bench.started(2, SOON).await;
    eventually("all was added and one given up", SOON, async || {
        let log = worker.log();
        (log.contains("all of the input was added") && log.contains("dead-lettered")).then_some(())
    })
    .await;
    let address = server(&worker).await;
    worker.signal(Signal::HUP);
    assert_eq!(worker.exit(SOON).await, 0, "{}", worker.log());
    let told = "the redis-server of this run ends, and with it 1 undone entry and 1 dead letter";
    assert!(worker.log().contains(told), "{}", worker.log());
    is_gone(&address).await;
}
