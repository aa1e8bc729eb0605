//! Sessions, reads, reports and numbers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::server::millis;
use super::store::{Report, Store};
use super::{
    Backlog, Delivery, Duration, Error, IdempotencyKey, MemoryBroker, Opened, Ordering, Reported,
    Unreachable,
};
use crate::streams::recovery::{CursorFacts, Facts, recovery_start};
use crate::streams::{ConsumerName, Entry, EntryId, GroupCreation, Lane, Place};

impl MemoryBroker {
    pub(super) async fn open_session(&self) -> Result<Opened, Error> {
        let unreachable = |reason| Error::Unreachable {
            address: self.settings.address.clone(),
            reason,
        };
        let waited = tokio::time::timeout(self.settings.connect_timeout, self.server.unpaused());
        waited
            .await
            .map_err(|_| unreachable(Unreachable::Timeout))?;
        {
            let faults = self.server.faults();
            if faults.down {
                return Err(unreachable(Unreachable::ConnectionRefused));
            }
            self.session.store(faults.session, Ordering::Release);
        }
        let opened = self.call(|store, _| self.ensure_groups(store)).await;
        if opened.is_err() {
            self.session.store(super::NO_SESSION, Ordering::Release);
        }
        opened
    }

    fn ensure_groups(&self, store: &mut Store) -> Result<Opened, Error> {
        self.check_types(store)?;
        let keys = &self.settings.keys;
        self.ensure_group(store, keys.retry.as_str(), EntryId::ZERO)?;
        let stream = store.streams.get(keys.source.as_str());
        let mut group_created_at = None;
        if !stream.is_some_and(|stream| stream.groups.contains_key(self.group())) {
            if self.settings.group_creation == GroupCreation::Never {
                return Err(self.group_missing());
            }
            let start = recovery_start(&Facts {
                stream: stream.map(super::store::Stream::facts),
                cursor: store
                    .cursors
                    .get(&keys.cursor)
                    .and_then(|cursor| cursor.facts),
                joined: self.joined.load(Ordering::Relaxed) > 0,
                start_from: self.settings.start_from,
            });
            self.ensure_group(store, keys.source.as_str(), start)?;
            group_created_at = Some(start);
        }
        self.joined.store(1, Ordering::Relaxed);
        Ok(Opened {
            server: "memory".to_owned(),
            group_created_at,
            ..Opened::default()
        })
    }

    fn ensure_group(&self, store: &mut Store, key: &str, start: EntryId) -> Result<(), Error> {
        if store.group(key, self.group()).is_some() {
            return Ok(());
        }
        if store.full {
            return Err(Error::Full);
        }
        let stream = store.streams.entry(key.to_owned()).or_default();
        let group = stream.groups.entry(self.group().to_owned()).or_default();
        group.delivered = start;
        Ok(())
    }

    /// The keys a stage lives in must have their type.
    pub(super) fn check_types(&self, store: &Store) -> Result<(), Error> {
        let keys = &self.settings.keys;
        let fixed = [
            (keys.source.as_str(), "stream"),
            (keys.retry.as_str(), "stream"),
            (keys.delayed.as_str(), "zset"),
            (keys.workers.as_str(), "hash"),
            (keys.cursor.as_str(), "hash"),
        ];
        let wrong = fixed.iter().find(|(key, _)| store.texts.contains(*key));
        wrong.map_or(Ok(()), |(key, expected)| {
            Err(Error::WrongType {
                key: (*key).to_owned(),
                expected,
            })
        })
    }

    pub(super) async fn read_blocking(
        &self,
        count: usize,
        block: Duration,
    ) -> Result<Vec<Delivery>, Error> {
        let deadline = tokio::time::sleep(block);
        tokio::pin!(deadline);
        loop {
            // Both count from here, before the look, so nothing between look and wait is missed.
            let changed = self.server.shared.changed.notified();
            let unblocked = self.unblocked.notified();

            self.answered().await?;
            let deliveries = self.read_both(count)?;
            if !deliveries.is_empty() {
                if self.server.loses_reply() {
                    return Err(self.lost("the reply was lost"));
                }
                return Ok(deliveries);
            }
            tokio::select! {
                () = changed => {}
                () = unblocked => return Ok(Vec::new()),
                () = &mut deadline => return Ok(Vec::new()),
            }
        }
    }

    fn read_both(&self, count: usize) -> Result<Vec<Delivery>, Error> {
        let (mut store, now) = (self.server.store(), self.server.now());
        self.has_both_groups(&store)?;
        let mut deliveries = self.read_lane(&mut store, Lane::Source, count, now)?;
        deliveries.extend(self.read_lane(&mut store, Lane::Retry, count, now)?);
        Ok(deliveries)
    }

    pub(super) fn read_retry_now(
        &self,
        store: &mut Store,
        count: usize,
        now: u64,
    ) -> Result<Vec<Delivery>, Error> {
        self.read_lane(store, Lane::Retry, count, now)
    }

    fn read_lane(
        &self,
        store: &mut Store,
        lane: Lane,
        count: usize,
        now: u64,
    ) -> Result<Vec<Delivery>, Error> {
        let stream = store
            .streams
            .get_mut(self.settings.keys.stream(lane).as_str());
        let fresh = stream
            .and_then(|stream| stream.read(self.group(), self.consumer(), count, now))
            .ok_or_else(|| self.group_missing())?;
        let delivery = |(id, fields)| Delivery {
            entry: Arc::new(Entry::met(Place { lane, id }, fields, now)),
            count: 1,
        };
        Ok(fresh.into_iter().map(delivery).collect())
    }

    /// A read of several streams fails as a whole where one group is missing.
    pub(super) fn has_both_groups(&self, store: &Store) -> Result<(), Error> {
        self.has_group(store, Lane::Source)?;
        self.has_group(store, Lane::Retry)
    }

    pub(super) fn has_group(&self, store: &Store, lane: Lane) -> Result<(), Error> {
        let stream = store.streams.get(self.settings.keys.stream(lane).as_str());
        if stream.is_some_and(|stream| stream.groups.contains_key(self.group())) {
            return Ok(());
        }
        self.check_types(store)?;
        Err(self.group_missing())
    }

    pub(super) fn ledger_key(&self, key: &IdempotencyKey) -> String {
        format!("{}{key}", self.settings.keys.done_prefix)
    }

    pub(super) fn ledger_knows(
        &self,
        store: &Store,
        keys: &[IdempotencyKey],
        now: u64,
    ) -> Vec<bool> {
        let kept = self.settings.ledger_window.is_some();
        let known = keys
            .iter()
            .map(|key| kept && store.knows(&self.ledger_key(key), now));
        known.collect()
    }

    pub(super) fn write_report(
        &self,
        store: &mut Store,
        body: &str,
        every: Duration,
        visibility: Duration,
        now: u64,
    ) -> Result<Reported, Error> {
        self.check_types(store)?;
        let keys = &self.settings.keys;
        let stream = store.streams.get_mut(keys.source.as_str());
        let stream = stream.ok_or_else(|| self.group_missing())?;
        let facts = stream.facts();
        let group = stream
            .groups
            .get_mut(self.group())
            .ok_or_else(|| self.group_missing())?;
        if store.full {
            return Err(Error::Full);
        }
        let position = group.position();
        let skipped = std::mem::take(&mut group.skipped);

        let cursor = store.cursors.entry(keys.cursor.clone()).or_default();
        let silence = cursor.seen.map(|seen| now.saturating_sub(seen));
        let outage = silence.is_some_and(|ms| ms > millis((every * 2).max(visibility / 2)));
        cursor.facts = Some(CursorFacts {
            position,
            stream: facts,
        });
        cursor.seen = Some(now);
        cursor.lost += skipped;
        if outage {
            cursor.grace = now.saturating_add(millis(visibility));
        }
        let reports = store.workers.entry(keys.workers.clone()).or_default();
        let report = Report {
            at: now,
            body: body.to_owned(),
        };
        reports.insert(self.consumer().to_owned(), report);
        Ok(Reported {
            outage,
            lost: skipped,
        })
    }

    pub(super) fn retire_consumers(
        &self,
        store: &mut Store,
        own: bool,
        older_than: Duration,
        now: u64,
    ) -> Result<u64, Error> {
        let oldest = now.saturating_sub(millis(older_than));
        let candidates = if own {
            BTreeSet::from([self.consumer().to_owned()])
        } else {
            // Who retires itself needs no group; who looks for others must see the lists of both.
            self.has_both_groups(store)?;
            self.silent_consumers(store, oldest)
        };
        let retired = candidates
            .iter()
            .map(|name| u64::from(self.retire_if_idle(store, name)));
        Ok(retired.sum())
    }

    fn silent_consumers(&self, store: &mut Store, oldest: u64) -> BTreeSet<String> {
        let keys = &self.settings.keys;
        let mut names = BTreeSet::new();
        for lane in [Lane::Source, Lane::Retry] {
            if let Some(group) = store.group(keys.stream(lane).as_str(), self.group()) {
                names.extend(group.consumers.iter().cloned());
            }
        }
        let reports = store.workers.entry(keys.workers.clone()).or_default();
        names.extend(reports.keys().cloned());
        names.retain(|name| {
            let is_silent = reports.get(name).is_none_or(|report| report.at < oldest);
            name != self.consumer() && ConsumerName::new(name).is_ours() && is_silent
        });
        names
    }

    fn retire_if_idle(&self, store: &mut Store, name: &str) -> bool {
        let keys = &self.settings.keys;
        let streams = [Lane::Source, Lane::Retry].map(|lane| keys.stream(lane).as_str());
        for stream in streams {
            let group = store.group(stream, self.group());
            if group.is_some_and(|group| group.pending.values().any(|held| held.owner == name)) {
                return false;
            }
        }
        for stream in streams {
            if let Some(group) = store.group(stream, self.group()) {
                group.consumers.remove(name);
            }
        }
        if let Some(reports) = store.workers.get_mut(&keys.workers) {
            reports.remove(name);
        }
        true
    }

    pub(super) fn read_backlog(&self, store: &mut Store) -> Result<Backlog, Error> {
        self.check_types(store)?;
        self.has_both_groups(store)?;
        let keys = &self.settings.keys;
        let mut backlog = Backlog {
            undelivered: Some(0),
            delayed: store
                .delayed
                .get(&keys.delayed)
                .map_or(0, |set| set.len() as u64),
            lost: store
                .cursors
                .get(&keys.cursor)
                .map_or(0, |cursor| cursor.lost),
            ..Backlog::default()
        };
        let dead = store.streams.get(keys.dead.as_str());
        backlog.dead_letters = dead.map_or(0, |stream| stream.entries.len() as u64);
        for lane in [Lane::Source, Lane::Retry] {
            if let Some(stream) = store.streams.get(keys.stream(lane).as_str()) {
                let waiting = stream.undelivered(self.group()) as u64;
                backlog.undelivered = backlog.undelivered.map(|sum| sum + waiting);
                let group = stream.groups.get(self.group());
                backlog.pending += group.map_or(0, |group| group.pending.len() as u64);
            }
        }
        Ok(backlog)
    }
}
