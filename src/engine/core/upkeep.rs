//! The session with the server, the timers, and when to read. Pure.

use std::time::Duration;

use super::drain::UNBLOCK_AGAIN_AFTER;
use super::starts::PARKED_FOR;
use super::{Core, Fact, Link, Order, Report, Session, Task};
use crate::engine::outcome::UnavailableReason;
use crate::engine::session::{Limits, SessionEnd};
use crate::streams::{Error, Opened, Promoted, ReclaimCursor, Reclaimed, Reported};
use crate::worker_config::WorkerConfig;

/// Promotion looks again after this long at most: another worker may have delayed an entry.
const PROMOTE_AT_LEAST_EVERY: Duration = Duration::from_secs(5);

/// Consumers that left nothing behind are looked for at most this often.
const RETIRE_EVERY: Duration = Duration::from_secs(60);

/// Pages of one reclaim tick that find nothing.
const PAGES_PER_TICK: usize = 10;

/// Entries of one reclaim page, and so the most that one can claim.
const PAGE: usize = 100;

/// So many finished entries may wait for their commit (or as many as there are slots): then nothing more is read.
const UNCOMMITTED: usize = 8;

/// Full server, or another passing refusal of upkeep: it is tried again after this long.
const UPKEEP_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The interval between two reports of a worker.
pub fn report_every(visibility_timeout: Duration) -> Duration {
    (visibility_timeout / 3).min(Duration::from_secs(5))
}

/// The longest wait of one read: leases are known from the sending of what brought them.
pub fn block_timeout(config: &WorkerConfig) -> Duration {
    config
        .delivery
        .block_timeout
        .min(config.delivery.visibility_timeout / 4)
}

/// The limit of one connect attempt: with its backoff it must stay within a third of the visibility timeout.
pub fn connect_timeout(config: &WorkerConfig) -> Duration {
    config
        .redis
        .connect_timeout
        .min(config.delivery.visibility_timeout / 4)
}

impl Core {
    pub(super) fn order_connect(&mut self, now: Duration) {
        let Link::Down { retry_at } = self.link else {
            return;
        };
        if now >= retry_at && !self.is_finished() {
            self.link = Link::Connecting;
            self.orders.push(Order::Connect);
        }
    }

    /// An attempt to connect came back.
    pub fn connected(&mut self, result: Result<Opened, Error>, now: Duration) {
        match result {
            Ok(opened) => {
                self.sessions += 1;
                self.heard = self.sessions;
                self.link = Link::Up(Session {
                    since: now,
                    renewed: false,
                    report: Report::Awaited,
                    read: false,
                });
                if opened.group_created_at.is_some() {
                    self.reclaim_cursor = ReclaimCursor::default();
                }
                self.reading.empty = false;
                self.due.promote = now;
                self.due.report = now;
                self.unsafe_eviction.clone_from(&opened.unsafe_eviction);
                self.opened = Some(opened);
            }
            Err(error) => self.end_session(&error, Duration::ZERO, now),
        }
    }

    /// An order failed: its session is over. What else is out fails too, and what comes of it later says nothing of a
    /// session that has begun since.
    pub(super) fn session_ended(&mut self, error: &Error, now: Duration) {
        if let Link::Up(session) = &self.link
            && self.heard == self.sessions
        {
            let lived = now.saturating_sub(session.since);
            self.end_session(error, lived, now);
        }
    }

    fn end_session(&mut self, error: &Error, lived: Duration, now: Duration) {
        let end = SessionEnd::of(error);
        let limits = Limits {
            visibility_timeout: self.config.delivery.visibility_timeout,
            connect_timeout: connect_timeout(&self.config),
        };
        let wait = self.history.wait(end, lived, limits, self.random.f64());
        self.opened = None;
        self.link = Link::Down {
            retry_at: now + wait,
        };
        if end == SessionEnd::GroupMissing {
            self.reclaim_cursor = ReclaimCursor::default();
        }
        self.tallies.session_ended(end);
        self.fact(Fact::SessionEnded {
            end,
            detail: error.to_string(),
            failures: self.history.failures(),
            wait,
        });
    }

    pub(super) fn order_upkeep(&mut self, now: Duration) {
        if !self.out.has(Task::Report) && now >= self.due.report && !self.is_retiring() {
            self.out.begin(Task::Report);
            self.orders.push(Order::Report);
        }
        if !self.out.has(Task::Promote) && now >= self.due.promote && self.drain.is_none() {
            self.out.begin(Task::Promote);
            self.orders.push(Order::Promote);
        }
        self.order_reclaim(now);
    }

    /// A due reclaim has first claim on free slots; a parked read that holds them all is ended for it.
    fn order_reclaim(&mut self, now: Duration) {
        let reported = self.has_reported();
        if now < self.due.reclaim || self.out.reclaim > 0 || !reported || !self.may_take_more() {
            return;
        }
        let free = self.free_slots();
        if free > 0 {
            self.out.reclaim = free.min(PAGE);
            let cursor = self.reclaim_cursor.clone();
            self.orders.push(Order::Reclaim {
                cursor,
                limit: self.out.reclaim,
            });
        } else if self.out.read.is_some() && self.held.slots() < self.capacity() {
            self.order_unblock(now);
        }
    }

    pub(super) fn plan_next_reclaim(&mut self, page: &Reclaimed, found: usize, now: Duration) {
        self.reclaim_cursor = page.cursor.clone();
        self.reclaim_pages = if found > 0 { 0 } else { self.reclaim_pages + 1 };
        if page.more && page.grace.is_none() && self.reclaim_pages < PAGES_PER_TICK {
            return;
        }
        self.reclaim_pages = 0;
        // Jitter that only shortens keeps workers apart without ever being late.
        let interval = self.config.delivery.reclaim_interval;
        let tick = interval.mul_f64(1.0 - 0.1 * self.random.f64());
        self.due.reclaim = now + page.grace.map_or(tick, |grace| grace.min(tick));
        if !self.out.has(Task::Retire) && now >= self.due.retire && self.drain.is_none() {
            self.out.begin(Task::Retire);
            self.due.retire = now + RETIRE_EVERY;
            self.orders.push(Order::Retire { own: false });
        }
    }

    /// A reclaim failed.
    pub fn reclaim_failed(&mut self, error: &Error, now: Duration) {
        self.out.reclaim = 0;
        self.session_ended(error, now);
    }

    /// Whether entries may be taken in at all.
    fn may_take_more(&self) -> bool {
        self.drain.is_none()
            && self.breaker.is_closed()
            && !self.held.is_out_of_memory()
            && !self.held.is_one_alone()
    }

    pub(super) fn order_read(&mut self, now: Duration) {
        if self.wants_solitary(now) || !self.may_take_more() {
            if self.out.read.is_some() {
                self.order_unblock(now);
            }
            return;
        }
        let is_due = now >= self.due.reclaim && self.free_slots() > 0;
        let reclaiming = self.out.reclaim > 0 || is_due;
        // What a re-created group has yet to deliver again must be read, however full the worker is.
        let free = self
            .free_slots()
            .max(usize::from(self.held.undelivered() > 0));
        if self.out.read.is_some()
            || free == 0
            || (reclaiming && self.has_reported())
            || self.held.uncommitted() >= UNCOMMITTED.max(self.config.delivery.concurrency)
        {
            return;
        }
        let order = if self.reading.retry_seen || self.reading.empty {
            self.out.read = Some((free, now));
            Order::Read { count: free }
        } else {
            let count = if self.reading.source_full {
                free.div_ceil(2)
            } else {
                free
            };
            self.out.read = Some((count, now));
            Order::ReadRetry { count }
        };
        self.orders.push(order);
    }

    pub(super) fn order_unblock(&mut self, now: Duration) {
        // A read that had not reached the server yet is not ended: it is told again.
        let recently = |told: Duration| now < told + UNBLOCK_AGAIN_AFTER;
        if !self.out.has(Task::Unblock) && self.out.unblocked.is_none_or(|told| !recently(told)) {
            self.out.begin(Task::Unblock);
            self.orders.push(Order::Unblock);
        }
    }

    /// The parked read was told to end.
    pub fn unblocked(&mut self, now: Duration) {
        self.out.end(Task::Unblock);
        self.out.unblocked = Some(now);
    }

    /// A read failed.
    pub fn read_failed(&mut self, error: &Error, now: Duration) {
        self.out.read = None;
        self.out.unblocked = None;
        self.session_ended(error, now);
    }

    /// A promotion came back.
    pub fn promoted(&mut self, result: Result<Promoted, Error>, now: Duration) {
        self.out.end(Task::Promote);
        self.due.promote = match result {
            Ok(promoted) => {
                if promoted.moved > 0 {
                    self.tallies.promoted += promoted.moved;
                    self.fact(Fact::Promoted(promoted.moved));
                }
                let next = promoted.next_in.unwrap_or(PROMOTE_AT_LEAST_EVERY);
                let more = promoted.more && promoted.moved + promoted.undecodable > 0;
                now + if more {
                    Duration::ZERO
                } else {
                    next.min(PROMOTE_AT_LEAST_EVERY)
                }
            }
            Err(Error::Full) => now + UPKEEP_AGAIN_AFTER,
            Err(error) => {
                self.session_ended(&error, now);
                now
            }
        };
    }

    /// A report was written, or not.
    pub fn reported(&mut self, result: Result<Reported, Error>, now: Duration) {
        self.out.end(Task::Report);
        self.due.report = now + report_every(self.config.delivery.visibility_timeout);
        match result {
            Ok(Reported { lost, .. }) => {
                if lost > 0 {
                    self.tallies.lost += lost;
                    self.fact(Fact::Lost {
                        entries: lost,
                        pending: false,
                    });
                }
                self.note_report(Report::Written);
            }
            // Liveness is unknown then, and nothing is reclaimed; work goes on.
            Err(Error::Full) => self.note_report(Report::Refused),
            Err(error) => self.session_ended(&error, now),
        }
    }

    fn note_report(&mut self, report: Report) {
        if let Link::Up(session) = &mut self.link
            && session.report != Report::Written
        {
            session.report = report;
        }
        self.prove_session();
    }

    fn has_reported(&self) -> bool {
        self.session()
            .is_some_and(|session| session.report == Report::Written)
    }

    /// A session counts as begun when it has done what it is for: one that ends at its first command never did.
    pub(super) fn prove_session(&mut self) {
        let has_nothing_to_read = self.out.read.is_none();
        let is_proved = self.session().is_some_and(|session| {
            session.report != Report::Awaited && (session.read || has_nothing_to_read)
        });
        if is_proved && let Some(opened) = self.opened.take() {
            self.fact(Fact::SessionBegan(opened));
        }
    }

    pub(super) fn order_probe(&mut self, now: Duration) {
        let due = self.breaker.probe_at().is_some_and(|at| now >= at);
        if due && !self.out.has(Task::Probe) && self.drain.is_none() {
            self.out.begin(Task::Probe);
            self.orders.push(Order::Probe);
        }
        // After that long without it, entries that were taken in as long ago go to healthy workers.
        if let Some(since) = self.breaker.down_since() {
            let visibility = self.config.delivery.visibility_timeout;
            let by = now.checked_sub(visibility).filter(|by| since <= *by);
            self.release_waiting(by);
        }
    }

    /// A probe came back.
    pub fn probed(&mut self, result: Result<(), UnavailableReason>, now: Duration) {
        self.out.end(Task::Probe);
        self.breaker.probed(result, now);
    }

    /// Since when the oldest waiting entry is here while the handler is away.
    fn oldest_waiting(&self) -> Option<Duration> {
        let down_since = self.breaker.down_since()?;
        let waiting = self.held.iter().filter(|(_, held)| held.is_waiting());
        waiting.map(|(_, held)| held.since.max(down_since)).min()
    }

    /// When [`Core::orders`] must be called again if nothing happens before.
    ///
    /// What is overdue waits for an event, not for time, so it is not named here.
    pub fn wake_at(&self, now: Duration) -> Duration {
        let waiting = !self.ready.is_empty() || !self.solitary.is_empty();
        let visibility = self.config.delivery.visibility_timeout;
        let parked = self.out.read.map(|(_, since)| since + PARKED_FOR);
        let candidates = [
            match self.link {
                Link::Down { retry_at } => Some(retry_at),
                Link::Connecting | Link::Up(_) => None,
            },
            (!self.held.is_empty()).then(|| self.next_renewal()),
            Some(self.due.renew),
            Some(self.due.report),
            Some(self.due.promote),
            Some(self.due.reclaim),
            self.limbo_until(),
            self.refused.first().map(|(at, _)| *at),
            waiting.then(|| self.throttle.next_start_at()),
            (!self.solitary.is_empty()).then_some(self.solitary_not_before),
            parked.filter(|_| !self.solitary.is_empty()),
            self.breaker.probe_at(),
            self.oldest_waiting().map(|since| since + visibility),
            self.out.unblocked.map(|told| told + UNBLOCK_AGAIN_AFTER),
            self.drain.as_ref().map(super::drain::Drain::deadline),
            self.drain.as_ref().map(super::drain::Drain::hard_deadline),
        ];
        candidates
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min()
            .unwrap_or(Duration::MAX)
    }
}
