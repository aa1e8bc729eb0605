//! What the server in memory holds: keys, streams, groups and their pending lists, by Redis's rules.
//!
//! Pure: every step takes the time, in milliseconds since the epoch, and none waits.

use std::collections::{BTreeMap, BTreeSet};

use crate::streams::recovery::{CursorFacts, StreamFacts};
use crate::streams::{EntryId, Fields, Meta, RefusalReason};

/// Every key of the server.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) streams: BTreeMap<String, Stream>,
    pub(super) delayed: BTreeMap<String, BTreeMap<(u64, u64), Member>>,
    /// Ledger keys and when they expire.
    pub(super) ledger: BTreeMap<String, u64>,
    pub(super) workers: BTreeMap<String, BTreeMap<String, Report>>,
    pub(super) cursors: BTreeMap<String, Cursor>,
    /// Keys that hold a text, whatever is asked of them.
    pub(super) texts: BTreeSet<String>,
    /// Keys that take no adds, and why.
    pub(super) refused: BTreeMap<String, RefusalReason>,
    /// At the memory limit.
    pub(super) full: bool,
    /// The salt of the next delayed member.
    next_salt: u64,
}

/// A member of `P:delayed`.
#[derive(Clone, Debug)]
pub(super) enum Member {
    Entry(Meta, Fields),
    /// Bytes that are no member.
    Raw(Vec<u8>),
}

/// A worker's report.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) at: u64,
    pub(super) body: String,
}

/// `P:cursor`.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    pub(super) facts: Option<CursorFacts>,
    pub(super) seen: Option<u64>,
    pub(super) grace: u64,
    pub(super) lost: u64,
}

/// A stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) entries: BTreeMap<EntryId, Fields>,
    last_id: EntryId,
    added: u64,
    pub(super) groups: BTreeMap<String, Group>,
}

/// A consumer group.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) delivered: EntryId,
    pub(super) pending: BTreeMap<EntryId, Pending>,
    pub(super) consumers: BTreeSet<String>,
    /// Entries removed before they were delivered, not yet counted as lost.
    pub(super) skipped: u64,
}

/// An entry delivered and not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) owner: String,
    pub(super) since: u64,
    pub(super) count: u32,
}

impl Store {
    /// Why `key` takes no add now.
    pub(super) fn refusal(&self, key: &str) -> Option<RefusalReason> {
        if self.full {
            Some(RefusalReason::OutOfMemory)
        } else if self.texts.contains(key) {
            Some(RefusalReason::WrongKeyType)
        } else {
            self.refused.get(key).copied()
        }
    }

    /// Appends an entry, cutting the stream to `longest` (0 = any length).
    pub(super) fn append(
        &mut self,
        key: &str,
        fields: Fields,
        longest: u64,
        now: u64,
    ) -> Result<EntryId, RefusalReason> {
        if let Some(reason) = self.refusal(key) {
            return Err(reason);
        }
        let stream = self.streams.entry(key.to_owned()).or_default();
        let id = stream.append(None, fields, now);
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        while longest > 0 && stream.entries.len() > longest {
            stream.remove_first();
        }
        Ok(id)
    }

    /// Puts a member among the delayed.
    pub(super) fn delay(
        &mut self,
        key: &str,
        due: u64,
        member: Member,
    ) -> Result<(), RefusalReason> {
        if let Some(reason) = self.refusal(key) {
            return Err(reason);
        }
        self.next_salt += 1;
        let set = self.delayed.entry(key.to_owned()).or_default();
        set.insert((due, self.next_salt), member);
        Ok(())
    }

    /// Removes a member from among the delayed.
    pub(super) fn remove_delayed(&mut self, key: &str, member: (u64, u64)) {
        if let Some(delayed) = self.delayed.get_mut(key) {
            delayed.remove(&member);
        }
    }

    /// Whether the ledger holds `key`.
    pub(super) fn knows(&self, key: &str, now: u64) -> bool {
        self.ledger.get(key).is_some_and(|expiry| *expiry > now)
    }

    /// Removes a key of any type.
    pub(super) fn delete(&mut self, key: &str) {
        self.streams.remove(key);
        self.delayed.remove(key);
        self.ledger.remove(key);
        self.workers.remove(key);
        self.cursors.remove(key);
        self.texts.remove(key);
    }

    /// Whether an entry lies in its stream.
    pub(super) fn holds(&self, stream: &str, id: EntryId) -> bool {
        let stream = self.streams.get(stream);
        stream.is_some_and(|stream| stream.entries.contains_key(&id))
    }

    /// The group of a stream, if both are there.
    pub(super) fn group(&mut self, stream: &str, group: &str) -> Option<&mut Group> {
        self.streams.get_mut(stream)?.groups.get_mut(group)
    }
}

impl Stream {
    /// Appends under `id`, or under the next one.
    pub(super) fn append(&mut self, id: Option<EntryId>, fields: Fields, now: u64) -> EntryId {
        let next = EntryId::new(self.last_id.millis, self.last_id.sequence + 1);
        let id = id.unwrap_or_else(|| EntryId::new(now, 0).max(next));
        self.last_id = self.last_id.max(id);
        self.added += 1;
        self.entries.insert(id, fields);
        id
    }

    /// Removes the first entry; a group that had not read it has lost it.
    pub(super) fn remove_first(&mut self) -> bool {
        let Some((id, _)) = self.entries.pop_first() else {
            return false;
        };
        for group in self.groups.values_mut() {
            if group.delivered < id {
                group.skipped += 1;
            }
        }
        true
    }

    pub(super) fn facts(&self) -> StreamFacts {
        StreamFacts {
            last_id: self.last_id,
            added: Some(self.added),
        }
    }

    /// Delivers up to `count` entries that the group has not seen.
    pub(super) fn read(
        &mut self,
        group: &str,
        consumer: &str,
        count: usize,
        now: u64,
    ) -> Option<Vec<(EntryId, Fields)>> {
        let group = self.groups.get_mut(group)?;
        let after = (
            std::ops::Bound::Excluded(group.delivered),
            std::ops::Bound::Unbounded,
        );
        let fresh = self.entries.range(after).take(count);
        let fresh = fresh
            .map(|(id, fields)| (*id, fields.clone()))
            .collect::<Vec<_>>();
        for (id, _) in &fresh {
            group.delivered = *id;
            group.consumers.insert(consumer.to_owned());
            let pending = Pending {
                owner: consumer.to_owned(),
                since: now,
                count: 1,
            };
            group.pending.insert(*id, pending);
        }
        Some(fresh)
    }

    /// How many entries the group has not seen.
    pub(super) fn undelivered(&self, group: &str) -> usize {
        let delivered = self
            .groups
            .get(group)
            .map_or(EntryId::ZERO, |group| group.delivered);
        self.entries.keys().filter(|id| **id > delivered).count()
    }
}

impl Group {
    /// Whether the entry is pending under `consumer`.
    pub(super) fn holds(&self, consumer: &str, id: EntryId) -> bool {
        self.pending
            .get(&id)
            .is_some_and(|pending| pending.owner == consumer)
    }

    /// Everything up to here is settled.
    pub(super) fn position(&self) -> EntryId {
        let oldest = self.pending.keys().next();
        oldest.map_or(self.delivered, |id| id.before().min(self.delivered))
    }
}
