//! The way out: nothing new, what has not started is handed back, what runs may finish. Pure.
//!
//! A planned stop costs no entry a delivery or an attempt, as long as Redis answers.

use std::time::Duration;

use super::held::{Held, Hold, Phase};
use super::{Core, Fact, Order, Task};
use crate::streams::{Error, Meta, Place, Settlement};

/// A parked read that goes on is told again to end after this long.
pub(super) const UNBLOCK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// After the drain timeout, so long for cancelled handlers to answer and for the last settlements.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The same, when the order was to stop at once: longer than a child that ignores TERM lives on.
const LAST_WORDS_AT_ONCE: Duration = Duration::from_secs(4);

/// A drain under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// Then running handlers are cancelled.
    deadline: Duration,
    /// Then it is over, whatever is left.
    hard: Duration,
    over: bool,
}

impl Drain {
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) fn hard_deadline(&self) -> Duration {
        self.hard
    }
}

impl Core {
    /// The order to stop: with time for what runs, or (`at_once`) without.
    pub fn drain(&mut self, at_once: bool, now: Duration) {
        let (grace, last_words) = if at_once {
            (Duration::ZERO, LAST_WORDS_AT_ONCE)
        } else {
            (self.config.drain_timeout, LAST_WORDS)
        };
        let deadline = now + grace;
        if self.drain.is_none() {
            self.fact(Fact::Draining {
                running: self.held.active(),
                within: grace,
            });
        }
        let before = self.drain.map_or(deadline, |drain| drain.deadline);
        let deadline = deadline.min(before);
        self.drain = Some(Drain {
            deadline,
            hard: deadline + last_words,
            over: false,
        });
    }

    /// Whether the order to stop was given.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    pub(super) fn drain_step(&mut self, now: Duration) {
        let Some(drain) = self.drain.filter(|drain| !drain.over) else {
            return;
        };
        if self.out.read.is_some() && self.is_connected() {
            self.order_unblock(now);
        }
        self.drop_undelivered();
        self.release_waiting(Some(now));
        if now >= drain.deadline {
            self.cancel_running();
        }
        let empty = self.held.is_empty() && self.out.read.is_none() && self.out.reclaim == 0;
        if now >= drain.hard || (empty && !self.is_connected()) {
            self.end_drain();
        } else if empty
            && !self.out.has(Task::Retire)
            && !self.out.has(Task::Report)
            && self.may_act(now)
        {
            self.out.begin(Task::Retire);
            self.orders.push(Order::Retire { own: true });
        }
    }

    /// Whether this consumer's last order is out.
    pub(super) fn is_retiring(&self) -> bool {
        self.drain.is_some() && self.out.has(Task::Retire)
    }

    /// What a re-created group has yet to deliver is held by nobody: whoever reads it will run it.
    fn drop_undelivered(&mut self) {
        let undelivered: Vec<Place> = self
            .held
            .iter()
            .filter(|(_, held)| held.hold == Hold::Undelivered)
            .filter(|(_, held)| !matches!(held.phase, Phase::Running { .. }))
            .map(|(place, _)| place)
            .collect();
        for place in undelivered {
            self.held.remove(place);
        }
    }

    /// Consumers were deleted, or not.
    pub fn retired(&mut self, own: bool, result: Result<u64, Error>, now: Duration) {
        self.out.end(Task::Retire);
        if own {
            self.end_drain();
        } else if let Err(error) = result {
            self.session_ended(&error, now);
        }
    }

    fn end_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.over = true;
        }
        if !self.held.is_empty() {
            self.fact(Fact::Left(self.held.len()));
        }
    }

    /// Hands back the waiting entries taken in by then whose count on the server is what it must be; the others follow.
    pub(super) fn release_waiting(&mut self, taken_in_by: Option<Duration>) {
        let max = self.max_deliveries();
        let waiting: Vec<(Place, Option<Meta>)> = self
            .held
            .iter()
            .filter(|(_, held)| held.is_waiting() && held.hold != Hold::Undelivered)
            .filter(|(_, held)| taken_in_by.is_some_and(|by| held.since <= by))
            .map(|(place, held)| {
                let ready = held.is_gone() || held.count == held.resting_count();
                (place, ready.then(|| meta_of_release(held, max)))
            })
            .collect();
        for (place, meta) in waiting {
            match meta {
                Some(meta) => self.settle(place, Settlement::Release { meta }),
                None => {
                    self.to_count.insert(place);
                }
            }
        }
    }

    fn cancel_running(&mut self) {
        let running: Vec<(Place, u64)> = self
            .held
            .iter()
            .filter_map(|(place, held)| match held.phase {
                Phase::Running {
                    run, ending: false, ..
                } => Some((place, run)),
                Phase::Running { .. }
                | Phase::Waiting
                | Phase::Starting { .. }
                | Phase::Limbo { .. }
                | Phase::Settling(_) => None,
            })
            .collect();
        for (place, run) in running {
            self.held.update(place, |held| {
                if let Phase::Running { ending, .. } = &mut held.phase {
                    *ending = true;
                }
            });
            self.orders.push(Order::Cancel(run));
        }
    }
}

/// What a released entry carries on: the charges so far, and its mark.
fn meta_of_release(held: &Held, max_deliveries: u32) -> Meta {
    Meta {
        crashes: held.charged(max_deliveries) + u32::from(held.suspect),
        suspect: held.suspect,
        ..held.entry.meta.clone()
    }
}
