//! What becomes of an entry when its run ended, and when its settlement came back. Pure.

use std::time::Duration;

use super::held::{Hold, Phase, Settling};
use super::{Core, Fact, Order, SettledKind, Task};
use crate::engine::letter_context::Reason;
use crate::engine::outcome::{Failure, Outcome};
use crate::engine::settle;
use crate::streams::{
    EntryId, Error, IdempotencyKey, MAX_BATCH, Place, Refusal, RefusalReason, Settle, Settled,
    Settlement, letter,
};

/// Connections that break within this time of the first one broke together.
const LIMBO_FOR: Duration = Duration::from_secs(1);

/// The first wait before a refused settlement is tried again, and the longest.
const REFUSED_FIRST: Duration = Duration::from_millis(250);
const REFUSED_LONGEST: Duration = Duration::from_secs(10);

impl Core {
    /// The handler answered a call (or its process, connection or time ended).
    pub fn answered(&mut self, place: Place, answered: u64, outcome: Outcome, now: Duration) {
        self.ghosts.remove(&answered);
        let Some(Phase::Running {
            run, since, alone, ..
        }) = self.phase_of(place)
        else {
            return;
        };
        if run != answered {
            // Its lease was lost meanwhile: the answer is of no use.
            return;
        }
        self.note_outcome(place, &outcome, now.saturating_sub(since), now);
        if alone {
            // Then normal load has its turn, for as long.
            self.solitary_not_before = now + now.saturating_sub(since);
        }
        match outcome {
            Outcome::Unavailable { reason } => {
                self.breaker.trip(reason, now);
                self.rest(place);
            }
            Outcome::Cancelled => self.rest(place),
            Outcome::Crashed {
                error,
                alone: false,
            } if !alone && !self.was_only_one() => {
                self.held.enter(place, Phase::Limbo { since: now, error });
            }
            Outcome::Done { .. }
            | Outcome::Retry { .. }
            | Outcome::Reject { .. }
            | Outcome::Busy { .. }
            | Outcome::Crashed { .. } => self.decide(place, outcome, now),
        }
    }

    /// Whether nothing but the entry whose run just ended was with the handler.
    fn was_only_one(&self) -> bool {
        self.held.active() <= 1 && self.held.limbo().is_empty()
    }

    fn note_outcome(&mut self, place: Place, outcome: &Outcome, took: Duration, now: Duration) {
        let Some(origin) = self.held.get(place).map(|held| held.entry.meta.origin) else {
            return;
        };
        let concurrency = self.config.delivery.concurrency;
        let (name, error_type) = self.tallies.ended(outcome, took);
        match outcome {
            Outcome::Done { .. } | Outcome::Reject { .. } => {
                self.breaker.answered();
                self.throttle.succeeded(concurrency);
            }
            Outcome::Retry { .. } => {
                self.breaker.answered();
                let jitter = self.random.f64();
                let policy = &self.config.retry;
                self.throttle
                    .failed(now, |n| settle::backoff(policy, n, jitter));
            }
            Outcome::Busy { .. } | Outcome::Crashed { .. } => {
                self.breaker.answered();
                self.throttle.interrupted();
            }
            Outcome::Unavailable { .. } | Outcome::Cancelled => {}
        }
        self.fact(Fact::Ended {
            origin,
            outcome: name,
            took,
            error_type,
        });
    }

    fn decide(&mut self, place: Place, outcome: Outcome, now: Duration) {
        let decided = self.judge(place, now, |at, core| {
            settle::decide(outcome, at, &core.config, &core.writer)
        });
        match decided.flatten() {
            Some(settlement) => self.settle(place, settlement),
            None => self.rest(place),
        }
    }

    /// Connections that broke: one alone within a second was the culprit; of several each is a suspect.
    pub(super) fn resolve_limbo(&mut self, now: Duration) {
        if self.limbo_until().is_none_or(|until| now < until) {
            return;
        }
        let places = self.held.limbo().clone();
        let several = places.len() > 1;
        for place in places {
            let Some(Phase::Limbo { error, .. }) = self.phase_of(place) else {
                continue;
            };
            if several {
                self.suspect(place, now);
            } else {
                self.decide(place, Outcome::Crashed { error, alone: true }, now);
            }
        }
    }

    /// When the breaks seen so far are judged.
    pub(super) fn limbo_until(&self) -> Option<Duration> {
        let since = self
            .held
            .limbo()
            .iter()
            .filter_map(|place| match self.phase_of(*place) {
                Some(Phase::Limbo { since, .. }) => Some(since),
                Some(
                    Phase::Waiting
                    | Phase::Starting { .. }
                    | Phase::Running { .. }
                    | Phase::Settling(_),
                )
                | None => None,
            });
        since.min().map(|since| since + LIMBO_FOR)
    }

    pub(super) fn phase_of(&self, place: Place) -> Option<Phase> {
        self.held.get(place).map(|held| held.phase.clone())
    }

    /// The charge of its run stands until it starts alone; with a limit of one there is no such start.
    fn suspect(&mut self, place: Place, now: Duration) {
        if self.max_deliveries() == 1 {
            self.held.update(place, |held| held.base += 1);
            self.condemn(place, Reason::DeliveriesExhausted, now);
        } else {
            self.held.update(place, |held| held.suspect = true);
            self.rest(place);
        }
    }

    pub(super) fn order_settle(&mut self, now: Duration) {
        if self.out.has(Task::Settle) {
            return;
        }
        while let Some((at, place)) = self.refused.first().copied().filter(|(at, _)| *at <= now) {
            self.refused.remove(&(at, place));
            self.to_settle.push_back(place);
        }
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH {
            let Some(place) = self.to_settle.pop_front() else {
                break;
            };
            let Some(held) = self.held.get(place) else {
                continue;
            };
            let Phase::Settling(settling) = &held.phase else {
                continue;
            };
            let waits = self.refused.iter().any(|(_, other)| *other == place);
            if settling.sent || waits || held.hold == Hold::Undelivered {
                continue;
            }
            batch.push(Settle {
                entry: held.entry.clone(),
                settlement: settling.settlement.clone(),
                unowned: held.is_gone(),
            });
            self.change_settling(place, |settling| settling.sent = true);
        }
        if !batch.is_empty() {
            self.out.begin(Task::Settle);
            self.orders.push(Order::Settle(batch));
        }
    }

    /// A batch of settlements came back.
    pub fn settled(&mut self, sent: &[Place], result: Result<Vec<Settled>, Error>, now: Duration) {
        self.out.end(Task::Settle);
        match result {
            Ok(replies) => {
                for (place, reply) in sent.iter().zip(replies) {
                    self.settled_one(*place, reply, now);
                }
            }
            Err(error) => {
                let doubtful = matches!(error, Error::Disconnected { .. });
                for place in sent.iter().rev() {
                    self.send_again(*place, doubtful);
                }
                self.session_ended(&error, now);
            }
        }
    }

    fn settled_one(&mut self, place: Place, reply: Settled, now: Duration) {
        let Some(held) = self.held.get(place) else {
            return;
        };
        let Phase::Settling(settling) = held.phase.clone() else {
            return;
        };
        let (doubtful, key) = (held.doubtful, held.key.clone());
        match reply {
            Settled::Applied | Settled::AlreadyDone => {
                let skipped = reply == Settled::AlreadyDone && !doubtful;
                self.finish(place, &settling.settlement, now, skipped);
                if matches!(settling.settlement, Settlement::Commit { .. }) {
                    self.skip_twins(&key);
                }
            }
            // The reply to an earlier try was lost: that try went through.
            Settled::NotOurs if doubtful => self.finish(place, &settling.settlement, now, false),
            Settled::NotOurs => self.contest(place),
            Settled::Refused(refusal) => self.refuse(place, settling, refusal, now),
            Settled::Unanswered => self.send_again(place, true),
        }
    }

    /// It was not settled, or (`doubtful`) nobody knows: the next call tells, or meets the error that ended the session.
    fn send_again(&mut self, place: Place, doubtful: bool) {
        self.held.update(place, |held| held.doubtful |= doubtful);
        self.change_settling(place, |settling| settling.sent = false);
        self.to_settle.push_front(place);
    }

    /// A commit that is known to have gone through has recorded its key.
    fn skip_twins(&mut self, key: &IdempotencyKey) {
        if self.keeps_ledger() {
            for twin in self.held.waiting_twins(key) {
                self.skip(twin);
            }
        }
    }

    /// The entry is acknowledged: it is out of our hands.
    pub(super) fn finish(&mut self, place: Place, how: &Settlement, now: Duration, skipped: bool) {
        let kind = match how {
            Settlement::Commit { .. } if skipped => SettledKind::Skipped,
            Settlement::Commit { .. } => SettledKind::Done,
            Settlement::RetryAfter { delay, .. } => {
                // Who delays an entry promotes it itself when due.
                self.due.promote = self.due.promote.min(now + *delay);
                SettledKind::Retried
            }
            Settlement::DeadLetter { .. } => SettledKind::DeadLettered,
            Settlement::Release { .. } => SettledKind::Released,
        };
        let Some(held) = self.held.remove(place) else {
            return;
        };
        self.tallies.settled(kind);
        self.fact(Fact::Settled {
            origin: held.entry.meta.origin,
            kind,
        });
        if let Settlement::DeadLetter { context } = how {
            self.fact(dead_lettered(held.entry.meta.origin, context));
        }
    }

    /// It is not pending here: taken, settled, trimmed, or not delivered yet to a group that was re-created. The renewal
    /// tells which.
    fn contest(&mut self, place: Place) {
        self.change_settling(place, |settling| settling.sent = false);
        self.due.renew = Duration::ZERO;
    }

    fn refuse(&mut self, place: Place, settling: Settling, refusal: Refusal, now: Duration) {
        if refusal.reason == RefusalReason::TooLarge && self.settle_too_large(place, &settling, now)
        {
            return;
        }
        if matches!(settling.settlement, Settlement::Release { .. }) {
            // It stays pending at its count: reclaim will find it.
            self.held.remove(place);
            return;
        }
        let first_time = settling
            .refused
            .as_ref()
            .is_none_or(|(before, _)| *before != refusal);
        if first_time {
            let settlement = settling.settlement.name();
            self.fact(Fact::Refused {
                place,
                settlement,
                refusal: refusal.clone(),
            });
        }
        let wait = REFUSED_FIRST
            .saturating_mul(1 << settling.refusals.min(10))
            .min(REFUSED_LONGEST);
        let since = settling.refused.as_ref().map_or(now, |(_, since)| *since);
        let next = Settling {
            sent: false,
            refusals: settling.refusals.saturating_add(1),
            refused: Some((refusal, since)),
            ..settling
        };
        self.held.enter(place, Phase::Settling(next));
        self.refused.insert((now + wait, place));
    }

    /// More than one call can carry: a retry becomes a dead letter, an output an error. A release stays pending.
    fn settle_too_large(&mut self, place: Place, settling: &Settling, now: Duration) -> bool {
        match settling.settlement {
            Settlement::RetryAfter { .. } => {
                let letter = self.judge(place, now, |at, core| settle::too_large(at, &core.writer));
                if let Some(letter) = letter {
                    self.settle(place, letter);
                }
                true
            }
            Settlement::Commit { .. } => {
                let error = Failure::new("InvalidOutput", "an output holds more than 7,000 values");
                self.decide(place, Outcome::Retry { error, after: None }, now);
                true
            }
            Settlement::DeadLetter { .. } | Settlement::Release { .. } => false,
        }
    }

    /// Somebody else has the entry, or has settled it: nothing more is done here.
    pub(super) fn lose(&mut self, place: Place) {
        let Some(held) = self.held.remove(place) else {
            return;
        };
        if let Phase::Running { run, .. } = held.phase {
            self.ghosts.insert(run, place);
            self.orders.push(Order::Cancel(run));
        }
        self.tallies.leases_lost += 1;
        self.fact(Fact::LeaseLost(place));
    }

    fn change_settling(&mut self, place: Place, change: impl FnOnce(&mut Settling)) {
        self.held.update(place, |held| {
            if let Phase::Settling(settling) = &mut held.phase {
                change(settling);
            }
        });
    }
}

fn dead_lettered(origin: EntryId, context: &[(String, String)]) -> Fact {
    let get = |name: &str| {
        let pair = context.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    Fact::DeadLettered {
        origin,
        reason: get(letter::REASON),
        error_type: get(letter::ERROR_TYPE),
        error: get(letter::ERROR),
    }
}
