//! The connection: an address without a server, a wrong password, restarts, cut connections, killed workers.

use std::time::Duration;

use serde_json::json;

use crate::faults::SOON;
use crate::support::{Bench, Redis, eventually, for_the_time_of_the_fault};

#[tokio::test]
async fn worker_waits_for_a_redis_that_is_not_there_yet() {
    let mut bench = Bench::on(Redis::not_yet(&[]));
    let stage = bench.scripted("ok");
    let mut worker = bench.worker(&stage);
    eventually("the log names the reason", SOON, async || {
        worker.log().contains("ConnectionRefused").then_some(())
    })
    .await;
    for_the_time_of_the_fault(Duration::from_secs(3)).await;
    worker.did_not_spin();
    bench.redis.begin().await;
    bench.add(&stage, "late", "ok").await;
    bench.started(1, SOON).await;
    bench.settled(&stage, SOON).await;
    assert_eq!(worker.drain(SOON).await.done, 1);
}

#[tokio::test]
async fn wrong_password_is_named_never_shown_and_heals() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    bench.add(&stage, "locked", "ok").await;
    let rule = [
        "ACL", "SETUSER", "worker", "on", ">right", "~*", "&*", "+@all",
    ];
    let _ok: String = bench.db().call(&rule).await;
    let url = bench.redis.url_as("worker", "wr0ng-s3cret");
    let mut worker = bench.worker_at(&stage, &url, &[]);
    eventually("the log names the reason", SOON, async || {
        worker.log().contains("AuthenticationFailed").then_some(())
    })
    .await;
    assert!(worker.is_running(), "a rotation may be under way");
    assert!(
        !worker.log().contains("wr0ng-s3cret"),
        "the password is in the log"
    );

    let rule = ["ACL", "SETUSER", "worker", ">wr0ng-s3cret"];
    let _ok: String = bench.db().call(&rule).await;
    bench.settled(&stage, SOON).await;
    assert_eq!(worker.drain(SOON).await.done, 1);
    assert!(
        !worker.log().contains("wr0ng-s3cret"),
        "the password is in the log"
    );
}

#[tokio::test]
async fn connections_cut_again_and_again_start_nothing_twice() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("idempotency.keyFields", json!(["key"]))
        .set("output.stream", "mails");
    bench.add_many(&stage, "entry", 150, "sleep:100;emit").await;
    let workers = [bench.worker(&stage), bench.worker(&stage)];
    bench.started(10, SOON).await;
    for _ in 0..5 {
        for_the_time_of_the_fault(Duration::from_millis(300)).await;
        let _killed: u64 = bench.db().call(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    }
    bench.settled(&stage, SOON).await;
    drop(workers);
    assert_eq!(bench.db().size("mails").await, 150);
    assert_eq!(bench.journal().starts(), 150);
}

#[tokio::test]
async fn redis_restarted_in_the_middle_of_a_batch_loses_nothing() {
    let redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let mut bench = Bench::on(redis);
    let stage = bench
        .scripted("ok")
        .set("idempotency.keyFields", json!(["key"]))
        .set("retry.initialDelay", "200ms")
        .set("output.stream", "mails");
    let steps = "rand:200;error:Down|rand:200;emit";
    bench.add_many(&stage, "entry", 150, steps).await;
    let workers = [bench.worker(&stage), bench.worker(&stage)];
    for started in [20, 60, 100] {
        bench.started(started, SOON).await;
        bench.redis.kill().await;
        bench.redis.begin().await;
    }
    bench.settled(&stage, 2 * SOON).await;
    drop(workers);
    let counts = bench.db().count_by_key("mails").await;
    assert_eq!(counts.len(), 150);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

#[tokio::test]
async fn workers_killed_in_the_middle_of_a_batch_lose_nothing() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("delivery.visibilityTimeout", "2s")
        .set("delivery.concurrency", 8)
        .set("delivery.maxDeliveries", 100)
        .set("idempotency.keyFields", json!(["key"]))
        .set("output.stream", "mails");
    bench.add_many(&stage, "entry", 200, "rand:100;emit").await;
    for started in [20, 60, 100] {
        let mut worker = bench.worker(&stage);
        bench.started(started, SOON).await;
        worker.kill().await;
    }
    bench.run_dry(&stage, 2 * SOON).await;
    let counts = bench.db().count_by_key("mails").await;
    assert_eq!(counts.len(), 200);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    assert!(bench.dead_letters(&stage).await.is_empty());
}
