//! The handlers against real sockets and real children, most of which misbehave.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use streamstage::clock::Clock;
use streamstage::engine::handler::{Handler, Start};
use streamstage::engine::outcome::{Failure, Outcome};
use streamstage::streams::{Entry, EntryId, IdempotencyKey, Meta, Place};
use tokio_util::sync::CancellationToken;

mod exec;
mod http;

/// Longer than anything here takes; only tests of the limit use another.
const LONG: Duration = Duration::from_secs(60);

const SHORT: Duration = Duration::from_millis(200);

/// The origin id of every entry here.
const ID: &str = "1700000000123-4";

fn start(fields: &[(&str, &str)]) -> Start {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Start {
        entry: Arc::new(Entry {
            place: Place::source(EntryId::new(1_700_000_000_123, 4)),
            fields: fields
                .iter()
                .map(|(name, value)| (bytes(name), bytes(value)))
                .collect(),
            meta: Meta::fresh(EntryId::new(1_700_000_000_123, 4), 0),
        }),
        key: IdempotencyKey::from_bytes([0xab; 16]),
        attempt: 1,
        deliveries: 1,
        deadline: "2026-01-02T03:04:05Z".parse().unwrap(),
        timeout: LONG,
        fresh: false,
    }
}

fn fresh(fields: &[(&str, &str)]) -> Start {
    Start {
        fresh: true,
        ..start(fields)
    }
}

fn within(timeout: Duration, fields: &[(&str, &str)]) -> Start {
    Start {
        timeout,
        ..start(fields)
    }
}

async fn call(handler: &impl Handler, start: Start) -> Outcome {
    handler.call(start, CancellationToken::new()).await
}

fn done() -> Outcome {
    Outcome::Done { outputs: vec![] }
}

/// The outcome in short: its class, and the type of its error.
fn class(outcome: &Outcome) -> String {
    let with = |class: &str, error: &Failure| format!("{class} {}", error.error_type);
    match outcome {
        Outcome::Done { outputs } => format!("Done {}", outputs.len()),
        Outcome::Retry { error, .. } => with("Retry", error),
        Outcome::Reject { error } => with("Reject", error),
        Outcome::Busy { error, .. } => with("Busy", error),
        Outcome::Crashed { error, alone } => {
            with(if *alone { "CrashedAlone" } else { "Crashed" }, error)
        }
        Outcome::Unavailable { reason } => format!("Unavailable {}", reason.as_str()),
        Outcome::Cancelled => "Cancelled".to_owned(),
    }
}

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Logs are taken down until the guard is dropped.
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || log.clone());
        tracing::subscriber::set_default(subscriber.with_ansi(false).finish())
    }

    /// How many lines hold `text`.
    fn count(&self, text: &str) -> usize {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until `is_so`, and fails if that takes too long.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !is_so() {
        assert!(clock.now() < LONG, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
