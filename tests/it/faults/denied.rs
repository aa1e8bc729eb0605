//! A user that lacks one command: the reason has a name, nothing is lost, and a grant heals it without a restart.

use std::time::Duration;

use crate::faults::SOON;
use crate::support::{Bench, StageFile, Worker, eventually, for_the_time_of_the_fault, in_time};

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

/// What three entries come to: one is done, one is done at its second start, one is rejected.
const ENTRIES: [(&str, &str, usize); 3] = [
    ("good", "ok", 1),
    ("healing", "error:Down|ok", 2),
    ("bad", "reject:Wrong", 1),
];

struct Denied {
    command: &'static str,
    user: String,
    stage: StageFile,
    worker: Worker,
}

async fn permit(bench: &Bench, user: &str, rules: &[&str]) {
    let command = [&["ACL", "SETUSER", user], rules].concat();
    let _ok: String = bench.db().call(&command).await;
}

/// A stage of its own, and a worker whose user lacks `command`.
async fn start(bench: &Bench, command: &'static str, number: usize) -> Denied {
    let (user, denied) = (format!("user-{number}"), format!("-{command}"));
    permit(bench, &user, &["on", ">pw", "~*", "&*", "+@all", &denied]).await;
    let stage = bench
        .scripted("ok")
        .named(&format!("stage-{number}"), &format!("stream-{number}"))
        .set("retry.initialDelay", "200ms")
        .set("retry.maxDelay", "1s")
        .set("delivery.concurrency", 2);
    for (key, steps, _) in ENTRIES {
        bench.add(&stage, &format!("{key}-{command}"), steps).await;
    }
    let worker = bench.worker_at(&stage, &bench.redis.url_as(&user, "pw"), &[]);
    Denied {
        command,
        user,
        stage,
        worker,
    }
}

impl Denied {
    fn starts(&self, bench: &Bench, key: &str) -> usize {
        let key = format!("{key}-{}", self.command);
        bench.journal().starts_of(&key).len()
    }

    /// It says that it may not do something, or does everything without it.
    async fn says_so_or_does_without(&self, bench: &Bench) {
        let what = format!("{} is named, or not missed", self.command);
        eventually(&what, SOON, async || {
            let named = self.worker.log().contains("PermissionDenied");
            let done = self.starts(bench, "healing") == 2 && bench.pending(&self.stage).await == 0;
            (named || done).then_some(())
        })
        .await;
    }

    /// What is wrong in the end; nothing, if all went well.
    async fn complaints(&mut self, bench: &Bench) -> Vec<String> {
        let settled = in_time(SOON, async || {
            bench.is_settled(&self.stage).await.then_some(())
        });
        let unsettled = usize::from(settled.await.is_none());
        let mut complaints = Vec::new();
        let mut expect = |what: &str, found: usize, at_most: usize| {
            if found > at_most {
                complaints.push(format!("{}: {found} {what}", self.command));
            }
        };
        expect("stages that never settle", unsettled, 0);
        expect("lines of log", self.worker.log().lines().count(), 60);
        expect("ends", usize::from(!self.worker.is_running()), 0);
        let dead = bench.dead_letters(&self.stage).await.len();
        expect("dead letters", dead, 1);
        for (key, _, starts) in ENTRIES {
            let found = self.starts(bench, key);
            expect(&format!("starts of {key}"), found, starts);
        }
        complaints
    }
}

#[tokio::test]
async fn user_that_lacks_one_command_is_told_so_and_a_grant_heals_it() {
    let _machine = crate::support::whole_machine().await;
    let bench = Bench::new().await;
    let mut all = Vec::new();
    for (number, command) in COMMANDS.into_iter().enumerate() {
        all.push(start(&bench, command, number).await);
    }
    for denied in &all {
        denied.says_so_or_does_without(&bench).await;
    }
    for_the_time_of_the_fault(Duration::from_secs(4)).await;
    let mut complaints = Vec::new();
    for denied in &mut all {
        permit(&bench, &denied.user, &["+@all"]).await;
        complaints.extend(denied.complaints(&bench).await);
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
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
