//! The broker on a Redis (or Valkey) server. The only place that knows the `redis` crate and Lua.
//!
//! `S` is the source stream, `G` its group; `P` = `{S}:G` keeps every derived key in the slot of S.
//!
//! | key | type | what |
//! | --- | --- | --- |
//! | `S` | stream | the source, shared with other groups: never trimmed by us |
//! | `P:retry` | stream | this group's due retries, releases and replays; an entry is deleted with its ack |
//! | `P:delayed` | sorted set | retries that are not due; score = due time in ms, member: `delayed.rs` |
//! | `P:dead` | stream | dead letters |
//! | `P:done:*` | string | committed idempotency keys, until they expire |
//! | `P:workers` | hash | one report per consumer, as JSON |
//! | `P:cursor` | hash | `position`, `lastId`, `added` of the group on S; `seen`, `grace`, `lost`, `trimmed` |
//!
//! One file per concern, its scripts beside it. Two connections: the reader, which only ever parks in a blocking read,
//! and the committer for everything else. Read next: `settle.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, RedisError, Value};

use super::{
    Backlog, Broker, Delivery, EntryId, Error, Fields, IdempotencyKey, LeaseState, Opened, Place,
    Promoted, ReclaimCursor, Reclaimed, Reported, SetCount, Settings, Settle, Settled,
};

mod backlog;
mod connection;
pub mod dead_letters;
mod delayed;
mod error;
mod groups;
mod leases;
mod preflight;
mod read;
mod reclaim;
mod reply;
mod report;
mod script;
mod settle;

pub use connection::{Target, connect};
pub(crate) use script::Script;

/// A script's file, after the files that come before it.
macro_rules! lua {
    ($name:literal $(, after $($prelude:literal),+)?) => {
        std::sync::LazyLock::new(|| {
            $crate::streams::redis::Script::new(
                $name,
                concat!($($(include_str!(concat!($prelude, ".lua")), "\n",)+)? include_str!(concat!($name, ".lua"))),
            )
        })
    };
}
pub(crate) use lua;

/// One stage and one consumer on a Redis server. No I/O before [`Broker::connect`].
#[derive(Debug)]
pub struct RedisBroker {
    settings: Settings,
    target: Target,
    link: Mutex<Option<Link>>,
    /// How many links there were, so that a late error of an old one does not close its successor.
    links: AtomicU64,
    /// A blocking read is under way.
    reading: AtomicBool,
    /// This process has met the group: if it is gone later without a trace, the stream is a new one.
    joined: AtomicBool,
    /// The server's clock when it last told us, in ms: a stand-in where an id does not say when it was added.
    server_millis: AtomicU64,
}

/// The two connections of a session.
#[derive(Clone, Debug)]
struct Link {
    number: u64,
    reader: MultiplexedConnection,
    /// The reader's CLIENT ID; `None` where we may not ask for it.
    reader_id: Option<i64>,
    committer: MultiplexedConnection,
}

impl RedisBroker {
    /// A broker that is not connected yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            target: Target::from(&settings),
            settings,
            link: Mutex::new(None),
            links: AtomicU64::new(0),
            reading: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            server_millis: AtomicU64::new(0),
        }
    }

    /// Adds an entry to the source stream, as a producer does.
    ///
    /// # Errors
    /// As for every method of [`Broker`]; after a lost connection the entry may have been added all the same.
    pub async fn add(&self, fields: &Fields) -> Result<EntryId, Error> {
        let mut add = ::redis::cmd("XADD");
        add.arg(self.source()).arg("*");
        for (name, value) in fields {
            add.arg(name).arg(value);
        }
        let reply = self.run("XADD", &add).await?;
        let odd = |odd: reply::Odd| odd.in_reply_to("XADD");
        reply::id(reply).map_err(odd)
    }

    fn link(&self) -> Result<Link, Error> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.clone().ok_or_else(|| Error::Disconnected {
            address: self.settings.address.clone(),
            detail: "there is no connection".to_owned(),
        })
    }

    fn replace_link(&self, link: Option<Link>) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    /// Runs one command on the committer.
    async fn run(&self, command: &'static str, cmd: &Cmd) -> Result<Value, Error> {
        let mut link = self.link()?;
        match cmd.query_async(&mut link.committer).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.ended(&mut link, command, &error).await),
        }
    }

    /// Runs a pipeline on the committer; errors of single commands are values in the answer.
    async fn run_all(&self, command: &'static str, pipe: &Pipeline) -> Result<Vec<Value>, Error> {
        let mut link = self.link()?;
        let replies = link.committer.send_packed_commands(pipe, 0, pipe.len());
        match replies.await {
            Ok(values) => Ok(values),
            Err(error) => Err(self.ended(&mut link, command, &error).await),
        }
    }

    /// Runs a script on the committer.
    async fn script(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Value, Error> {
        let mut link = self.link()?;
        match script.run(&mut link.committer, keys, arguments).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.ended(&mut link, script.name(), &error).await),
        }
    }

    /// The error that ends a session, where the server said it of one command of several.
    async fn ended_by(&self, command: &'static str, error: &RedisError) -> Error {
        match self.link() {
            Ok(mut link) => self.ended(&mut link, command, error).await,
            Err(lost) => lost,
        }
    }

    /// The error that ends a session. A broken connection is let go, so that later calls fail at once.
    async fn ended(&self, link: &mut Link, command: &'static str, error: &RedisError) -> Error {
        let named = self.named(command, error);
        if matches!(named, Error::WrongType { .. }) {
            let with_key = self.wrong_type(&mut link.committer).await;
            return with_key.unwrap_or(named);
        }
        if matches!(named, Error::Disconnected { .. }) {
            let mut current = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            if current
                .as_ref()
                .is_some_and(|now| now.number == link.number)
            {
                *current = None;
            }
        }
        named
    }

    fn named(&self, command: &'static str, error: &RedisError) -> Error {
        error::of_command(error, self.place(command))
    }

    fn place(&self, command: &'static str) -> error::Place<'_> {
        error::Place {
            address: &self.settings.address,
            stream: self.source(),
            group: self.group(),
            command,
        }
    }

    fn saw_server_time(&self, millis: u64) {
        self.server_millis.fetch_max(millis, Ordering::Relaxed);
    }

    fn seen_at(&self) -> u64 {
        self.server_millis.load(Ordering::Relaxed)
    }

    fn source(&self) -> &str {
        self.settings.keys.source.as_str()
    }

    fn retry(&self) -> &str {
        self.settings.keys.retry.as_str()
    }

    fn group(&self) -> &str {
        self.settings.keys.group.as_str()
    }

    fn consumer(&self) -> &str {
        self.settings.consumer.as_str()
    }
}

/// Whole milliseconds, rounded up: a wait must not become 0, which Redis often reads as "for ever".
fn millis_up(duration: Duration) -> u64 {
    let micros = duration.as_micros().div_ceil(1000);
    u64::try_from(micros).unwrap_or(u64::MAX).min(MAX_MILLIS)
}

/// The longest time that goes to the server: a Lua number still holds it exactly when added to a date.
const MAX_MILLIS: u64 = 1 << 52;

impl Broker for RedisBroker {
    async fn connect(&self) -> Result<Opened, Error> {
        self.open_session().await
    }

    async fn read_retry(&self, count: usize) -> Result<Vec<Delivery>, Error> {
        self.read_due(count).await
    }

    async fn read(&self, count: usize, block: Duration) -> Result<Vec<Delivery>, Error> {
        self.read_blocking(count, block).await
    }

    async fn unblock(&self) -> Result<(), Error> {
        self.unblock_reader().await
    }

    async fn known(&self, keys: &[IdempotencyKey]) -> Result<Vec<bool>, Error> {
        self.ledger_knows(keys).await
    }

    async fn set_counts(&self, counts: &[SetCount]) -> Result<Vec<bool>, Error> {
        self.write_counts(counts).await
    }

    async fn settle(&self, batch: &[Settle]) -> Result<Vec<Settled>, Error> {
        self.settle_batch(batch).await
    }

    async fn renew(&self, places: &[Place]) -> Result<Vec<LeaseState>, Error> {
        self.renew_leases(places).await
    }

    async fn reclaim(
        &self,
        cursor: &ReclaimCursor,
        idle: Duration,
        limit: usize,
    ) -> Result<Reclaimed, Error> {
        self.reclaim_page(cursor, idle, limit).await
    }

    async fn promote(&self) -> Result<Promoted, Error> {
        self.promote_due().await
    }

    async fn report(
        &self,
        body: &str,
        every: Duration,
        visibility: Duration,
    ) -> Result<Reported, Error> {
        self.write_report(body, every, visibility).await
    }

    async fn retire(&self, own: bool, older_than: Duration) -> Result<u64, Error> {
        if own {
            self.retire_self().await
        } else {
            self.retire_others(older_than).await
        }
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        self.read_backlog().await
    }
}
