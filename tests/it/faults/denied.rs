//! A user that lacks one command: the reason has a name, nothing is lost, and a grant heals it without a restart.

use crate::faults::SOON;
use crate::support::{Bench, StageFile, Worker, eventually};

/// Every command the engine may send by itself or from a script.
const COMMANDS: [&str; 14] = [
    "xreadgroup",
    "xack",
    "xadd",
    "xdel",
    "xclaim",
    "xpending",
    "xgroup",
    "evalsha",
    "zadd",
    "zrem",
    "hset",
    "time",
    "info",
    "client",
];

struct Denied {
    command: &'static str,
    stage: StageFile,
    worker: Worker,
}

async fn permit(bench: &Bench, user: &str, rules: &[&str]) {
    let command = [&["ACL", "SETUSER", user], rules].concat();
    let _ok: String = bench.db().call(&command).await;
}

/// A stage of its own, and a worker whose user lacks `command`.
async fn start(bench: &Bench, command: &'static str) -> Denied {
    let denied = format!("-{command}");
    permit(bench, command, &["on", ">pw", "~*", "&*", "+@all", &denied]).await;
    let stage = bench
        .scripted("ok")
        .named(&format!("lacks-{command}"), &format!("s-{command}"))
        .set("retry.initialDelay", "200ms")
        .set("retry.maxDelay", "1s")
        .set("delivery.concurrency", 2);
    for (key, steps) in [
        ("good", "ok"),
        ("healing", "error:Down|ok"),
        ("bad", "reject:Wrong"),
    ] {
        bench.add(&stage, &format!("{key}-{command}"), steps).await;
    }
    let worker = bench.worker_at(&stage, &bench.redis.url_as(command, "pw"), &[]);
    Denied {
        command,
        stage,
        worker,
    }
}

/// It says what it may not do, or does everything without it.
async fn says_so_or_does_without(bench: &Bench, denied: &mut Denied) {
    eventually(
        &format!("{} is named, or not missed", denied.command),
        SOON,
        async || {
            let log = denied.worker.log();
            let named =
                log.contains("PermissionDenied") && log.to_lowercase().contains(denied.command);
            let starts = bench
                .journal()
                .starts_of(&format!("healing-{}", denied.command))
                .len();
            (named || (starts == 2 && bench.pending(&denied.stage).await == 0)).then_some(())
        },
    )
    .await;
    let lines = denied.worker.log().lines().count();
    assert!(
        lines < 100,
        "{} without {}: it spins",
        lines,
        denied.command
    );
    assert!(
        denied.worker.is_running(),
        "without {} the worker ended",
        denied.command
    );
}

#[tokio::test]
async fn user_that_lacks_one_command_is_told_which_and_a_grant_heals_it() {
    let _machine = crate::support::whole_machine().await;
    let bench = Bench::new().await;
    for commands in COMMANDS.chunks(5) {
        let mut all = Vec::new();
        for command in commands {
            all.push(start(&bench, command).await);
        }
        for denied in &mut all {
            says_so_or_does_without(&bench, denied).await;
            permit(&bench, denied.command, &["+@all"]).await;
        }
        for denied in &mut all {
            bench.settled(&denied.stage, SOON).await;
            assert_eq!(bench.dead_letters(&denied.stage).await.len(), 1);
            for key in ["good", "healing", "bad"] {
                let key = format!("{key}-{}", denied.command);
                let expected = 1 + usize::from(key.starts_with("healing"));
                assert_eq!(bench.journal().starts_of(&key).len(), expected, "{key}");
            }
        }
    }
}

#[tokio::test]
async fn dead_letter_stream_out_of_reach_is_reported_and_heals() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("deadLetter.stream", "graveyard");
    permit(&bench, "narrow", &["on", ">pw", "~*orders*", "&*", "+@all"]).await;
    bench.add(&stage, "bad", "reject:Wrong").await;
    bench.add_many(&stage, "good", 5, "ok").await;
    let url = bench.redis.url_as("narrow", "pw");
    let _worker = bench.worker_at(&stage, &url, &[]);
    eventually("the report names key and reason", SOON, async || {
        let reports = bench.reports(&stage).await;
        let refused = reports.first()?["refused"].as_array()?.first()?.clone();
        let named = refused["key"] == "graveyard" && refused["reason"] == "PermissionDenied";
        (named && bench.pending(&stage).await == 1).then_some(())
    })
    .await;
    permit(&bench, "narrow", &["~graveyard"]).await;
    bench.settled(&stage, SOON).await;
    assert_eq!(bench.db().size("graveyard").await, 1);
}
