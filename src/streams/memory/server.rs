//! The server's own side: what a test adds, trims, breaks and looks at.

use super::{
    Arc, AtomicU64, Duration, Faults, MemoryBroker, MemoryServer, Mutex, MutexGuard, NO_SESSION,
    Notify, PoisonError, Settings, Shared, Store,
};
use crate::streams::memory::store::Member;
use crate::streams::{EntryId, Fields, GroupName, RefusalReason};

impl MemoryServer {
    /// An empty server; `now` is its clock, the time since the epoch.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                now: Box::new(now),
                store: Mutex::default(),
                faults: Mutex::new(Faults {
                    session: NO_SESSION + 1,
                    down: false,
                    paused: false,
                    lost_replies: 0,
                }),
                changed: Notify::new(),
            }),
        }
    }

    /// A broker of one stage and consumer; not connected yet.
    pub fn broker(&self, settings: Settings) -> MemoryBroker {
        MemoryBroker {
            server: self.clone(),
            settings,
            session: AtomicU64::new(NO_SESSION),
            joined: AtomicU64::new(0),
            unblocked: Notify::new(),
        }
    }

    /// Adds an entry, as a producer does.
    pub fn add(&self, stream: &str, fields: Fields) -> EntryId {
        self.add_as(stream, None, fields)
    }

    /// Adds an entry under an id of the producer's choice.
    pub fn add_as(&self, stream: &str, id: Option<EntryId>, fields: Fields) -> EntryId {
        let now = self.now();
        self.change(|store| {
            let stream = store.streams.entry(stream.to_owned()).or_default();
            stream.append(id, fields, now)
        })
    }

    /// Puts raw bytes among the delayed of `key`, due at the beginning of time.
    pub fn delay_raw(&self, key: &str, member: &[u8]) {
        self.change(|store| store.delay(key, 0, Member::Raw(member.to_vec())).is_ok());
    }

    /// What lies in a stream.
    pub fn entries(&self, stream: &str) -> Vec<(EntryId, Fields)> {
        let store = self.store();
        let entries = store
            .streams
            .get(stream)
            .into_iter()
            .flat_map(|stream| &stream.entries);
        entries.map(|(id, fields)| (*id, fields.clone())).collect()
    }

    /// Removes every entry of a stream; ids go on.
    pub fn trim(&self, stream: &str) {
        self.change(|store| {
            if let Some(stream) = store.streams.get_mut(stream) {
                while stream.remove_first() {}
            }
        });
    }

    /// Destroys a group.
    pub fn destroy_group(&self, stream: &str, group: &GroupName) {
        self.change(|store| {
            if let Some(stream) = store.streams.get_mut(stream) {
                stream.groups.remove(group.as_str());
            }
        });
    }

    /// Removes a key of any type.
    pub fn delete(&self, key: &str) {
        self.change(|store| store.delete(key));
    }

    /// Puts a text under `key`, whatever it held.
    pub fn make_text(&self, key: &str) {
        self.change(|store| {
            store.delete(key);
            store.texts.insert(key.to_owned());
        });
    }

    /// At the memory limit with nothing to evict, or not any more: every add is refused.
    pub fn set_full(&self, full: bool) {
        self.change(|store| store.full = full);
    }

    /// Refuses every add to `key` for this reason, or for none any more.
    pub fn refuse_adds(&self, key: &str, reason: Option<RefusalReason>) {
        self.change(|store| {
            match reason {
                Some(reason) => store.refused.insert(key.to_owned(), reason),
                None => store.refused.remove(key),
            };
        });
    }

    /// Makes a pending entry look as if its owner had been silent for so long.
    pub fn silence(&self, stream: &str, group: &GroupName, id: EntryId, silent_for: Duration) {
        let since = self.now().saturating_sub(millis(silent_for));
        self.change(|store| {
            let group = store.group(stream, group.as_str());
            if let Some(pending) = group.and_then(|group| group.pending.get_mut(&id)) {
                pending.since = since;
            }
        });
    }

    /// The delivery count of a pending entry.
    pub fn delivery_count(&self, stream: &str, group: &GroupName, id: EntryId) -> Option<u32> {
        let mut store = self.store();
        let group = store.group(stream, group.as_str())?;
        group.pending.get(&id).map(|pending| pending.count)
    }

    /// Makes the last report of anybody, recorded under `cursor`, look so much older.
    pub fn forget_reports(&self, cursor: &str, silent_for: Duration) {
        self.change(|store| {
            if let Some(cursor) = store.cursors.get_mut(cursor) {
                let seen = cursor
                    .seen
                    .map(|seen| seen.saturating_sub(millis(silent_for)));
                cursor.seen = seen;
            }
        });
    }

    /// The consumers that a group knows.
    pub fn consumers(&self, stream: &str, group: &GroupName) -> Vec<String> {
        let mut store = self.store();
        let group = store.group(stream, group.as_str());
        group.map_or_else(Vec::new, |group| group.consumers.iter().cloned().collect())
    }

    /// Ends every session; a broker may connect again at once.
    pub fn drop_connections(&self) {
        self.faults().session += 1;
        self.shared.changed.notify_waiters();
    }

    /// Nobody listens any more, or again.
    pub fn set_down(&self, down: bool) {
        self.faults().down = down;
        self.drop_connections();
    }

    /// Stops answering, or goes on; callers give up after their command timeout.
    pub fn set_paused(&self, paused: bool) {
        self.faults().paused = paused;
        self.shared.changed.notify_waiters();
    }

    /// Lets the next calls take effect without an answer: their sessions end.
    pub fn lose_replies(&self, calls: u32) {
        self.faults().lost_replies = calls;
    }

    /// The server's clock, in milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        millis((self.shared.now)())
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.shared
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.shared
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn loses_reply(&self) -> bool {
        let mut faults = self.faults();
        let loses = faults.lost_replies > 0;
        faults.lost_replies = faults.lost_replies.saturating_sub(1);
        loses
    }

    /// Ready once the server answers.
    pub(super) async fn unpaused(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if !self.faults().paused {
                return;
            }
            changed.await;
        }
    }

    fn change<T>(&self, step: impl FnOnce(&mut Store) -> T) -> T {
        let done = step(&mut self.store());
        self.shared.changed.notify_waiters();
        done
    }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
