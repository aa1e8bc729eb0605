//! A worker with nothing to do is cheap for the server.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{Bench, figures};

const WATCHED_FOR: Duration = Duration::from_secs(30);

/// Commands that clients send, as MONITOR shows them; those that a script runs are marked `lua` and cost no round trip.
async fn commands_sent(port: u16, watched_for: Duration) -> Vec<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("connects");
    stream.write_all(b"MONITOR\r\n").await.expect("writes");
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(
        lines.next_line().await.expect("reads").as_deref(),
        Some("+OK")
    );
    let mut sent = Vec::new();
    let watching = async {
        while let Some(line) = lines.next_line().await.expect("reads") {
            if !line.contains(" lua] ") {
                sent.push(line);
            }
        }
    };
    assert!(
        tokio::time::timeout(watched_for, watching).await.is_err(),
        "MONITOR went on"
    );
    sent
}

#[tokio::test]
async fn idle_worker_sends_at_most_two_commands_per_second() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "60s");
    bench.add(&stage, "only", "ok").await;
    let _worker = bench.worker(&stage);
    bench.settled(&stage, Duration::from_secs(20)).await;
    bench.reported(&stage, 1, Duration::from_secs(20)).await;

    let sent = commands_sent(bench.redis.port(), WATCHED_FOR).await;
    let seconds = WATCHED_FOR.as_secs();
    figures(&format!(
        "idle worker: {} commands in {seconds} s",
        sent.len()
    ));
    assert!(!sent.is_empty(), "the worker is alive");
    assert!(sent.len() as u64 <= 2 * seconds, "{sent:#?}");
}
