//! What becomes of entries that a read or a claim brought. Pure.

use std::time::Duration;

use super::held::{Held, Hold, Phase, Settling};
use super::{Core, Fact, Link, Task};
use crate::engine::key;
use crate::engine::letter_context::Reason;
use crate::engine::settle::{self, Guard, Standing};
use crate::streams::{Delivery, Entry, IdempotencyKey, Lane, Place, Reclaimed, Settlement};
use crate::worker_config::{Ledger, WorkerConfig};

/// How an entry came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// From a read: the server gave it the count 1, which charges nothing until it starts.
    Read,
    /// From a claim: its count is what earlier starts left.
    Claim,
}

/// What a read or claim brought, with the ledger's word on each entry (shorter or empty where it was not asked).
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// The entries.
    pub deliveries: Vec<Delivery>,
    /// Whether the ledger knows them.
    pub known: Vec<bool>,
    /// When the command was sent.
    pub sent_at: Duration,
}

/// The keys to look up in the ledger for entries that have just come; none where no ledger is kept.
pub fn keys_to_check(config: &WorkerConfig, deliveries: &[Delivery]) -> Vec<IdempotencyKey> {
    match config.idempotency.ledger {
        Ledger::AtCommit => deliveries
            .iter()
            .map(|d| key_of(config, &d.entry))
            .collect(),
        Ledger::Off => Vec::new(),
    }
}

fn key_of(config: &WorkerConfig, entry: &Entry) -> IdempotencyKey {
    let source = &config.source;
    key::key(
        &source.stream,
        &source.group,
        &config.idempotency.key_fields,
        entry,
    )
}

impl Core {
    /// A read came back; `asked_retry_only` tells which.
    pub fn arrived(&mut self, arrival: Arrival, asked_retry_only: bool, now: Duration) {
        let asked = self.out.read.take().map_or(0, |(count, _)| count);
        self.out.unblocked = None;
        let lane = |lane| {
            arrival
                .deliveries
                .iter()
                .filter(|d| d.entry.place.lane == lane)
                .count()
        };
        if asked_retry_only {
            self.reading.retry_seen = true;
        } else {
            self.reading.retry_seen = false;
            self.reading.empty = arrival.deliveries.is_empty();
            self.reading.source_full = lane(Lane::Source) >= asked.max(1);
        }
        if let Link::Up(session) = &mut self.link
            && self.heard == self.sessions
        {
            session.read = true;
        }
        self.prove_session();
        self.take_in(arrival, Origin::Read, now);
    }

    /// A claim came back.
    pub fn reclaimed(
        &mut self,
        (page, known): (Reclaimed, Vec<bool>),
        sent_at: Duration,
        now: Duration,
    ) {
        self.out.reclaim = 0;
        if page.lost > 0 {
            self.tallies.lost += page.lost;
            self.fact(Fact::Lost {
                entries: page.lost,
                pending: true,
            });
        }
        let new = page
            .claimed
            .iter()
            .filter(|d| !self.held.contains(d.entry.place))
            .count();
        if new > 0 {
            self.tallies.reclaimed += new as u64;
            self.fact(Fact::Reclaimed(new as u64));
        }
        self.plan_next_reclaim(&page, new, now);
        self.take_in(
            Arrival {
                deliveries: page.claimed,
                known,
                sent_at,
            },
            Origin::Claim,
            now,
        );
    }

    fn take_in(&mut self, arrival: Arrival, origin: Origin, now: Duration) {
        if arrival.deliveries.is_empty() {
            return;
        }
        // Older than what is held only after a pause: then everything is renewed first.
        self.lease_good_at = if self.held.is_empty() {
            arrival.sent_at
        } else {
            self.lease_good_at.min(arrival.sent_at)
        };
        if self.out.has(Task::Renew) {
            let earlier = self.unrenewed_since.unwrap_or(arrival.sent_at);
            self.unrenewed_since = Some(earlier.min(arrival.sent_at));
        }
        let mut known = arrival.known.into_iter();
        for delivery in arrival.deliveries {
            let known = known.next().unwrap_or(false);
            let place = delivery.entry.place;
            if self.held.contains(place) {
                self.adopt(place, delivery.count);
            } else {
                self.admit(delivery, origin, known, now);
            }
        }
    }

    /// An entry that is held came again (the group was re-created, or our own was claimed): it goes on as it was.
    fn adopt(&mut self, place: Place, count: u32) {
        self.held.update(place, |held| {
            held.count = count;
            held.hold = Hold::Leased;
        });
        self.to_count.insert(place);
        self.to_settle.push_back(place);
    }

    fn admit(&mut self, delivery: Delivery, origin: Origin, known: bool, now: Duration) {
        let place = delivery.entry.place;
        let held = self.held_from(delivery, origin, now);
        if !self.said_keyless && key::is_keyless(&self.config.idempotency.key_fields, &held.entry) {
            self.said_keyless = true;
            self.fact(Fact::Keyless {
                origin: held.entry.meta.origin,
            });
        }
        let guard = held.guard(self.max_deliveries());
        let skip = known && !held.entry.meta.force;
        self.held.insert(place, held);
        if skip {
            self.skip(place);
            return;
        }
        match guard {
            Guard::Condemn(reason) => self.condemn(place, reason, now),
            Guard::Start { alone, .. } => {
                self.queue(place, alone);
                self.to_count.insert(place);
            }
        }
    }

    fn held_from(&self, delivery: Delivery, origin: Origin, now: Duration) -> Held {
        let meta = &delivery.entry.meta;
        let carried = settle::carried(meta);
        let only_one_left = self.max_deliveries().saturating_sub(carried) == 1;
        let base = match origin {
            Origin::Read if only_one_left => delivery.count,
            Origin::Read => delivery.count.saturating_sub(1),
            Origin::Claim => delivery.count,
        };
        Held {
            key: key_of(&self.config, &delivery.entry),
            count: delivery.count,
            base,
            suspect: meta.suspect && origin == Origin::Read,
            since: now,
            hold: Hold::Leased,
            doubtful: false,
            phase: Phase::Waiting,
            entry: delivery.entry,
        }
    }

    pub(super) fn queue(&mut self, place: Place, alone: bool) {
        if alone {
            self.solitary.push_back(place);
        } else {
            self.ready.push_back(place);
        }
    }

    /// The work is known to be done: the entry is acknowledged through a commit that finds its key.
    pub(super) fn skip(&mut self, place: Place) {
        let Some(held) = self.held.get(place) else {
            return;
        };
        let key = settle::ledger_key(&self.config, &held.key);
        self.settle(
            place,
            Settlement::Commit {
                outputs: Vec::new(),
                key,
                force: false,
            },
        );
    }

    pub(super) fn condemn(&mut self, place: Place, reason: Reason, now: Duration) {
        let letter = self.judge(place, now, |at, core| {
            settle::condemn(at, reason, &core.writer)
        });
        if let Some(letter) = letter {
            self.settle(place, letter);
        }
    }

    /// Asks for a decision on a held entry; `None` if it is not held.
    pub(super) fn judge<T>(
        &mut self,
        place: Place,
        now: Duration,
        decide: impl FnOnce(&Standing<'_>, &Self) -> T,
    ) -> Option<T> {
        let jitter = self.random.f64();
        let held = self.held.get(place)?;
        let at = Standing {
            entry: &held.entry,
            key: &held.key,
            charged: held.charged(self.max_deliveries()),
            now_ms: self.wall_ms(now),
            jitter,
        };
        Some(decide(&at, self))
    }

    pub(super) fn settle(&mut self, place: Place, settlement: Settlement) {
        self.held
            .enter(place, Phase::Settling(Settling::new(settlement)));
        self.to_settle.push_back(place);
    }
}
