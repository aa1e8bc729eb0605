//! Which waiting entry starts next, alone or beside others, and which delivery counts that takes. Pure.

use std::time::Duration;

use super::held::{Hold, Phase};
use super::{Call, Core, Fact, Order, Task};
use crate::engine::settle::Guard;
use crate::streams::{Error, Place, SetCount};

/// A read parked for this long has found nothing: nothing else is ready.
pub(super) const PARKED_FOR: Duration = Duration::from_millis(100);

impl Core {
    pub(super) fn order_starts(&mut self, now: Duration) {
        if self.drain.is_none() && self.breaker.is_closed() && now >= self.throttle.next_start_at()
        {
            self.pick_starts(now);
        }
        self.order_counts();
    }

    fn pick_starts(&mut self, now: Duration) {
        if self.held.is_one_alone() {
            return;
        }
        if self.wants_solitary(now) {
            let clear = self.held.active() == 0 && self.held.limbo().is_empty();
            if let Some(place) = clear.then(|| self.next_solitary()).flatten() {
                self.start(place, true, now);
            }
            return;
        }
        while self.held.active() < self.capacity() {
            let Some(place) = self.next_ready() else {
                break;
            };
            self.start(place, false, now);
        }
    }

    /// Whether a solitary run comes before everything else now.
    ///
    /// After one, normal load has its turn for at least as long, unless nothing else is ready.
    pub(super) fn wants_solitary(&mut self, now: Duration) -> bool {
        let mut queue = std::mem::take(&mut self.solitary);
        queue.retain(|place| self.is_queued(*place, true));
        self.solitary = queue;
        self.solitary.iter().any(|place| self.may_start(*place))
            && (now >= self.solitary_not_before || self.is_nothing_else_ready(now))
    }

    fn is_nothing_else_ready(&self, now: Duration) -> bool {
        let parked = self
            .out
            .read
            .is_some_and(|(_, since)| now >= since + PARKED_FOR);
        self.ready.is_empty() && self.held.active() == 0 && (self.reading.empty || parked)
    }

    fn next_solitary(&mut self) -> Option<Place> {
        let index = self
            .solitary
            .iter()
            .position(|place| self.may_start(*place))?;
        self.solitary.remove(index)
    }

    /// The first that waits and has no twin at work; those with one keep their turn.
    fn next_ready(&mut self) -> Option<Place> {
        let mut twins = Vec::new();
        let mut found = None;
        while let Some(place) = self.ready.pop_front() {
            if !self.is_queued(place, false) {
                continue;
            }
            if self.may_start(place) {
                found = Some(place);
                break;
            }
            twins.push(place);
        }
        for place in twins.into_iter().rev() {
            self.ready.push_front(place);
        }
        found
    }

    /// Whether a place in a queue still belongs there.
    fn is_queued(&self, place: Place, alone: bool) -> bool {
        let max = self.max_deliveries();
        self.held.get(place).is_some_and(|held| {
            held.is_waiting()
                && matches!(held.guard(max), Guard::Start { alone: must, .. } if must == alone)
        })
    }

    /// Twins run one after the other; what is not delivered yet, or still runs here for nobody, waits.
    fn may_start(&self, place: Place) -> bool {
        self.held.get(place).is_some_and(|held| {
            held.hold != Hold::Undelivered
                && !self.held.has_working_twin(place, &held.key)
                && !self.ghosts.values().any(|ghost| *ghost == place)
        })
    }

    fn start(&mut self, place: Place, alone: bool, now: Duration) {
        let max = self.max_deliveries();
        let Some(held) = self.held.get(place) else {
            return;
        };
        let last = matches!(held.guard(max), Guard::Start { last: true, .. });
        // A fresh read that starts at once keeps the 1 that the read gave it; a trimmed entry has no count to write.
        if held.is_gone() || !(alone || last || held.count != held.base + 1) {
            self.begin(place, alone, now);
        } else {
            self.held.enter(place, Phase::Starting { alone });
            self.to_count.insert(place);
        }
    }

    pub(super) fn begin(&mut self, place: Place, alone: bool, now: Duration) {
        let max = self.max_deliveries();
        self.runs += 1;
        let run = self.runs;
        self.held.enter(
            place,
            Phase::Running {
                run,
                since: now,
                alone,
                ending: false,
            },
        );
        let Some(held) = self.held.get(place) else {
            return;
        };
        let meta = &held.entry.meta;
        let charged = held.charged(max);
        let first = meta.attempts == 0 && charged == 0 && meta.replays == 0;
        let enqueued_at = meta.first_enqueued_at;
        let call = Call {
            run,
            entry: held.entry.clone(),
            key: held.key.clone(),
            attempt: meta.attempts.saturating_add(1),
            deliveries: charged.saturating_add(1),
            fresh: alone || matches!(held.guard(max), Guard::Start { last: true, .. }),
        };
        self.orders.push(Order::Call(call));
        if first {
            let waited = self.wall_ms(now).saturating_sub(enqueued_at);
            self.fact(Fact::Waited(Duration::from_millis(waited)));
        }
    }

    fn order_counts(&mut self) {
        if self.out.has(Task::Counts) || self.to_count.is_empty() {
            return;
        }
        let places = std::mem::take(&mut self.to_count);
        let counts: Vec<SetCount> = places
            .into_iter()
            .filter_map(|place| {
                let held = self.held.get(place)?;
                let starting = matches!(held.phase, Phase::Starting { .. });
                let count = held.due_count();
                (held.hold == Hold::Leased && (starting || held.count != count))
                    .then_some(SetCount { place, count })
            })
            .collect();
        if !counts.is_empty() {
            self.out.begin(Task::Counts);
            self.orders.push(Order::SetCounts(counts));
        }
    }

    /// Delivery counts were written, or not.
    pub fn counted(&mut self, sent: &[SetCount], result: Result<Vec<bool>, Error>, now: Duration) {
        self.out.end(Task::Counts);
        let written = match result {
            Ok(written) => written,
            Err(error) => {
                self.to_count.extend(sent.iter().map(|count| count.place));
                self.session_ended(&error, now);
                return;
            }
        };
        for (sent, written) in sent.iter().zip(written) {
            if written {
                self.held.update(sent.place, |held| held.count = sent.count);
                self.start_counted(sent.place, now);
            } else if self.held.contains(sent.place) {
                // Taken by somebody, or trimmed: the renewal tells which.
                self.due.renew = now;
            }
        }
    }

    /// The start of an entry is charged on the server: it runs, unless something came between.
    fn start_counted(&mut self, place: Place, now: Duration) {
        let Some(held) = self.held.get(place) else {
            return;
        };
        let Phase::Starting { alone } = held.phase else {
            // The phase changed while the count was written.
            self.to_count.insert(place);
            return;
        };
        if held.count != held.due_count() {
            self.to_count.insert(place);
        } else if self.drain.is_some() || !self.breaker.is_closed() || !self.may_act(now) {
            self.rest(place);
        } else {
            self.begin(place, alone, now);
        }
    }

    /// An uncharged end, or a start that did not come to pass: back to waiting, at the count it had.
    pub(super) fn rest(&mut self, place: Place) {
        self.held.enter(place, Phase::Waiting);
        let max = self.max_deliveries();
        let Some(held) = self.held.get(place) else {
            return;
        };
        let alone = matches!(held.guard(max), Guard::Start { alone: true, .. });
        self.queue(place, alone);
        self.to_count.insert(place);
    }
}
