//! Leases: when they are renewed, and what a renewal found. Pure.
//!
//! Everything held, waiting or running, is renewed at a third of the visibility timeout. When the last good renewal is older
//! than that timeout nothing starts and nothing is settled ([`Core::may_act`]) until a renewal has told what is still ours.

use std::time::Duration;

use super::held::{Held, Hold, Phase};
use super::{Core, Fact, Link, Order, Task};
use crate::streams::{Error, LeaseState, Place};

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
            self.unrenewed_since = None;
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
                LeaseState::Trimmed => self.found_gone(*place),
                LeaseState::Gone if lease_was_good => self.found_gone(*place),
                LeaseState::Gone | LeaseState::Stolen => self.found_stolen(*place),
                LeaseState::Settled => self.found_settled(*place, now),
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
            Some(Phase::Starting { .. }) => {
                self.to_count.insert(place);
            }
            Some(Phase::Settling(settling)) if !settling.sent => {
                self.to_settle.push_back(place);
            }
            Some(
                Phase::Waiting | Phase::Running { .. } | Phase::Limbo { .. } | Phase::Settling(_),
            )
            | None => {}
        }
    }

    /// Trimmed while held, and nobody else can have it: it goes on without an owner.
    fn found_gone(&mut self, place: Place) {
        if self.is_being_settled(place) {
            return;
        }
        self.held.update(place, |held| held.hold = Hold::Gone);
        match self.phase_of(place) {
            // It starts, or not, as what waits does.
            Some(Phase::Starting { .. }) => self.rest(place),
            Some(Phase::Settling(_)) => self.to_settle.push_back(place),
            Some(Phase::Waiting | Phase::Running { .. } | Phase::Limbo { .. }) | None => {}
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

    fn found_stolen(&mut self, place: Place) {
        if !self.is_being_settled(place) {
            self.lose(place);
        }
    }

    /// A settlement whose reply was lost had gone through; or somebody else's had.
    fn found_settled(&mut self, place: Place, now: Duration) {
        if self.is_being_settled(place) {
            return;
        }
        let doubtful = self.held.get(place).is_some_and(|held| held.doubtful);
        match self.phase_of(place) {
            Some(Phase::Settling(settling)) if doubtful => {
                self.finish(place, &settling.settlement, now, false);
            }
            Some(_) | None => self.lose(place),
        }
    }

    fn is_being_settled(&self, place: Place) -> bool {
        self.held.get(place).is_some_and(is_being_settled)
    }
}

/// Its own reply says what became of it.
fn is_being_settled(held: &Held) -> bool {
    matches!(&held.phase, Phase::Settling(settling) if settling.sent)
}
