//! Claims entries of silent consumers, a page per stream at a time.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Cmd, Value};

use super::reply::{self, Parsed};
use super::settle::MAX_BYTES;
use super::{RedisBroker, Script, lua, millis_up};
use crate::streams::{Delivery, Entry, EntryId, Error, Lane, Place, ReclaimCursor, Reclaimed};

static RECLAIM: LazyLock<Script> = lua!("reclaim");

/// The pending entries that one call looks at, per stream.
const PAGE: usize = 100;

impl RedisBroker {
    pub(super) async fn reclaim_page(
        &self,
        cursor: &ReclaimCursor,
        idle: Duration,
        limit: usize,
    ) -> Result<Reclaimed, Error> {
        let keys = &self.settings.keys;
        let keys = [self.source(), self.retry(), &keys.workers, &keys.cursor];
        let after = |id: Option<EntryId>| id.map_or_else(String::new, |id| id.to_string());
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(self.group())
                .arg(self.consumer())
                .arg(millis_up(idle));
            cmd.arg(limit).arg(PAGE).arg(MAX_BYTES);
            cmd.arg(after(cursor.source)).arg(after(cursor.retry));
        };
        let reply = self.script(&RECLAIM, &keys, arguments).await?;
        self.parse_reclaimed(reply)
            .map_err(|odd| odd.in_reply_to(RECLAIM.name()))
    }

    fn parse_reclaimed(&self, reply: Value) -> Parsed<Reclaimed> {
        let mut parts = reply::items(reply)?.into_iter();
        let grace = reply::count(parts.next().unwrap_or_default())?;
        if grace > 0 {
            return Ok(Reclaimed {
                grace: Some(Duration::from_millis(grace)),
                ..Reclaimed::default()
            });
        }
        let [now, lost, source, retry] = reply::exactly(Value::Array(parts.collect()))?;
        self.saw_server_time(reply::count(now)?);
        let mut reclaimed = Reclaimed {
            lost: reply::count(lost)?,
            ..Reclaimed::default()
        };
        let (retry_ended, retry) = self.parse_page(Lane::Retry, retry, &mut reclaimed)?;
        let (source_ended, source) = self.parse_page(Lane::Source, source, &mut reclaimed)?;
        reclaimed.more = !(retry_ended && source_ended);
        // A list that ended is looked at from its start again, however long the other is.
        reclaimed.cursor = ReclaimCursor {
            source: source.filter(|_| !source_ended),
            retry: retry.filter(|_| !retry_ended),
        };
        Ok(reclaimed)
    }

    /// Adds what was claimed; returns whether the list ended, and the last id looked at.
    fn parse_page(
        &self,
        lane: Lane,
        page: Value,
        reclaimed: &mut Reclaimed,
    ) -> Parsed<(bool, Option<EntryId>)> {
        let [ended, last, claimed] = reply::exactly(page)?;
        for claim in reply::items(claimed)? {
            let [id, count, fields] = reply::exactly(claim)?;
            let (id, fields) = (reply::id(id)?, reply::fields(fields)?);
            reclaimed.claimed.push(Delivery {
                entry: Arc::new(Entry::met(Place { lane, id }, fields, self.seen_at())),
                count: u32::try_from(reply::count(count)?).unwrap_or(u32::MAX),
            });
        }
        Ok((reply::int(ended)? == 1, reply::id(last).ok()))
    }
}
