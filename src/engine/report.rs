//! A worker's counts, and the report made of them for `P:workers`. Pure.
//!
//! The report is the operator's only view of a worker: its liveness, its load, and what it waits for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::core::SettledKind;
use super::outcome::Outcome;
use super::session::SessionEnd;
use crate::streams::Refusal;

/// The version this build writes.
const VERSION: u32 = 1;

/// What happened in this process so far.
#[derive(Clone, Debug, Default)]
pub struct Tallies {
    outcomes: BTreeMap<&'static str, u64>,
    settled: BTreeMap<SettledKind, u64>,
    sessions: BTreeMap<SessionEnd, u64>,
    /// Entries claimed from silent workers.
    pub reclaimed: u64,
    /// Entries trimmed before anybody was done with them.
    pub lost: u64,
    /// Entries moved from `P:delayed` to `P:retry`.
    pub promoted: u64,
    /// Entries taken from this worker while it held them.
    pub leases_lost: u64,
    /// Renewals that came late.
    pub leases_late: u64,
    handler_time: Duration,
    busy_time: Duration,
    busy: usize,
    busy_since: Duration,
}

impl Tallies {
    /// Nothing happened yet.
    pub fn starting_at(now: Duration) -> Self {
        Self {
            busy_since: now,
            ..Self::default()
        }
    }

    /// Counts a run that ended after `took`; gives its outcome's name and its error's type.
    pub fn ended(&mut self, outcome: &Outcome, took: Duration) -> (&'static str, String) {
        let (name, error_type) = name_of(outcome);
        *self.outcomes.entry(name).or_default() += 1;
        self.handler_time += took;
        (name, error_type)
    }

    /// Counts an entry that was settled.
    pub fn settled(&mut self, kind: SettledKind) {
        *self.settled.entry(kind).or_default() += 1;
    }

    /// Counts a session that ended.
    pub fn session_ended(&mut self, end: SessionEnd) {
        *self.sessions.entry(end).or_default() += 1;
    }

    /// From `now` on, so many slots are busy.
    pub fn busy_slots(&mut self, busy: usize, now: Duration) {
        let slots = u32::try_from(self.busy).unwrap_or(u32::MAX);
        self.busy_time += now.saturating_sub(self.busy_since) * slots;
        self.busy = busy;
        self.busy_since = now;
    }

    /// How many entries ended in this way.
    pub fn settled_as(&self, kind: SettledKind) -> u64 {
        self.settled.get(&kind).copied().unwrap_or(0)
    }

    /// Slots the handler has now.
    pub fn busy_now(&self) -> usize {
        self.busy
    }
}

/// An outcome's name and its error's type.
fn name_of(outcome: &Outcome) -> (&'static str, String) {
    match outcome {
        Outcome::Done { .. } => ("Done", String::new()),
        Outcome::Retry { error, .. } => ("Retry", error.error_type.clone()),
        Outcome::Reject { error } => ("Reject", error.error_type.clone()),
        Outcome::Busy { error, .. } => ("Busy", error.error_type.clone()),
        Outcome::Crashed { error, .. } => ("Crashed", error.error_type.clone()),
        Outcome::Unavailable { reason } => ("Unavailable", reason.as_str().to_owned()),
        Outcome::Cancelled => ("Cancelled", String::new()),
    }
}

/// One worker's report. The server adds `at`, its own time in milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of this form.
    pub v: u32,
    /// The engine's version.
    pub version: String,
    /// The stage's visibility timeout as this worker knows it.
    pub visibility_ms: u64,
    /// Handlers at once.
    pub slots: usize,
    /// Slots the handler has now.
    pub busy: usize,
    /// Busy slots, summed over time.
    pub busy_slot_seconds: f64,
    /// Runs, and how long they took together.
    pub runs: u64,
    /// Seconds that all runs took together.
    pub handler_seconds: f64,
    /// Runs by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Entries by settlement.
    pub settled: BTreeMap<String, u64>,
    /// Entries held.
    pub held: usize,
    /// The longest time that an entry has been held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_held_ms: Option<u64>,
    /// The longest time that an entry has been running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_running_ms: Option<u64>,
    /// Entries claimed from silent workers.
    pub reclaimed: u64,
    /// Entries trimmed before anybody was done with them, as seen by this worker.
    pub lost: u64,
    /// Entries taken from this worker while it held them.
    pub leases_lost: u64,
    /// Renewals that came late.
    pub leases_late: u64,
    /// Whether the handler can be reached.
    pub breaker: BreakerReport,
    /// Settlements that the server refuses, by key and reason.
    pub refused: Vec<RefusedReport>,
    /// Sessions by how they ended.
    pub sessions: BTreeMap<String, u64>,
    /// The policy that may evict what a stage lives from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsafe_eviction: Option<String>,
}

/// Whether the handler can be reached, and whether everything fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerReport {
    /// It cannot.
    pub open: bool,
    /// Why, or `FailingAll`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For how long it could not be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// One refused settlement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedReport {
    /// The key and the reason.
    #[serde(flatten)]
    pub refusal: Refusal,
    /// What was refused: `Commit`, `RetryAfter`, `DeadLetter`.
    pub settlement: String,
    /// Entries that wait for it.
    pub entries: usize,
    /// For how long the oldest of them has waited.
    pub for_ms: u64,
}

impl Report {
    /// A report of these counts; the caller adds what only the core knows.
    pub fn new(tallies: &Tallies, visibility: Duration, slots: usize) -> Self {
        let runs = tallies.outcomes.values().sum();
        let names = |map: &BTreeMap<&'static str, u64>| {
            map.iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        Self {
            v: VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            visibility_ms: millis(visibility),
            slots,
            busy: tallies.busy,
            busy_slot_seconds: tallies.busy_time.as_secs_f64(),
            runs,
            handler_seconds: tallies.handler_time.as_secs_f64(),
            outcomes: names(&tallies.outcomes),
            settled: tallies
                .settled
                .iter()
                .map(|(k, n)| (k.as_str().to_owned(), *n))
                .collect(),
            held: 0,
            oldest_held_ms: None,
            oldest_running_ms: None,
            reclaimed: tallies.reclaimed,
            lost: tallies.lost,
            leases_lost: tallies.leases_lost,
            leases_late: tallies.leases_late,
            breaker: BreakerReport::default(),
            refused: Vec::new(),
            sessions: tallies
                .sessions
                .iter()
                .map(|(k, n)| (k.as_str().to_owned(), *n))
                .collect(),
            unsafe_eviction: None,
        }
    }

    /// The JSON object for `P:workers`.
    pub fn render(&self) -> String {
        // A struct of numbers and strings has no way to fail.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
