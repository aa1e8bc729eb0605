//! What a worker shows of itself: log lines, metrics, conditions, readiness. It changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::core::{Core, Fact, SettledKind};
use super::report::millis;
use super::session::SessionEnd;
use crate::metrics::WorkerMetrics;
use crate::streams::{Opened, Place, Refusal};

/// The loop has come round within this time, or it hangs.
const LOOP_HANGS_AFTER: Duration = Duration::from_secs(60);

/// What probes ask about a worker; shared with the admin server.
#[derive(Debug, Default)]
pub struct Health {
    reached: AtomicBool,
    turned_at_ms: AtomicU64,
}

impl Health {
    /// Redis was reached once; stays true through later outages, so that none blocks the drain of a node.
    pub fn is_ready(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// The loop has come round lately, at `now` of the worker's clock.
    pub fn is_live(&self, now: Duration) -> bool {
        let turned_at = Duration::from_millis(self.turned_at_ms.load(Ordering::Relaxed));
        now.saturating_sub(turned_at) < LOOP_HANGS_AFTER
    }
}

/// The eyes of the loop.
#[derive(Debug)]
pub struct Observer {
    metrics: WorkerMetrics,
    health: Arc<Health>,
    slots: usize,
    blocked: bool,
    last_end: Option<SessionEnd>,
    /// The order to stop at once was carried out.
    pub(super) aborting: bool,
    /// A task of the engine panicked.
    pub(super) broken: bool,
}

impl Observer {
    /// An observer that writes to these.
    pub fn new(metrics: WorkerMetrics, health: Arc<Health>, slots: usize) -> Self {
        Self {
            metrics,
            health,
            slots,
            blocked: false,
            last_end: None,
            aborting: false,
            broken: false,
        }
    }

    /// A batch of settlements came back.
    pub(super) fn committed(&self, entries: usize, took: Duration) {
        self.metrics.committed(entries, took);
    }

    /// Shows what happened in this turn of the loop.
    pub(super) fn observe(&mut self, core: &mut Core, now: Duration) {
        self.health
            .turned_at_ms
            .store(millis(now), Ordering::Relaxed);
        for fact in core.take_facts() {
            self.show(&fact);
        }
        self.metrics
            .load(self.slots, core.tallies().busy_now(), core.held_entries());
    }

    fn show(&mut self, fact: &Fact) {
        match fact {
            Fact::Ended {
                place,
                outcome,
                took,
                error_type,
            } => {
                self.metrics.ended(outcome, *took);
                tracing::debug!(entry = %place, outcome, took_ms = millis(*took), error_type, "run ended");
            }
            Fact::Settled { place, kind } => self.show_settled(place, *kind),
            Fact::Waited(wait) => self.metrics.waited(*wait),
            Fact::Reclaimed(entries) => {
                self.metrics.reclaimed(*entries);
                tracing::info!(entries, "claimed entries of a silent worker");
            }
            Fact::Lost(entries) => {
                self.metrics.lost(*entries);
                condition("EntriesLost", "True", "Trimmed");
                tracing::warn!(
                    entries,
                    "entries were trimmed from the stream before they were done"
                );
            }
            Fact::Promoted(entries) => {
                self.metrics.promoted(*entries);
                tracing::debug!(entries, "delayed entries are due");
            }
            Fact::LeaseLost(place) => {
                self.metrics.lease_lost();
                tracing::warn!(entry = %place, "the entry was taken by another worker: its run here is of no effect");
            }
            Fact::LeaseLate => {
                self.metrics.lease_late();
                tracing::warn!(
                    "a lease was renewed late: is the visibility timeout too low for this machine?"
                );
            }
            Fact::Refused { place, refusal } => self.show_refused(place, refusal),
            Fact::Unblocked => {
                self.blocked = false;
                condition("SettlementBlocked", "False", "Settled");
            }
            Fact::SessionBegan(opened) => self.show_session(opened),
            Fact::SessionEnded { end, detail, wait } => self.show_end(*end, detail, *wait),
            Fact::BreakerOpened(reason) => {
                self.metrics.breaker(true);
                condition("HandlerUnavailable", "True", reason.as_str());
            }
            Fact::BreakerClosed => {
                self.metrics.breaker(false);
                condition("HandlerUnavailable", "False", "Reachable");
            }
            Fact::FailingAll(true) => condition("HandlerUnavailable", "True", "FailingAll"),
            Fact::FailingAll(false) => condition("HandlerUnavailable", "False", "Succeeding"),
        }
    }

    fn show_refused(&mut self, place: &Place, refusal: &Refusal) {
        let key = refusal.key.as_str();
        let reason = format!("{:?}", refusal.reason);
        if !self.blocked {
            condition("SettlementBlocked", "True", &reason);
        }
        self.blocked = true;
        tracing::warn!(entry = %place, key, reason, "the server refuses a settlement: the entry is kept and tried again");
    }

    fn show_settled(&self, place: &Place, kind: SettledKind) {
        self.metrics.settled(kind.as_str());
        match kind {
            SettledKind::DeadLettered => tracing::warn!(entry = %place, "dead-lettered"),
            SettledKind::Done
            | SettledKind::Skipped
            | SettledKind::Retried
            | SettledKind::Released => tracing::debug!(entry = %place, settled = kind.as_str()),
        }
    }

    fn show_session(&mut self, opened: &Opened) {
        self.metrics.session_began();
        self.health.reached.store(true, Ordering::Relaxed);
        condition("RedisAvailable", "True", "Connected");
        tracing::info!(server = opened.server, "connected to Redis");
        if let Some(position) = opened.group_created_at {
            condition("ConsumerGroupReady", "True", "GroupCreated");
            tracing::info!(%position, "created the consumer group");
        }
        if self.last_end.take().is_none() {
            for warning in &opened.warnings {
                tracing::warn!("{warning}");
            }
            if let Some(policy) = &opened.unsafe_eviction {
                condition("UnsafeEviction", "True", policy);
            }
        }
    }

    /// One line a reason: an outage of an hour is not an hour of lines.
    fn show_end(&mut self, end: SessionEnd, detail: &str, wait: Duration) {
        self.metrics.session_ended(end.as_str());
        if self.last_end.replace(end) == Some(end) {
            tracing::debug!(
                reason = end.as_str(),
                wait_ms = millis(wait),
                "still no session with Redis: {detail}"
            );
            return;
        }
        let kind = match end {
            SessionEnd::GroupMissing => "ConsumerGroupReady",
            SessionEnd::Shutdown
            | SessionEnd::Disconnected
            | SessionEnd::ConnectionRefused
            | SessionEnd::DnsFailure
            | SessionEnd::Timeout
            | SessionEnd::AuthenticationFailed
            | SessionEnd::ReadOnly
            | SessionEnd::Denied
            | SessionEnd::WrongType
            | SessionEnd::Loading
            | SessionEnd::Full
            | SessionEnd::Protocol => "RedisAvailable",
        };
        condition(kind, "False", end.as_str());
        tracing::warn!(reason = end.as_str(), "no session with Redis: {detail}");
    }
}

/// A condition, under the name that a StreamStage's status gives it.
fn condition(kind: &str, status: &str, reason: &str) {
    tracing::info!(condition = kind, status, reason, "condition changed");
}
