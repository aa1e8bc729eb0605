//! A stage's dead-letter stream, read page by page, and the one step that gives a letter back.
//!
//! It judges no letter and tries nothing twice. Used by `deadletters/`; the form of a letter is in `streams/letter.rs`.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::reply::{self, Parsed};
use super::{Script, Target, connect, error, lua};
use crate::streams::entry::META_FIELD;
use crate::streams::{EntryId, Error, Fields, Keys, Meta};

static REPLAY: LazyLock<Script> = lua!("replay");

/// What became of a letter that was to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It is in `P:retry`, and no longer among the dead letters.
    Moved,
    /// It was not among the dead letters any more; nothing was changed.
    Gone,
}

/// The dead letters of one stage, over one connection: when that ends, so does this.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    connection: MultiplexedConnection,
    address: String,
    keys: Keys,
}

impl DeadLetters {
    /// Connects once; there is no second attempt.
    pub async fn connect(target: &Target, keys: Keys) -> Result<Self, Error> {
        Ok(Self {
            connection: connect(target).await?,
            address: target.address.clone(),
            keys,
        })
    }

    /// The server's time, in milliseconds since the epoch.
    pub async fn now(&self) -> Result<u64, Error> {
        let time = |value| {
            let [seconds, micros] = reply::exactly(value)?;
            let seconds = reply::count(seconds)?.saturating_mul(1_000);
            Ok(seconds.saturating_add(reply::count(micros)? / 1_000))
        };
        self.ask("TIME", &redis::cmd("TIME"), time).await
    }

    /// The id of the newest entry; `None` in an empty stream.
    pub async fn last_id(&self) -> Result<Option<EntryId>, Error> {
        let mut command = self.command("XREVRANGE");
        command.arg("+").arg("-").arg("COUNT").arg(1);
        let newest = self.ask("XREVRANGE", &command, entries).await?;
        Ok(newest.first().map(|(id, _)| *id))
    }

    /// The oldest `count` entries of `from..=until`.
    pub async fn page(
        &self,
        from: EntryId,
        until: EntryId,
        count: usize,
    ) -> Result<Vec<(EntryId, Fields)>, Error> {
        let mut command = self.command("XRANGE");
        command.arg(from.to_string()).arg(until.to_string());
        command.arg("COUNT").arg(count);
        self.ask("XRANGE", &command, entries).await
    }

    /// Moves a letter to `P:retry`, its own pairs behind `meta`, in one atomic step.
    ///
    /// The entry at `id` must be a letter of at most [`MOST_REPLAYED_PAIRS`] own pairs.
    ///
    /// [`MOST_REPLAYED_PAIRS`]: crate::streams::letter::MOST_REPLAYED_PAIRS
    pub async fn replay(&self, id: EntryId, meta: &Meta) -> Result<Replayed, Error> {
        let keys = [self.keys.dead.as_str(), self.keys.retry.as_str()];
        let meta = meta.render();
        let arguments = |command: &mut Cmd| {
            command.arg(id.to_string()).arg(META_FIELD).arg(&meta);
        };
        let moved = REPLAY
            .run(&mut self.connection.clone(), &keys, arguments)
            .await
            .map_err(|error| self.error(&error, REPLAY.name()))?;
        match reply::int(moved) {
            Ok(0) => Ok(Replayed::Gone),
            Ok(1) => Ok(Replayed::Moved),
            // Callers have parsed it: it was replaced by hand since then, or they have not.
            Ok(_) => Err(Error::Protocol {
                command: REPLAY.name(),
                detail: format!("entry {id} is not a dead letter"),
            }),
            Err(odd) => Err(odd.in_reply_to(REPLAY.name())),
        }
    }

    /// Deletes letters; how many of them were still there.
    pub async fn delete(&self, ids: &[EntryId]) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut command = self.command("XDEL");
        for id in ids {
            command.arg(id.to_string());
        }
        self.ask("XDEL", &command, reply::count).await
    }

    /// A command whose first argument is the dead-letter stream.
    fn command(&self, name: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(self.keys.dead.as_str());
        command
    }

    async fn ask<T>(
        &self,
        name: &'static str,
        command: &Cmd,
        read: impl Fn(Value) -> Parsed<T>,
    ) -> Result<T, Error> {
        let answer = command
            .query_async(&mut self.connection.clone())
            .await
            .map_err(|error| self.error(&error, name))?;
        read(answer).map_err(|odd| odd.in_reply_to(name))
    }

    fn error(&self, error: &RedisError, command: &'static str) -> Error {
        let place = error::Place {
            address: &self.address,
            stream: self.keys.dead.as_str(),
            group: self.keys.group.as_str(),
            command,
        };
        let named = error::of_command(error, place);
        if !matches!(named, Error::WrongType { .. }) {
            return named;
        }
        // The server does not say which key it is; of the two, only this one's name can be a user's choice.
        Error::WrongType {
            key: self.keys.dead.to_string(),
            expected: "stream",
        }
    }
}

fn entries(value: Value) -> Parsed<Vec<(EntryId, Fields)>> {
    let entry = |value| {
        let [id, fields] = reply::exactly(value)?;
        Ok((reply::id(id)?, reply::fields(fields)?))
    };
    reply::items(value)?.into_iter().map(entry).collect()
}
