//! The entries a worker holds, by phase, with the counts that decide how much more it may take. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::outcome::Failure;
use crate::engine::settle::{self, Guard};
use crate::streams::{Entry, IdempotencyKey, Place, Refusal, RefusalReason, Settlement};

/// One entry in this consumer's pending list.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) entry: Arc<Entry>,
    pub(super) key: IdempotencyKey,
    /// The delivery count on the server, as last known.
    pub(super) count: u32,
    /// The count without the start to come (or under way): what an uncharged end writes back.
    pub(super) base: u32,
    /// It ran beside others when their process died; the charge of that run stands until it starts alone.
    pub(super) suspect: bool,
    /// When it was taken in.
    pub(super) since: Duration,
    /// By what right it is held.
    pub(super) hold: Hold,
    /// A settlement was sent and its reply was lost: it may have been settled already.
    pub(super) doubtful: bool,
    pub(super) phase: Phase,
}

/// By what right an entry is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is pending under this consumer.
    Leased,
    /// Trimmed while held under a good lease: it has no owner any more, and needs none.
    Gone,
    /// The group was re-created before it: it is pending nowhere until it is delivered again.
    Undelivered,
}

/// What a held entry waits for.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// For a slot.
    Waiting,
    /// For its start to be written.
    Starting { alone: bool },
    /// For the handler.
    Running {
        run: u64,
        since: Duration,
        alone: bool,
        ending: bool,
    },
    /// For the word on who broke the handler's process.
    Limbo { since: Duration, error: Failure },
    /// For its settlement.
    Settling(Settling),
}

/// A settlement on its way.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    pub(super) settlement: Settlement,
    /// It is in the batch that was sent and not answered.
    pub(super) sent: bool,
    /// Refused so often.
    pub(super) refusals: u32,
    /// The last refusal, and since when.
    pub(super) refused: Option<(Refusal, Duration)>,
}

impl Settling {
    pub(super) fn new(settlement: Settlement) -> Self {
        Self {
            settlement,
            sent: false,
            refusals: 0,
            refused: None,
        }
    }
}

impl Held {
    /// The charged starts that ended in nothing, without the start to come (or under way).
    pub(super) fn charged(&self, max_deliveries: u32) -> u32 {
        settle::charges(self.base, settle::carried(&self.entry.meta), max_deliveries)
    }

    /// Whether, and how, it may start.
    pub(super) fn guard(&self, max_deliveries: u32) -> Guard {
        settle::guard(self.charged(max_deliveries), self.suspect, max_deliveries)
    }

    /// The count the server must have while the entry waits, or after an uncharged end.
    pub(super) fn resting_count(&self) -> u32 {
        self.base + u32::from(self.suspect)
    }

    /// The count the server must have now; whatever it is for an entry that is being settled.
    pub(super) fn due_count(&self) -> u32 {
        match self.phase {
            Phase::Waiting => self.resting_count(),
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Limbo { .. } => self.base + 1,
            Phase::Settling(_) => self.count,
        }
    }

    /// Nobody owns it, and nobody else can have it.
    pub(super) fn is_gone(&self) -> bool {
        self.hold == Hold::Gone
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting)
    }

    /// Whether it takes one of the worker's slots: everything but a settlement that is not refused, and what must be read
    /// again before it can be settled.
    fn takes_slot(&self) -> bool {
        self.hold != Hold::Undelivered
            && (self.is_blocked() || !matches!(self.phase, Phase::Settling(_)))
    }

    /// Whether the server refuses its settlement.
    fn is_blocked(&self) -> bool {
        matches!(&self.phase, Phase::Settling(settling) if settling.refused.is_some())
    }

    /// Whether the server refuses its settlement for want of memory.
    fn is_out_of_memory(&self) -> bool {
        let Phase::Settling(settling) = &self.phase else {
            return false;
        };
        if self.hold == Hold::Undelivered {
            return false;
        }
        let refusal = settling.refused.as_ref().map(|(refusal, _)| refusal.reason);
        refusal == Some(RefusalReason::OutOfMemory)
    }

    /// Whether it only waits for its settlement to be carried out.
    fn is_uncommitted(&self) -> bool {
        let settling = matches!(self.phase, Phase::Settling(_));
        settling && !self.is_blocked() && self.hold != Hold::Undelivered
    }

    /// Whether it runs, or is about to, with nothing beside it.
    fn is_alone(&self) -> bool {
        matches!(
            self.phase,
            Phase::Starting { alone: true } | Phase::Running { alone: true, .. }
        )
    }

    /// Whether the handler has it, or is about to.
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. } | Phase::Running { .. })
    }
}

/// All entries held, and their counts.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    entries: BTreeMap<Place, Held>,
    /// The entry that a key's work is under way for; its twins wait.
    working: HashMap<IdempotencyKey, Place>,
    /// How many entries of each key are held.
    keys: HashMap<IdempotencyKey, usize>,
    /// Broken connections whose culprit is not known yet.
    limbo: BTreeSet<Place>,
    undelivered: usize,
    blocked: usize,
    out_of_memory: usize,
    uncommitted: usize,
    alone: usize,
    slots: usize,
    active: usize,
}

impl Holdings {
    pub(super) fn get(&self, place: Place) -> Option<&Held> {
        self.entries.get(&place)
    }

    pub(super) fn contains(&self, place: Place) -> bool {
        self.entries.contains_key(&place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Held)> {
        self.entries.iter().map(|(place, held)| (*place, held))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries that take a slot.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Entries that the handler has, or is about to get.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Entries whose settlement is refused.
    pub(super) fn blocked(&self) -> usize {
        self.blocked
    }

    /// Entries that a re-created group has yet to deliver again.
    pub(super) fn undelivered(&self) -> usize {
        self.undelivered
    }

    /// Whether the server refuses a settlement for want of memory.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.out_of_memory > 0
    }

    /// Entries that only wait for their settlement to be carried out.
    pub(super) fn uncommitted(&self) -> usize {
        self.uncommitted
    }

    /// Whether an entry runs, or is about to, with nothing beside it.
    pub(super) fn is_one_alone(&self) -> bool {
        self.alone > 0
    }

    /// Entries whose process died, and nobody knows yet by whose fault.
    pub(super) fn limbo(&self) -> &BTreeSet<Place> {
        &self.limbo
    }

    /// Waiting entries of a key that has just been committed, and that the ledger decides about.
    pub(super) fn waiting_twins(&self, key: &IdempotencyKey) -> Vec<Place> {
        if !self.keys.contains_key(key) {
            return Vec::new();
        }
        let twins = self
            .entries
            .iter()
            .filter(|(_, held)| held.key == *key && held.is_waiting() && !held.entry.meta.force);
        twins.map(|(place, _)| *place).collect()
    }

    /// Takes an entry in.
    pub(super) fn insert(&mut self, place: Place, held: Held) {
        self.remove(place);
        self.count_in(place, &held);
        self.mark_working(place, &held);
        self.entries.insert(place, held);
    }

    /// Lets an entry go.
    pub(super) fn remove(&mut self, place: Place) -> Option<Held> {
        let held = self.entries.remove(&place)?;
        self.count_out(place, &held);
        if self.working.get(&held.key) == Some(&place) {
            self.working.remove(&held.key);
        }
        Some(held)
    }

    /// Changes an entry in place, keeping the counts true. Nothing happens if it is not held.
    pub(super) fn update(&mut self, place: Place, change: impl FnOnce(&mut Held)) {
        if let Some(mut held) = self.remove(place) {
            change(&mut held);
            self.insert(place, held);
        }
    }

    /// Moves an entry to another phase.
    pub(super) fn enter(&mut self, place: Place, phase: Phase) {
        self.update(place, |held| held.phase = phase);
    }

    /// Whether another entry of the same key is being worked on.
    pub(super) fn has_working_twin(&self, place: Place, key: &IdempotencyKey) -> bool {
        self.working.get(key).is_some_and(|other| *other != place)
    }

    fn mark_working(&mut self, place: Place, held: &Held) {
        if !held.is_waiting() {
            self.working.entry(held.key.clone()).or_insert(place);
        }
    }

    fn count_in(&mut self, place: Place, held: &Held) {
        self.slots += usize::from(held.takes_slot());
        self.active += usize::from(held.is_active());
        self.undelivered += usize::from(held.hold == Hold::Undelivered);
        self.blocked += usize::from(held.is_blocked());
        self.out_of_memory += usize::from(held.is_out_of_memory());
        self.uncommitted += usize::from(held.is_uncommitted());
        self.alone += usize::from(held.is_alone());
        if matches!(held.phase, Phase::Limbo { .. }) {
            self.limbo.insert(place);
        }
        *self.keys.entry(held.key.clone()).or_default() += 1;
    }

    fn count_out(&mut self, place: Place, held: &Held) {
        self.slots -= usize::from(held.takes_slot());
        self.active -= usize::from(held.is_active());
        self.undelivered -= usize::from(held.hold == Hold::Undelivered);
        self.blocked -= usize::from(held.is_blocked());
        self.out_of_memory -= usize::from(held.is_out_of_memory());
        self.uncommitted -= usize::from(held.is_uncommitted());
        self.alone -= usize::from(held.is_alone());
        self.limbo.remove(&place);
        if let Some(count) = self.keys.get_mut(&held.key) {
            *count -= 1;
            if *count == 0 {
                self.keys.remove(&held.key);
            }
        }
    }
}
