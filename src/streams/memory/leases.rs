//! Leases: counts, renewals and reclaim.

use std::ops::Bound;
use std::sync::Arc;

use super::server::millis;
use super::store::Store;
use super::{
    Delivery, Duration, Error, LeaseState, MemoryBroker, Place, ReclaimCursor, Reclaimed, SetCount,
};
use crate::streams::{Entry, EntryId, Lane};

/// The pending entries that one call looks at, per stream.
const PAGE: usize = 100;

/// What a reclaim may still take, and from whom.
struct Search {
    idle: Duration,
    room: usize,
    now: u64,
}

impl MemoryBroker {
    pub(super) fn write_counts(
        &self,
        store: &mut Store,
        counts: &[SetCount],
        now: u64,
    ) -> Result<Vec<bool>, Error> {
        let mut ours = Vec::with_capacity(counts.len());
        for SetCount { place, count } in counts {
            self.has_group(store, place.lane)?;
            let stream = self.settings.keys.stream(place.lane).as_str();
            let is_there = store.holds(stream, place.id);
            let pending = store
                .group(stream, self.group())
                .and_then(|group| group.pending.get_mut(&place.id))
                .filter(|pending| pending.owner == self.consumer());
            ours.push(pending.is_some());
            // A claim writes the count on a server: it renews too, and would drop what was trimmed.
            if let Some(pending) = pending.filter(|_| is_there) {
                pending.count = *count;
                pending.since = now;
            }
        }
        Ok(ours)
    }

    pub(super) fn renew_leases(
        &self,
        store: &mut Store,
        places: &[Place],
        now: u64,
    ) -> Result<Vec<LeaseState>, Error> {
        for place in places {
            self.has_group(store, place.lane)?;
        }
        Ok(places
            .iter()
            .map(|place| self.renew_one(store, *place, now))
            .collect())
    }

    fn renew_one(&self, store: &mut Store, place: Place, now: u64) -> LeaseState {
        let stream = store
            .streams
            .get_mut(self.settings.keys.stream(place.lane).as_str());
        let Some(stream) = stream else {
            return LeaseState::Stolen;
        };
        let is_there = stream.entries.contains_key(&place.id);
        let Some(group) = stream.groups.get_mut(self.group()) else {
            return LeaseState::Stolen;
        };
        if group.holds(self.consumer(), place.id) {
            if !is_there {
                group.pending.remove(&place.id);
                return LeaseState::Trimmed;
            }
            if let Some(pending) = group.pending.get_mut(&place.id) {
                pending.since = now;
            }
            return LeaseState::Held;
        }
        if group.pending.contains_key(&place.id) {
            return LeaseState::Stolen;
        }
        match (is_there, place.lane) {
            (true, _) if place.id > group.delivered => LeaseState::Undelivered,
            (false, Lane::Source) => LeaseState::Gone,
            // In P:retry an entry leaves the stream with its ack: its absence means settled, not trimmed.
            (true, _) | (false, Lane::Retry) => LeaseState::Settled,
        }
    }

    pub(super) fn reclaim_page(
        &self,
        store: &mut Store,
        cursor: &ReclaimCursor,
        idle: Duration,
        limit: usize,
        now: u64,
    ) -> Result<Reclaimed, Error> {
        self.has_both_groups(store)?;
        let key = &self.settings.keys.cursor;
        let grace = store.cursors.get(key).map_or(0, |cursor| cursor.grace);
        let mut reclaimed = Reclaimed::default();
        if grace > now {
            reclaimed.grace = Some(Duration::from_millis(grace - now));
            return Ok(reclaimed);
        }
        let mut search = Search {
            idle,
            room: limit,
            now,
        };
        let (retry_ended, retry) = self.look(
            store,
            Lane::Retry,
            cursor.retry,
            &mut search,
            &mut reclaimed,
        );
        let (source_ended, source) = self.look(
            store,
            Lane::Source,
            cursor.source,
            &mut search,
            &mut reclaimed,
        );
        store.cursors.entry(key.clone()).or_default().lost += reclaimed.lost;
        reclaimed.more = !(retry_ended && source_ended);
        reclaimed.cursor = ReclaimCursor {
            source: source.filter(|_| !source_ended),
            retry: retry.filter(|_| !retry_ended),
        };
        Ok(reclaimed)
    }

    /// Looks at one page; returns whether the list ended, and the last id looked at.
    fn look(
        &self,
        store: &mut Store,
        lane: Lane,
        after: Option<EntryId>,
        search: &mut Search,
        reclaimed: &mut Reclaimed,
    ) -> (bool, Option<EntryId>) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let key = self.settings.keys.stream(lane).as_str();
        let page = match store.group(key, self.group()) {
            Some(group) => {
                let rows = group.pending.range((from, Bound::Unbounded)).take(PAGE);
                rows.map(|(id, held)| (*id, held.clone()))
                    .collect::<Vec<_>>()
            }
            None => Vec::new(),
        };
        let (mut last, mut looked) = (after, 0);
        for (id, held) in &page {
            if search.room == 0 {
                break;
            }
            (last, looked) = (Some(*id), looked + 1);
            let patience = self.patience_with(store, &held.owner, search.idle);
            if search.now.saturating_sub(held.since) < patience {
                continue;
            }
            match self.claim(store, Place { lane, id: *id }, search.now) {
                Some(delivery) => {
                    search.room -= 1;
                    reclaimed.claimed.push(delivery);
                }
                None => reclaimed.lost += 1,
            }
        }
        (looked == page.len() && page.len() < PAGE, last)
    }

    /// How long `owner` may be silent: what it was promised, if that is more.
    fn patience_with(&self, store: &Store, owner: &str, idle: Duration) -> u64 {
        let reports = store.workers.get(&self.settings.keys.workers);
        let report = reports.and_then(|reports| reports.get(owner));
        let promised = report
            .and_then(|report| serde_json::from_str::<serde_json::Value>(&report.body).ok())
            .and_then(|report| report.get("visibilityMs")?.as_u64());
        promised.unwrap_or(0).max(millis(idle))
    }

    /// Takes an entry over; `None` if it was trimmed while pending.
    fn claim(&self, store: &mut Store, place: Place, now: u64) -> Option<Delivery> {
        let stream = store
            .streams
            .get_mut(self.settings.keys.stream(place.lane).as_str())?;
        let group = stream.groups.get_mut(self.group())?;
        let Some(fields) = stream.entries.get(&place.id) else {
            group.pending.remove(&place.id);
            return None;
        };
        group.consumers.insert(self.consumer().to_owned());
        let pending = group.pending.get_mut(&place.id)?;
        self.consumer().clone_into(&mut pending.owner);
        pending.since = now;
        Some(Delivery {
            entry: Arc::new(Entry::met(place, fields.clone(), now)),
            count: pending.count,
        })
    }
}
