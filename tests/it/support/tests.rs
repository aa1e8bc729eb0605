//! The harness holds what it promises, so that a failing test speaks about the engine.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Bench, HttpHandler, Redis, What, eventually};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn redis_comes_back_at_its_address_with_what_it_had() {
    let mut redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let _ok: String = redis.db().call(&["SET", "kept", "1"]).await;
    redis.kill().await;
    assert!(redis.db().try_call::<String>(&["PING"]).await.is_err());
    redis.begin().await;
    assert_eq!(redis.db().call::<String>(&["GET", "kept"]).await, "1");
}

#[tokio::test]
async fn frozen_redis_answers_when_it_is_thawed() {
    let redis = Redis::start().await;
    let db = redis.db();
    redis.freeze();
    let asked = tokio::spawn(async move { db.call::<String>(&["PING"]).await });
    redis.thaw();
    assert_eq!(asked.await.expect("it answers"), "PONG");
}

/// Runs the scripted handler on these lines: what it printed.
fn scripted(bench: &Bench, lines: &str) -> Vec<String> {
    let mut child = Command::new("perl")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/handlers/scripted.pl"
        ))
        .arg(bench.file(""))
        .arg("ok")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("perl runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(lines.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(ToOwned::to_owned).collect()
}

fn line(id: u32, attempt: u32, steps: &str) -> String {
    format!(
        "{{\"id\":\"{id}-0\",\"stage\":\"mailer\",\"attempt\":{attempt},\"deliveries\":1,\
         \"idempotencyKey\":\"0\",\"fields\":{{\"do\":\"{steps}\",\"key\":\"k{id}\"}}}}\n"
    )
}

#[tokio::test]
async fn scripted_handler_does_what_each_entry_says_and_writes_it_down() {
    let bench = Bench::new().await;
    bench.open("there");
    let lines = [
        line(1, 1, "rand:5;emit"),
        line(2, 1, "error:Down|ok"),
        line(3, 2, "error:Down|ok"),
        line(4, 1, "skip:there;error:Down"),
        line(5, 1, "busy:2"),
        line(6, 1, "junk"),
        line(7, 1, "exit:1"),
        line(8, 1, "ok"),
    ];
    let answers = scripted(&bench, &lines.concat());
    assert_eq!(
        answers[0],
        r#"{"id":"1-0","ok":true,"outputs":[{"key":"k1"}]}"#
    );
    let failed = r#"{"id":"2-0","error":{"type":"Down","message":"as the entry asked"}}"#;
    assert_eq!(answers[1], failed);
    assert_eq!(answers[2], r#"{"id":"3-0","ok":true}"#);
    assert_eq!(answers[3], r#"{"id":"4-0","ok":true}"#);
    assert!(answers[4].contains(r#""retryAfter":2"#), "{answers:?}");
    assert_eq!(answers[5..], ["this is no answer"]);

    let journal = bench.journal();
    assert_eq!(journal.starts(), 7, "the seventh killed it");
    assert_eq!(journal.lines(What::Ok).count(), 3);
    assert_eq!(
        journal.running(),
        2,
        "the one with junk and the one that exited"
    );
    let third = journal.starts_of("k3");
    assert_eq!((third[0].id.as_str(), third[0].attempt), ("3-0", 2));
}

async fn post(port: u16, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let length = body.len();
    let head = format!(
        "POST /handle HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.lines().next().map(ToOwned::to_owned)
}

#[tokio::test]
async fn http_handler_dies_with_what_it_holds_and_comes_back() {
    let server = HttpHandler::start();
    let port = server.port();
    let ok = || async { post(port, r#"{"key":"a"}"#).await };
    let answer = eventually("it listens", SOON, async || ok().await).await;
    assert_eq!(answer, "HTTP/1.1 200 OK");
    let held = tokio::spawn(async move { post(port, r#"{"key":"b","do":"sleep:60000"}"#).await });
    eventually("it holds one", SOON, async || {
        server.requests().iter().any(|r| r.key == "b").then_some(())
    })
    .await;
    assert_eq!(post(port, r#"{"key":"c","do":"die"}"#).await, None);
    assert_eq!(
        held.await.expect("it ended"),
        None,
        "what it held broke too"
    );
    assert_eq!(server.deaths(), 1);
    eventually("it comes back", SOON, async || ok().await).await;
}
