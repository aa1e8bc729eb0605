//! The engine's decisions: what happened goes in, what to do next comes out.
//!
//! [`Core`] is one synchronous state machine that owns a worker's slots, leases, timers and settlements. It reads no clock and
//! touches no network: `engine/worker.rs` performs its [`Order`]s and reports back, and may be replaced by a simulation. Each
//! kind of order to the server is out at most once at a time, so nothing here races with itself.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `orders.rs` | the words for what to do, and for what happened |
//! | `held.rs` | what is held, in which phase, and what that occupies |
//! | `intake.rs` | what becomes of entries that a read or a claim brought |
//! | `starts.rs` | which waiting entry starts next, alone or beside others |
//! | `endings.rs` | what becomes of an entry when its run or its settlement ended |
//! | `leases.rs` | renewal, and what a renewal found |
//! | `upkeep.rs` | the session, the timers, and when to read |
//! | `drain.rs` | the way out |
//! | `reporting.rs` | what the worker tells of itself |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::breaker::{Breaker, Throttle};
use super::letter_context::Writer;
use super::outcome::UnavailableReason;
use super::report::Tallies;
use super::session::History;
use crate::streams::{Opened, Place, ReclaimCursor};
use crate::worker_config::{Ledger, WorkerConfig};

mod drain;
mod endings;
mod held;
mod intake;
mod leases;
mod orders;
mod reporting;
mod starts;
#[cfg(test)]
mod tests;
mod upkeep;

use held::Holdings;
pub use intake::{Arrival, keys_to_check};
pub use orders::{Call, Fact, Order, SettledKind};
pub use upkeep::{block_timeout, connect_timeout, report_every};

/// The state of the link to the server.
#[derive(Clone, Debug)]
enum Link {
    /// No session; the next attempt is due at that time.
    Down { retry_at: Duration },
    /// An attempt is under way.
    Connecting,
    /// A session since that time.
    Up(Session),
}

/// A session that lives.
#[derive(Clone, Copy, Debug)]
struct Session {
    since: Duration,
    /// Everything held was renewed in this session.
    renewed: bool,
    report: Report,
    /// A read came back.
    read: bool,
}

/// A kind of order that is out at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Counts,
    Settle,
    Renew,
    Promote,
    Report,
    Retire,
    Probe,
    Unblock,
}

/// What became of the first report of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// It is not back yet.
    Awaited,
    /// A full server refused it: nothing is reclaimed, work goes on.
    Refused,
    /// It was written: an outage before it is known to all.
    Written,
}

/// Which orders are out.
#[derive(Clone, Debug, Default)]
struct Out {
    /// A read for so many entries, parked since that time.
    read: Option<(usize, Duration)>,
    /// The parked read was told to end, at that time.
    unblocked: Option<Duration>,
    /// A claim for so many entries.
    reclaim: usize,
    tasks: BTreeSet<Task>,
}

impl Out {
    fn has(&self, task: Task) -> bool {
        self.tasks.contains(&task)
    }

    fn begin(&mut self, task: Task) {
        self.tasks.insert(task);
    }

    fn end(&mut self, task: Task) {
        self.tasks.remove(&task);
    }
}

/// When which upkeep is due.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    renew: Duration,
    reclaim: Duration,
    promote: Duration,
    report: Duration,
    retire: Duration,
}

/// What reading has shown so far.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// The last read of both streams came back empty.
    empty: bool,
    /// The source gave all that was asked for.
    source_full: bool,
    /// `P:retry` was looked at since the last read of both.
    retry_seen: bool,
}

/// When a worker began, and what its randomness comes from.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Feeds the jitter.
    pub seed: u64,
    /// The time of the worker's own clock.
    pub now: Duration,
    /// The wall-clock time at zero of that clock, in milliseconds since the epoch.
    pub epoch_ms: u64,
}

/// The state machine of one worker.
#[derive(Debug)]
pub struct Core {
    config: Arc<WorkerConfig>,
    writer: Writer,
    random: fastrand::Rng,
    /// The wall-clock time at zero of `now`, in milliseconds since the epoch.
    epoch_ms: u64,
    held: Holdings,
    /// Waiting entries in order of arrival: those that may run beside others, and those that must run alone.
    ready: VecDeque<Place>,
    solitary: VecDeque<Place>,
    /// Entries whose settlement is to be sent, and those that were refused, by the time of the next try.
    to_settle: VecDeque<Place>,
    refused: BTreeSet<(Duration, Place)>,
    /// A settlement was refused, and that was said.
    said_blocked: bool,
    /// That entries lack every field of their key was said.
    said_keyless: bool,
    /// What was said last of the handler.
    said_of_handler: Option<&'static str>,
    /// Entries whose count on the server may differ from what it must be.
    to_count: BTreeSet<Place>,
    /// Runs of entries that were lost meanwhile: none of these starts again before its handler has answered.
    ghosts: BTreeMap<u64, Place>,
    /// Runs begun so far.
    runs: u64,
    link: Link,
    history: History,
    /// Sessions so far, and the one that what is told now belongs to.
    sessions: u64,
    heard: u64,
    /// The earliest sending of what came while a renewal was out.
    unrenewed_since: Option<Duration>,
    /// When the last command was sent that renewed everything held.
    lease_good_at: Duration,
    out: Out,
    due: Due,
    reading: Reading,
    reclaim_cursor: ReclaimCursor,
    /// Pages looked at in this tick.
    reclaim_pages: usize,
    /// A solitary run ended: no other before this, unless nothing else is ready.
    solitary_not_before: Duration,
    breaker: Breaker,
    throttle: Throttle,
    /// What the session that lives found when it was opened, until it has proved itself.
    opened: Option<Opened>,
    unsafe_eviction: Option<String>,
    drain: Option<drain::Drain>,
    tallies: Tallies,
    facts: Vec<Fact>,
    orders: Vec<Order>,
}

impl Core {
    /// A worker that has just begun.
    pub fn new(config: Arc<WorkerConfig>, writer: Writer, birth: Birth) -> Self {
        let Birth {
            seed,
            now,
            epoch_ms,
        } = birth;
        let mut random = fastrand::Rng::with_seed(seed);
        let first_reclaim = config.delivery.reclaim_interval.mul_f64(random.f64());
        Self {
            writer,
            held: Holdings::default(),
            ready: VecDeque::new(),
            solitary: VecDeque::new(),
            to_settle: VecDeque::new(),
            refused: BTreeSet::new(),
            said_blocked: false,
            said_keyless: false,
            said_of_handler: None,
            to_count: BTreeSet::new(),
            ghosts: BTreeMap::new(),
            runs: 0,
            link: Link::Down { retry_at: now },
            history: History::default(),
            sessions: 0,
            heard: 0,
            unrenewed_since: None,
            lease_good_at: now,
            out: Out::default(),
            due: Due {
                reclaim: now + first_reclaim,
                renew: Duration::MAX,
                ..Due::default()
            },
            reading: Reading::default(),
            reclaim_cursor: ReclaimCursor::default(),
            reclaim_pages: 0,
            solitary_not_before: Duration::ZERO,
            breaker: Breaker::default(),
            throttle: Throttle::default(),
            opened: None,
            unsafe_eviction: None,
            drain: None,
            tallies: Tallies::starting_at(now),
            facts: Vec::new(),
            orders: Vec::new(),
            random,
            epoch_ms,
            config,
        }
    }

    /// What to do now. Call it after every event, and at [`Core::wake_at`].
    pub fn orders(&mut self, now: Duration) -> Vec<Order> {
        self.resolve_limbo(now);
        self.drain_step(now);
        self.order_probe(now);
        self.order_connect(now);
        if self.session().is_some() {
            self.order_renew(now);
            if self.may_act(now) {
                self.order_settle(now);
                self.order_starts(now);
                self.order_upkeep(now);
                self.order_read(now);
            }
        }
        self.tallies.busy_slots(self.held.active(), now);
        self.note_unblocked();
        self.note_handler();
        std::mem::take(&mut self.orders)
    }

    /// The session that orders belong to from now on.
    pub fn session_number(&self) -> u64 {
        self.sessions
    }

    /// What is told next came back from an order of that session: its error says nothing of a later one.
    pub fn hear(&mut self, session: u64) {
        self.heard = session;
    }

    /// Says when the handler begins or ends to be unavailable, or why it is now.
    fn note_handler(&mut self) {
        let trouble = self.handler_trouble();
        if trouble != self.said_of_handler {
            self.said_of_handler = trouble;
            self.fact(Fact::Handler(trouble));
        }
    }

    /// Why the handler is of no help now, if it is not.
    fn handler_trouble(&self) -> Option<&'static str> {
        let unavailable = self.breaker.trouble().map(UnavailableReason::as_str);
        unavailable.or_else(|| self.throttle.is_throttling().then_some("FailingAll"))
    }

    fn note_unblocked(&mut self) {
        let is_blocked = self.held.blocked() > 0;
        if self.said_blocked && !is_blocked {
            self.facts.push(Fact::Unblocked);
        }
        self.said_blocked = is_blocked;
    }

    /// What happened since the last call.
    pub fn take_facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }

    /// Counts since the start of the process.
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// Entries held now.
    pub fn held_entries(&self) -> usize {
        self.held.len()
    }

    /// Whether a session with the server lives.
    pub fn is_connected(&self) -> bool {
        self.session().is_some()
    }

    /// Nothing is left to do.
    pub fn is_finished(&self) -> bool {
        self.drain.as_ref().is_some_and(drain::Drain::is_over)
    }

    fn session(&self) -> Option<&Session> {
        match &self.link {
            Link::Up(session) => Some(session),
            Link::Down { .. } | Link::Connecting => None,
        }
    }

    /// Whether entries may start and be settled: a renewed session, and no lease older than the visibility timeout.
    fn may_act(&self, now: Duration) -> bool {
        let age = now.saturating_sub(self.lease_good_at);
        let fresh = self.held.is_empty() || age < self.config.delivery.visibility_timeout;
        fresh && self.session().is_some_and(|session| session.renewed)
    }

    /// The wall-clock time, in milliseconds since the epoch.
    fn wall_ms(&self, now: Duration) -> u64 {
        self.epoch_ms
            .saturating_add(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }

    fn keeps_ledger(&self) -> bool {
        self.config.idempotency.ledger == Ledger::AtCommit
    }

    fn max_deliveries(&self) -> u32 {
        self.config.delivery.max_deliveries
    }

    /// What may be held beside each other now.
    fn capacity(&self) -> usize {
        self.throttle
            .limit(self.breaker.limit(self.config.delivery.concurrency))
    }

    /// Slots that are neither taken nor promised to a read or a claim under way.
    fn free_slots(&self) -> usize {
        let promised = self.out.read.map_or(0, |(count, _)| count) + self.out.reclaim;
        self.capacity().saturating_sub(self.held.slots() + promised)
    }

    fn fact(&mut self, fact: Fact) {
        self.facts.push(fact);
    }
}
