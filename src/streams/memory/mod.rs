//! A broker in memory: the rules of the one on Redis without a server, for tests and simulations, with faults on demand.
//!
//! [`MemoryServer`] is what several brokers share, and where a test adds, trims and breaks; `tests/it/contract.rs` holds
//! both brokers to the same suite. Read next: `store.rs`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::{
    Backlog, Broker, Delivery, Error, IdempotencyKey, LeaseState, Opened, Place, Promoted,
    ReclaimCursor, Reclaimed, Reported, SetCount, Settings, Settle, Settled, Unreachable,
};

mod leases;
mod server;
mod session;
mod settle;
mod store;

use store::Store;

/// No connection: the number of a session that never was.
const NO_SESSION: u64 = 0;

/// A server in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryServer {
    shared: Arc<Shared>,
}

struct Shared {
    /// The server's clock: the time since the epoch.
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    /// Woken when anything has changed.
    changed: Notify,
}

/// What is wrong with the server at the moment.
#[derive(Debug)]
struct Faults {
    /// Sessions opened before this one are over.
    session: u64,
    /// Nobody listens.
    down: bool,
    /// Nothing is answered.
    paused: bool,
    /// So many calls take effect and are not answered.
    lost_replies: u32,
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServer").finish_non_exhaustive()
    }
}

/// One stage and one consumer on a [`MemoryServer`].
#[derive(Debug)]
pub struct MemoryBroker {
    server: MemoryServer,
    settings: Settings,
    /// The session of the last connect; [`NO_SESSION`] after it was lost.
    session: AtomicU64,
    /// This process has met the group.
    joined: AtomicU64,
    unblocked: Notify,
}

impl MemoryBroker {
    /// Runs one call: waits while the server is paused, then takes the store for one atomic step.
    async fn call<T>(
        &self,
        step: impl FnOnce(&mut Store, u64) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.answered().await?;
        let result = {
            let mut store = self.server.store();
            step(&mut store, self.server.now())
        };
        self.server.shared.changed.notify_waiters();
        if self.server.loses_reply() {
            return Err(self.lost("the reply was lost"));
        }
        result
    }

    /// Waits until the server answers, at most the command timeout; an error without a session.
    async fn answered(&self) -> Result<(), Error> {
        let waited = tokio::time::timeout(self.settings.command_timeout, self.server.unpaused());
        if waited.await.is_err() {
            return Err(self.lost("no answer in time"));
        }
        self.in_session()
    }

    fn in_session(&self) -> Result<(), Error> {
        let faults = self.server.faults();
        if faults.down || self.session.load(Ordering::Acquire) != faults.session {
            drop(faults);
            return Err(self.lost("there is no connection"));
        }
        Ok(())
    }

    /// Ends the session.
    fn lost(&self, detail: &str) -> Error {
        self.session.store(NO_SESSION, Ordering::Release);
        Error::Disconnected {
            address: self.settings.address.clone(),
            detail: detail.to_owned(),
        }
    }

    fn group_missing(&self) -> Error {
        Error::GroupMissing {
            stream: self.settings.keys.source.to_string(),
            group: self.settings.keys.group.to_string(),
        }
    }

    fn group(&self) -> &str {
        self.settings.keys.group.as_str()
    }

    fn consumer(&self) -> &str {
        self.settings.consumer.as_str()
    }
}

impl Broker for MemoryBroker {
    async fn connect(&self) -> Result<Opened, Error> {
        self.open_session().await
    }

    async fn read_retry(&self, count: usize) -> Result<Vec<Delivery>, Error> {
        self.call(|store, now| self.read_retry_now(store, count, now))
            .await
    }

    async fn read(&self, count: usize, block: Duration) -> Result<Vec<Delivery>, Error> {
        self.read_blocking(count, block).await
    }

    async fn unblock(&self) -> Result<(), Error> {
        self.answered().await?;
        self.unblocked.notify_waiters();
        Ok(())
    }

    async fn known(&self, keys: &[IdempotencyKey]) -> Result<Vec<bool>, Error> {
        self.call(|store, now| Ok(self.ledger_knows(store, keys, now)))
            .await
    }

    async fn set_counts(&self, counts: &[SetCount]) -> Result<Vec<bool>, Error> {
        self.call(|store, now| self.write_counts(store, counts, now))
            .await
    }

    async fn settle(&self, batch: &[Settle]) -> Result<Vec<Settled>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.call(|store, now| self.settle_batch(store, batch, now))
            .await
    }

    async fn renew(&self, places: &[Place]) -> Result<Vec<LeaseState>, Error> {
        self.call(|store, now| self.renew_leases(store, places, now))
            .await
    }

    async fn reclaim(
        &self,
        cursor: &ReclaimCursor,
        idle: Duration,
        limit: usize,
    ) -> Result<Reclaimed, Error> {
        self.call(|store, now| self.reclaim_page(store, cursor, idle, limit, now))
            .await
    }

    async fn promote(&self) -> Result<Promoted, Error> {
        self.call(|store, now| self.promote_due(store, now)).await
    }

    async fn report(
        &self,
        body: &str,
        every: Duration,
        visibility: Duration,
    ) -> Result<Reported, Error> {
        self.call(|store, now| self.write_report(store, body, every, visibility, now))
            .await
    }

    async fn retire(&self, own: bool, older_than: Duration) -> Result<u64, Error> {
        self.call(|store, now| self.retire_consumers(store, own, older_than, now))
            .await
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        self.call(|store, _| self.read_backlog(store)).await
    }
}
