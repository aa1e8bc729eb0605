//! A stage's dead-letter stream, read page by page, and the one step that gives a letter back.
//!
//! It judges no letter and waits for nothing. Used by `deadletters/`; the form of a letter is in `streams/letter.rs`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, Script, ServerErrorKind,
};

use crate::streams::entry::META_FIELD;
use crate::streams::{Credentials, EntryId, Error, Fields, Keys, Meta, StreamKey, Unreachable};

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `host:port`.
    pub address: String,
    /// The database's number.
    pub database: u32,
    /// User and password.
    pub credentials: Credentials,
    /// The limit of one connect attempt.
    pub connect_timeout: Duration,
    /// The limit of one command.
    pub command_timeout: Duration,
}

/// What became of a letter that was to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It is in `P:retry`, and no longer among the dead letters.
    Moved,
    /// It was not among the dead letters any more; nothing was changed.
    Gone,
}

/// A stream entry as the server answers it: the id, then names and values in turn.
type RawEntry = (String, Vec<Vec<u8>>);

/// The dead letters of one stage.
pub struct DeadLetters {
    connection: MultiplexedConnection,
    address: String,
    dead: StreamKey,
    retry: StreamKey,
    replay: Script,
}

impl DeadLetters {
    /// Connects once; there is no second attempt.
    pub async fn connect(access: &Access, keys: &Keys) -> Result<Self, Error> {
        let failed = |error: &RedisError| connect_error(error, &access.address);
        let client = client(access).await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(access.connect_timeout))
            .set_response_timeout(Some(access.command_timeout));
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| failed(&error))?;
        Ok(Self {
            connection,
            address: access.address.clone(),
            dead: keys.dead.clone(),
            retry: keys.retry.clone(),
            replay: Script::new(include_str!("replay.lua")),
        })
    }

    /// The server's time, in milliseconds since the epoch.
    pub async fn now(&self) -> Result<u64, Error> {
        let (seconds, micros): (u64, u64) = self.ask("TIME", &redis::cmd("TIME")).await?;
        Ok(seconds.saturating_mul(1_000).saturating_add(micros / 1_000))
    }

    /// The id of the newest entry; `None` in an empty stream.
    pub async fn last_id(&self) -> Result<Option<EntryId>, Error> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(self.dead.as_str()).arg("+").arg("-");
        command.arg("COUNT").arg(1);
        let found: Vec<RawEntry> = self.ask("XREVRANGE", &command).await?;
        Ok(entries(found)?.first().map(|(id, _)| *id))
    }

    /// The oldest `count` entries of `from..=until`.
    pub async fn page(
        &self,
        from: EntryId,
        until: EntryId,
        count: usize,
    ) -> Result<Vec<(EntryId, Fields)>, Error> {
        let mut command = redis::cmd("XRANGE");
        command
            .arg(self.dead.as_str())
            .arg(from.to_string())
            .arg(until.to_string())
            .arg("COUNT")
            .arg(count);
        entries(self.ask("XRANGE", &command).await?)
    }

    /// Moves a letter to `P:retry`, its own pairs behind `meta`, in one atomic step.
    ///
    /// The entry at `id` must be a letter of at most [`MOST_REPLAYED_PAIRS`](super::super::letter::MOST_REPLAYED_PAIRS)
    /// own pairs.
    pub async fn replay(&self, id: EntryId, meta: &Meta) -> Result<Replayed, Error> {
        let moved: u8 = self
            .replay
            .key(self.dead.as_str())
            .key(self.retry.as_str())
            .arg(id.to_string())
            .arg(META_FIELD)
            .arg(meta.render())
            .invoke_async(&mut self.connection.clone())
            .await
            .map_err(|error| self.error("EVALSHA", &error))?;
        Ok(match moved {
            0 => Replayed::Gone,
            _ => Replayed::Moved,
        })
    }

    /// Deletes letters; how many of them were still there.
    pub async fn delete(&self, ids: &[EntryId]) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut command = redis::cmd("XDEL");
        command.arg(self.dead.as_str());
        for id in ids {
            command.arg(id.to_string());
        }
        self.ask("XDEL", &command).await
    }

    async fn ask<T: FromRedisValue>(
        &self,
        name: &'static str,
        command: &redis::Cmd,
    ) -> Result<T, Error> {
        command
            .query_async(&mut self.connection.clone())
            .await
            .map_err(|error| self.error(name, &error))
    }

    /// The name of what a command failed with.
    fn error(&self, command: &'static str, error: &RedisError) -> Error {
        if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
            return Error::Disconnected {
                address: self.address.clone(),
                detail: error.to_string(),
            };
        }
        match error.code() {
            Some("WRONGTYPE") => Error::WrongType {
                key: format!("{} or {}", self.dead, self.retry),
                expected: "stream",
            },
            Some("NOPERM") => Error::Denied {
                what: error.detail().unwrap_or(command).to_owned(),
            },
            Some("OOM") => Error::Full,
            Some("READONLY") => Error::ReadOnly,
            Some(code @ ("LOADING" | "BUSY" | "MASTERDOWN")) => Error::Loading {
                code: code.to_owned(),
            },
            Some(_) | None => Error::Protocol {
                command,
                detail: error.to_string(),
            },
        }
    }
}

async fn client(access: &Access) -> Result<Client, Error> {
    let unusable = || Error::Unreachable {
        address: access.address.clone(),
        reason: Unreachable::Network,
    };
    let (host, port) = access.address.rsplit_once(':').ok_or_else(unusable)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().map_err(|_| unusable())?;
    let mut login = RedisConnectionInfo::default().set_db(i64::from(access.database));
    let (username, password) = words(access).await?;
    if let Some(username) = username {
        login = login.set_username(username);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    ConnectionAddr::Tcp(host.to_owned(), port)
        .into_connection_info()
        .and_then(|info| Client::open(info.set_redis_settings(login)))
        .map_err(|_| unusable())
}

/// User and password, read from their files where they are files.
async fn words(access: &Access) -> Result<(Option<String>, Option<String>), Error> {
    let read = async |path: &std::path::Path| {
        let text =
            tokio::fs::read_to_string(path)
                .await
                .map_err(|_| Error::AuthenticationFailed {
                    address: access.address.clone(),
                })?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    };
    Ok(match &access.credentials {
        Credentials::None => (None, None),
        Credentials::Inline { username, password } => (username.clone(), Some(password.clone())),
        Credentials::Files { username, password } => {
            let username = match username {
                Some(path) => Some(read(path).await?),
                None => None,
            };
            (username, Some(read(password).await?))
        }
    })
}

/// The name of what a connect attempt failed with.
fn connect_error(error: &RedisError, address: &str) -> Error {
    let address = address.to_owned();
    let refused = matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
    if refused || error.kind() == ErrorKind::AuthenticationFailed {
        return Error::AuthenticationFailed { address };
    }
    if error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading) {
        return Error::Loading {
            code: "LOADING".to_owned(),
        };
    }
    let reason = if error.is_connection_refusal() {
        Unreachable::ConnectionRefused
    } else if error.is_timeout() {
        Unreachable::Timeout
    } else if error.to_string().contains("lookup") {
        // The standard library has no kind for a name that does not resolve; its text is fixed.
        Unreachable::DnsFailure
    } else {
        Unreachable::Network
    };
    Error::Unreachable { address, reason }
}

fn entries(found: Vec<RawEntry>) -> Result<Vec<(EntryId, Fields)>, Error> {
    found
        .into_iter()
        .map(|(id, values)| {
            let id = id.parse().map_err(|error| Error::Protocol {
                command: "XRANGE",
                detail: format!("{error}"),
            })?;
            Ok((id, pairs(values)))
        })
        .collect()
}

/// Names and values in turn, as pairs.
fn pairs(values: Vec<Vec<u8>>) -> Fields {
    let mut values = values.into_iter();
    let mut pairs = Vec::with_capacity(values.len() / 2);
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        pairs.push((name, value));
    }
    pairs
}
