//! The harness: servers, workers and handlers that a test starts, breaks and asks.
//!
//! Everything here cleans up after itself when dropped, waits on conditions with a deadline, and prints the last log
//! lines when the test around it fails. Read `bench.rs` first: it is what a test holds.

mod bench;
mod db;
mod http;
mod journal;
mod process;
mod redis;
mod scratch;
mod stage;
mod tests;
mod wait;
mod worker;

use std::io::Write;

pub(crate) use bench::Bench;
pub(crate) use db::{Db, DeadLetter};
pub(crate) use http::HttpHandler;
pub(crate) use journal::{Journal, What};
pub(crate) use redis::{Redis, free_port};
pub(crate) use stage::StageFile;
pub(crate) use wait::{Stopwatch, eventually, for_the_time_of_the_fault, holds_for, in_time};
pub(crate) use worker::{Summary, Worker};

/// Held by tests that load both cores, one at a time.
static WHOLE_MACHINE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Waits until no other test loads the machine.
pub(crate) async fn whole_machine() -> tokio::sync::MutexGuard<'static, ()> {
    WHOLE_MACHINE.lock().await
}

/// Prints the figures of a passed test, one line, also where the test runner captures output.
pub(crate) fn figures(line: &str) {
    writeln!(std::io::stderr(), "figures: {line}").expect("stderr is open");
}
