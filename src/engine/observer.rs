//! What a worker shows of itself: log lines, metrics, conditions, readiness. It changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::core::{Core, Fact};
use super::report::millis;
use super::session::SessionEnd;
use super::shown::{self, Shown};
use crate::metrics::WorkerMetrics;
use crate::streams::Opened;

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
    /// Conditions as last said.
    conditions: BTreeMap<&'static str, (bool, &'static str)>,
    last_end: Option<SessionEnd>,
}

impl Observer {
    /// An observer that writes to these.
    pub fn new(metrics: WorkerMetrics, health: Arc<Health>, slots: usize) -> Self {
        Self {
            metrics,
            health,
            slots,
            conditions: BTreeMap::new(),
            last_end: None,
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
            self.count(&fact);
            self.tell(&fact);
            for condition in shown::conditions(&fact) {
                self.announce(condition);
            }
        }
        self.metrics
            .load(self.slots, core.tallies().busy_now(), core.held_entries());
    }

    fn count(&self, fact: &Fact) {
        let metrics = &self.metrics;
        match fact {
            Fact::Ended { outcome, took, .. } => metrics.ended(outcome, *took),
            Fact::Settled { kind, .. } => metrics.settled(kind.as_str()),
            Fact::Waited(wait) => metrics.waited(*wait),
            Fact::Reclaimed(entries) => metrics.reclaimed(*entries),
            Fact::Lost { entries, .. } => metrics.lost(*entries),
            Fact::Promoted(entries) => metrics.promoted(*entries),
            Fact::LeaseLost(_) => metrics.lease_lost(),
            Fact::LeaseLate => metrics.lease_late(),
            Fact::SessionBegan(_) => metrics.session_began(),
            Fact::SessionEnded { end, .. } => metrics.session_ended(end.as_str()),
            Fact::Handler(trouble) => {
                metrics.breaker(trouble.is_some_and(|why| why != "FailingAll"));
            }
            Fact::DeadLettered { .. }
            | Fact::Refused { .. }
            | Fact::Keyless { .. }
            | Fact::Draining { .. }
            | Fact::Left(_)
            | Fact::Unblocked => {}
        }
    }

    fn tell(&mut self, fact: &Fact) {
        match fact {
            Fact::Ended {
                origin,
                outcome,
                took,
                error_type,
            } => {
                let took_ms = millis(*took);
                tracing::debug!(entry = %origin, outcome, took_ms, error_type, "the handler's run ended");
            }
            Fact::Settled { origin, kind } => {
                tracing::debug!(entry = %origin, settlement = kind.as_str(), "settled");
            }
            Fact::DeadLettered {
                origin,
                reason,
                error_type,
                error,
            } => {
                tracing::warn!(entry = %origin, reason, error_type, error, "dead-lettered");
            }
            Fact::Reclaimed(entries) => {
                tracing::info!(entries, "claimed entries of a silent worker");
            }
            Fact::Lost { entries, .. } => {
                tracing::warn!(
                    entries,
                    "entries were trimmed from the stream before they were done"
                );
            }
            Fact::Promoted(entries) => tracing::debug!(entries, "delayed entries are due"),
            Fact::LeaseLost(place) => tracing::warn!(
                entry = %place,
                "another worker has the entry: its run here is of no effect"
            ),
            Fact::Keyless { .. } | Fact::Draining { .. } | Fact::Left(_) => tell_rare(fact),
            Fact::LeaseLate => {
                tracing::warn!(
                    "a lease was renewed late: this machine or Redis is too slow for the visibility timeout"
                );
            }
            Fact::Refused {
                place,
                settlement,
                refusal,
            } => tracing::warn!(
                entry = %place, settlement, key = refusal.key, reason = ?refusal.reason,
                "the server refuses a settlement: the entry is kept, and tried again"
            ),
            Fact::SessionBegan(opened) => self.tell_session(opened),
            Fact::SessionEnded {
                end, detail, wait, ..
            } => self.tell_end(*end, detail, *wait),
            Fact::Waited(_) | Fact::Handler(_) | Fact::Unblocked => {}
        }
    }

    fn tell_session(&mut self, opened: &Opened) {
        self.health.reached.store(true, Ordering::Relaxed);
        tracing::info!(server = opened.server, "connected to Redis");
        if let Some(position) = opened.group_created_at {
            tracing::info!(%position, "created the consumer group");
        }
        if self.last_end.take().is_none() {
            for note in &opened.warnings {
                tracing::info!("{note}");
            }
        }
    }

    /// One line a reason: an outage of an hour is not an hour of lines.
    fn tell_end(&mut self, end: SessionEnd, detail: &str, wait: Duration) {
        let (reason, wait_ms) = (end.as_str(), millis(wait));
        if self.last_end.replace(end) == Some(end) {
            tracing::debug!(reason, wait_ms, "still no session with Redis: {detail}");
        } else {
            tracing::warn!(reason, "no session with Redis: {detail}");
        }
    }

    /// Says that a condition changed, once for each change.
    fn announce(&mut self, shown: Shown) {
        let state = (shown.status, shown.reason);
        let before = self.conditions.insert(shown.condition, state);
        // That nothing is wrong, where nothing ever was, is no news.
        let is_no_news = before.is_none() && !shown.is_trouble && !shown.status;
        if before == Some(state) || is_no_news {
            return;
        }
        let Shown {
            condition,
            status,
            reason,
            is_trouble,
        } = shown;
        let status = if status { "True" } else { "False" };
        if is_trouble {
            tracing::warn!(condition, status, reason, "condition changed");
        } else {
            tracing::info!(condition, status, reason, "condition changed");
        }
    }
}

/// What happens once in a worker's life.
fn tell_rare(fact: &Fact) {
    if let Fact::Keyless { origin } = fact {
        tracing::warn!(
            entry = %origin,
            "an entry has none of the fields in idempotency.keyFields: it counts as the same work as every other such entry"
        );
    }
    if let Fact::Draining { running, within } = fact {
        tracing::info!(
            running,
            within_s = within.as_secs(),
            "draining: nothing new starts, what runs may finish; a second signal ends at once"
        );
    }
    if let Fact::Left(entries) = fact {
        tracing::warn!(
            entries,
            "entries stay pending: others take them over after the visibility timeout, and run them again"
        );
    }
}
