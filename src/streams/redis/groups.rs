//! Opens a session: connections, checks, and the groups, which are created where they are missing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use super::{Link, RedisBroker, connect, error, preflight, reply};
use crate::streams::recovery::{CursorFacts, Facts, StreamFacts, recovery_start};
use crate::streams::{EntryId, Error, GroupCreation, Opened, Unreachable};

/// An attempt takes some twenty answers of the server: a shorter limit would never be met over a long way.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(1);

impl RedisBroker {
    /// Opens both connections anew and makes sure that the session can work, within the limit of one attempt.
    pub(super) async fn open_session(&self) -> Result<Opened, Error> {
        self.replace_link(None);
        let limit = self.settings.connect_timeout.max(SHORTEST_ATTEMPT);
        match tokio::time::timeout(limit, self.begin_session()).await {
            Ok(opened) => opened.map_err(error::before_session),
            Err(_) => Err(Error::Unreachable {
                address: self.settings.address.clone(),
                reason: Unreachable::Timeout,
            }),
        }
    }

    async fn begin_session(&self) -> Result<Opened, Error> {
        let mut reader = connect(&self.target).await?;
        let mut committer = connect(&self.target).await?;

        let mut opened = self.ask_server(&mut committer).await?;
        self.check_types(&mut committer, &mut opened.warnings)
            .await?;
        self.read_server_time(&mut committer).await?;
        let reader_id = unblockable(&mut reader, &mut committer).await;
        if reader_id.is_none() {
            opened.warnings.push(
                "This user may not run CLIENT ID and CLIENT UNBLOCK: a parked read ends only with its block timeout."
                    .to_owned(),
            );
        }

        self.ensure_group(&mut committer, self.retry(), EntryId::ZERO)
            .await?;
        opened.group_created_at = self.ensure_source_group(&mut committer).await?;
        self.check_permissions(&mut committer).await?;
        self.joined.store(true, Ordering::Relaxed);
        self.replace_link(Some(Link {
            number: self.links.fetch_add(1, Ordering::Relaxed),
            reader,
            reader_id,
            committer,
        }));
        Ok(opened)
    }

    async fn read_server_time(&self, committer: &mut MultiplexedConnection) -> Result<(), Error> {
        let time = redis::cmd("TIME").query_async::<Value>(committer).await;
        let time = time.map_err(|error| self.named("TIME", &error))?;
        let [seconds, _] = reply::exactly(time).map_err(|odd| odd.in_reply_to("TIME"))?;
        let seconds = reply::count(seconds).map_err(|odd| odd.in_reply_to("TIME"))?;
        self.saw_server_time(seconds.saturating_mul(1000));
        Ok(())
    }

    /// Makes sure that S has the group. Where it was created now, the position is returned.
    async fn ensure_source_group(
        &self,
        committer: &mut MultiplexedConnection,
    ) -> Result<Option<EntryId>, Error> {
        if self.has_group(committer, self.source()).await? {
            return Ok(None);
        }
        if self.settings.group_creation == GroupCreation::Never {
            return Err(self.group_missing());
        }
        let facts = Facts {
            stream: self.stream_facts(committer).await?,
            cursor: self.cursor_facts(committer).await?,
            joined: self.joined.load(Ordering::Relaxed),
            start_from: self.settings.start_from,
        };
        let start = recovery_start(&facts);
        let created = self.ensure_group(committer, self.source(), start).await?;
        if created {
            self.forget_trimmed(committer).await?;
        }
        Ok(created.then_some(start))
    }

    /// A new group counts its entries anew: what the old one's numbers missed says nothing about them.
    async fn forget_trimmed(&self, committer: &mut MultiplexedConnection) -> Result<(), Error> {
        let mut forget = redis::cmd("HDEL");
        forget.arg(&self.settings.keys.cursor).arg("trimmed");
        let forgotten = forget.query_async::<Value>(committer).await;
        forgotten
            .map(drop)
            .map_err(|error| self.named("HDEL", &error))
    }

    /// Creates the group unless it is there; whether it was created now.
    async fn ensure_group(
        &self,
        committer: &mut MultiplexedConnection,
        stream: &str,
        start: EntryId,
    ) -> Result<bool, Error> {
        // A full server refuses XGROUP CREATE even for a group that exists, so the question comes first.
        if self.has_group(committer, stream).await? {
            return Ok(false);
        }
        let mut create = redis::cmd("XGROUP");
        create
            .arg("CREATE")
            .arg(stream)
            .arg(self.group())
            .arg(start.to_string())
            .arg("MKSTREAM");
        match create.query_async::<Value>(committer).await {
            Ok(_) => Ok(true),
            Err(error) if preflight::has_code(&error, "BUSYGROUP") => Ok(false),
            Err(error) => Err(self.named("XGROUP", &error)),
        }
    }

    /// An error where the group on S is not there.
    pub(super) async fn meets_group(&self) -> Result<(), Error> {
        if self
            .has_group(&mut self.link()?.committer, self.source())
            .await?
        {
            return Ok(());
        }
        Err(self.group_missing())
    }

    pub(super) fn group_missing(&self) -> Error {
        Error::GroupMissing {
            stream: self.source().to_owned(),
            group: self.group().to_owned(),
        }
    }

    async fn has_group(
        &self,
        committer: &mut MultiplexedConnection,
        stream: &str,
    ) -> Result<bool, Error> {
        let mut info = redis::cmd("XINFO");
        info.arg("GROUPS").arg(stream);
        let groups = match info.query_async::<Value>(committer).await {
            Ok(groups) => groups,
            Err(error) => return self.or_missing(&error, false),
        };
        let found = find_group(groups, self.group()).map_err(|odd| odd.in_reply_to("XINFO"))?;
        Ok(found.is_some())
    }

    async fn stream_facts(
        &self,
        committer: &mut MultiplexedConnection,
    ) -> Result<Option<StreamFacts>, Error> {
        let mut info = redis::cmd("XINFO");
        info.arg("STREAM").arg(self.source());
        match info.query_async::<Value>(committer).await {
            Ok(stream) => parse_stream(stream)
                .map(Some)
                .map_err(|odd| odd.in_reply_to("XINFO")),
            Err(error) => self.or_missing(&error, None),
        }
    }

    async fn cursor_facts(
        &self,
        committer: &mut MultiplexedConnection,
    ) -> Result<Option<CursorFacts>, Error> {
        let mut get = redis::cmd("HMGET");
        get.arg(&self.settings.keys.cursor)
            .arg(&["position", "lastId", "added"]);
        let values = get.query_async::<Value>(committer).await;
        let values = values.map_err(|error| self.named("HMGET", &error))?;
        let [position, last_id, added] =
            reply::exactly(values).map_err(|odd| odd.in_reply_to("HMGET"))?;
        // A record that cannot be read is no record.
        Ok(reply::id(position).ok().map(|position| CursorFacts {
            position,
            stream: StreamFacts {
                last_id: reply::id(last_id).unwrap_or(position),
                added: reply::count(added).ok(),
            },
        }))
    }

    /// `absent` where an error says that the key or group is not there; the error otherwise.
    fn or_missing<T>(&self, error: &RedisError, absent: T) -> Result<T, Error> {
        let error = self.named("XINFO", error);
        if matches!(error, Error::GroupMissing { .. }) {
            return Ok(absent);
        }
        Err(error)
    }
}

/// The reader's id, by which the committer ends its parked read; `None` where it may not.
async fn unblockable(
    reader: &mut MultiplexedConnection,
    committer: &mut MultiplexedConnection,
) -> Option<i64> {
    let id = redis::cmd("CLIENT").arg("ID").query_async(reader).await;
    let id: i64 = id.ok()?;
    let mut unblock = redis::cmd("CLIENT");
    unblock.arg("UNBLOCK").arg(id);
    let allowed = unblock.query_async::<Value>(committer).await.is_ok();
    allowed.then_some(id)
}

/// The group's part of an answer of XINFO GROUPS.
pub(super) fn find_group(groups: Value, name: &str) -> reply::Parsed<Option<Vec<(String, Value)>>> {
    for group in reply::items(groups)? {
        let mut group = reply::named(group)?;
        let found = reply::take(&mut group, "name")
            .map(reply::bytes)
            .transpose()?;
        if found.is_some_and(|found| found == name.as_bytes()) {
            return Ok(Some(group));
        }
    }
    Ok(None)
}

fn parse_stream(stream: Value) -> reply::Parsed<StreamFacts> {
    let mut stream = reply::named(stream)?;
    let last_id = reply::take(&mut stream, "last-generated-id")
        .map(reply::id)
        .transpose()?;
    let added = reply::take(&mut stream, "entries-added")
        .map(reply::count)
        .transpose()?;
    Ok(StreamFacts {
        last_id: last_id.unwrap_or_default(),
        added,
    })
}
