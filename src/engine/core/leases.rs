//! Leases: when they are renewed, and what a renewal found. Pure.
//!
//! Everything held, waiting or running, is renewed at a third of the visibility timeout. When the last good renewal is older
//! than that timeout nothing starts and nothing is settled ([`Core::may_act`]) until a renewal has told what is still ours.

use std::time::Duration;

use super::held::{Held, Hold, Phase};
use super::{Core, Fact, Link, Order, Task};
use crate::streams::{Error, Lane, LeaseState, Place};

impl Core {
    pub(super) fn order_renew(&mut self, now: Duration) {
        if self.out.has(Task::Renew) {
            return;
        }
        let Some(session) = self.session() else {
            return;
        };
        let first = !session.renewed;
        let places: Vec<Place> = self
            .held
            .iter()
            .filter(|(_, held)| !held.is_gone())
            .map(|(place, _)| place)
            .collect();
        if places.is_empty() {
            self.lease_good_at = now;
            self.mark_renewed();
        } else if first || now >= self.due.renew || now >= self.next_renewal() {
            self.out.begin(Task::Renew);
            self.due.renew = Duration::MAX;
            self.orders.push(Order::Renew(places));
        }
    }

    /// When the next renewal is due.
    pub(super) fn next_renewal(&self) -> Duration {
        self.lease_good_at + self.config.delivery.visibility_timeout / 3
    }

    fn mark_renewed(&mut self) {
        if let Link::Up(session) = &mut self.link {
            session.renewed = true;
        }
    }

    /// A renewal, sent at `sent_at`, came back.
    pub fn renewed(
        &mut self,
        places: &[Place],
        result: Result<Vec<LeaseState>, Error>,
        sent_at: Duration,
        now: Duration,
    ) {
        self.out.end(Task::Renew);
        let states = match result {
            Ok(states) => states,
            Err(error) => return self.session_ended(&error, now),
        };
        let visibility = self.config.delivery.visibility_timeout;
        let age = sent_at.saturating_sub(self.lease_good_at);
        // After an outage it says nothing of this machine.
        let was_renewed = self.session().is_some_and(|session| session.renewed);
        if was_renewed && age > visibility * 2 / 3 {
            self.tallies.leases_late += 1;
            self.fact(Fact::LeaseLate);
        }
        let lease_was_good = age < visibility;
        // What came while it was out was not among what it renewed.
        self.lease_good_at = self
            .unrenewed_since
            .take()
            .map_or(sent_at, |since| since.min(sent_at));
        self.mark_renewed();
        for (place, state) in places.iter().zip(states) {
            match state {
                LeaseState::Held => self.found_held(*place),
                LeaseState::Gone => self.found_gone(*place, lease_was_good, now),
                LeaseState::Stolen => self.found_stolen(*place, now),
                LeaseState::Undelivered => self.found_undelivered(*place),
            }
        }
    }

    /// What could not be written while nobody knew whose it is, is written now.
    fn found_held(&mut self, place: Place) {
        self.held.update(place, |held| {
            held.hold = Hold::Leased;
            // A settlement that was sent before had not gone through; one that is out may yet.
            held.doubtful &= is_being_settled(held);
        });
        match self.held.get(place).map(|held| &held.phase) {
            Some(Phase::Starting { .. }) => self.to_count.push(place),
            Some(Phase::Settling(settling)) if !settling.sent && settling.refused.is_none() => {
                self.to_settle.push_back(place);
            }
            Some(
                Phase::Waiting | Phase::Running { .. } | Phase::Limbo { .. } | Phase::Settling(_),
            )
            | None => {}
        }
    }

    /// Trimmed while held: under a good lease nobody else can have it, so it goes on without an owner.
    fn found_gone(&mut self, place: Place, lease_was_good: bool, now: Duration) {
        let Some(held) = self.held.get(place) else {
            return;
        };
        if is_being_settled(held) {
            return;
        }
        // In our own stream only a settlement deletes.
        if held.doubtful && place.lane == Lane::Retry {
            self.finish_doubtful(place, now);
        } else if lease_was_good {
            self.held.update(place, |held| held.hold = Hold::Gone);
            self.to_settle.push_back(place);
            if let Some(Phase::Starting { alone }) = self.held.get(place).map(|h| h.phase.clone()) {
                self.begin(place, alone, now);
            }
        } else {
            self.lose(place);
        }
    }

    /// The group was re-created before it: a read will bring it again, and then it goes on.
    fn found_undelivered(&mut self, place: Place) {
        self.held
            .update(place, |held| held.hold = Hold::Undelivered);
        if matches!(self.phase_of(place), Some(Phase::Starting { .. })) {
            self.rest(place);
        }
    }

    fn found_stolen(&mut self, place: Place, now: Duration) {
        let Some(held) = self.held.get(place) else {
            return;
        };
        if is_being_settled(held) {
            return;
        }
        if held.doubtful {
            self.finish_doubtful(place, now);
        } else {
            self.lose(place);
        }
    }

    /// A settlement whose reply was lost had gone through.
    fn finish_doubtful(&mut self, place: Place, now: Duration) {
        if let Some(Phase::Settling(settling)) = self.held.get(place).map(|h| h.phase.clone()) {
            self.finish(place, &settling.settlement, now, false);
        } else {
            self.lose(place);
        }
    }
}

/// Its own reply says what became of it.
fn is_being_settled(held: &Held) -> bool {
    matches!(&held.phase, Phase::Settling(settling) if settling.sent)
}
