//! What a running worker tells: `/livez`, `/readyz`, `/metrics`, and its report in Redis.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::engine::SOON;
use crate::support::{Bench, Redis, eventually, free_port};

/// A GET: status and body; `None` while nobody listens.
async fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n")?.1.to_owned();
    Some((status, body))
}

#[tokio::test]
async fn worker_is_live_at_once_and_ready_when_it_has_reached_redis() {
    let mut bench = Bench::on(Redis::not_yet(&[]));
    let stage = bench.scripted("ok");
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let _worker = bench.worker_with(&stage, &["--listen", &listen]);
    let status = async |path: &str| get(port, path).await.map(|(status, _)| status);
    eventually("it is live", SOON, async || {
        (status("/livez").await == Some(200)).then_some(())
    })
    .await;
    assert_eq!(status("/readyz").await, Some(503));

    bench.redis.begin().await;
    eventually("it is ready", SOON, async || {
        (status("/readyz").await == Some(200)).then_some(())
    })
    .await;
    // An outage must not block the drain of a node.
    bench.redis.kill().await;
    assert_eq!(status("/readyz").await, Some(200));
}

#[tokio::test]
async fn metrics_name_the_stage_and_count_what_was_done() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("retry.maxAttempts", 1);
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    bench.add_many(&stage, "entry", 20, "ok").await;
    bench.add(&stage, "bad", "error:Down").await;
    let _worker = bench.worker_with(&stage, &["--listen", &listen]);
    bench.settled(&stage, SOON).await;

    let (status, text) = get(port, "/metrics").await.expect("it listens");
    assert_eq!(status, 200);
    let of = |name: &str, label: &str| -> f64 {
        text.lines()
            .filter(|line| line.starts_with(name) && line.contains(label))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    let done = of("streamstage_worker_entries_total", "outcome=\"done\"")
        + of("streamstage_worker_entries_total", "outcome=\"Done\"");
    assert!((done - 20.0).abs() < 0.5, "{text}");
    assert!(text.contains("stage_namespace=\"shop\""), "{text}");
    for name in [
        "streamstage_worker_settlements_total",
        "streamstage_worker_handler_seconds",
        "streamstage_worker_wait_seconds",
        "streamstage_worker_slots",
        "streamstage_worker_busy_slots",
        "streamstage_worker_held_entries",
        "streamstage_worker_commit_seconds",
        "streamstage_worker_breaker_open",
    ] {
        assert!(text.contains(name), "{name} is missing in {text}");
    }
}

#[tokio::test]
async fn report_says_what_the_worker_holds() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.concurrency", 4)
        .set("delivery.visibilityTimeout", "3s");
    bench.add_many(&stage, "held", 3, "gate:open").await;
    let _worker = bench.worker(&stage);
    let report: Value = eventually("a report of three held entries", SOON, async || {
        let mut reports = bench.reports(&stage).await.into_iter();
        reports.find(|report| report["held"] == 3)
    })
    .await;
    assert_eq!(report["v"], 1);
    assert_eq!(report["slots"], 4);
    assert_eq!(report["visibilityMs"], 3_000);
    assert_eq!(report["breaker"]["open"], false);
    assert_eq!(report["refused"], Value::Array(Vec::new()));
    assert!(
        report["at"].is_number() && report["version"].is_string(),
        "{report}"
    );
    eventually("the oldest gets older", SOON, async || {
        let reports = bench.reports(&stage).await;
        (reports[0]["oldestHeldMs"].as_u64()? > 1_000).then_some(())
    })
    .await;
    bench.open("open");
    bench.settled(&stage, SOON).await;
}
