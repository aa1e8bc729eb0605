//! Counts what waits and what is held.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Value};

use super::groups::find_group;
use super::reply::{self, Parsed};
use super::settle::MAX_BYTES;
use super::{RedisBroker, Script, lua, preflight};
use crate::streams::{Backlog, EntryId, Error};

static COUNT_AFTER: LazyLock<Script> = lua!("count_after");

/// Counting stops here: beyond it the answer is "unknown", which nobody mistakes for "few".
const MOST_COUNTED: u64 = 1_000;

/// What a group says about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    last_id: EntryId,
    first_id: Option<EntryId>,
    delivered: EntryId,
    length: u64,
    lag: Option<u64>,
    /// What the lag counts although it was trimmed; `None` before the first report.
    trimmed: Option<u64>,
    pending: u64,
}

/// The entries not delivered yet, where the server's numbers say it for sure. Pure.
///
/// The lag is null after deletes and on groups made mid-stream, and counts what was trimmed while the group was behind
/// (7.0; later versions correct it as the group reads on, so a difference of nothing is no proof of idleness).
fn undelivered(progress: &Progress) -> Option<u64> {
    let nothing_delivered = progress
        .first_id
        .is_none_or(|first| first > progress.delivered);
    if progress.delivered >= progress.last_id {
        Some(0)
    } else if nothing_delivered {
        Some(progress.length)
    } else {
        let left = progress.lag?.checked_sub(progress.trimmed?)?;
        (1..=progress.length).contains(&left).then_some(left)
    }
}

impl RedisBroker {
    pub(super) async fn read_backlog(&self) -> Result<Backlog, Error> {
        let keys = &self.settings.keys;
        let mut pipe = Pipeline::new();
        pipe.cmd("XINFO").arg("STREAM").arg(self.source());
        pipe.cmd("XINFO").arg("GROUPS").arg(self.source());
        pipe.cmd("XLEN").arg(self.retry());
        pipe.cmd("XINFO").arg("GROUPS").arg(self.retry());
        pipe.cmd("ZCARD").arg(&keys.delayed);
        pipe.cmd("HMGET")
            .arg(&keys.cursor)
            .arg(&["lost", "trimmed"]);
        pipe.cmd("XLEN").arg(keys.dead.as_str());
        let mut answers = self.run_all("backlog", &pipe).await?;
        // Another type is no fault of the backlog: settlements there are refused, and say so.
        let dead_letters = answers.pop().and_then(|length| reply::count(length).ok());
        if let Some(error) = answers.iter().find_map(preflight::server_error) {
            return Err(self.ended_by("backlog", &error).await);
        }
        let parsed = self.parse_backlog(answers);
        let parsed = parsed.map_err(|odd| odd.in_reply_to("backlog"))?;
        let (progress, mut backlog) = parsed.ok_or_else(|| self.group_missing())?;
        backlog.dead_letters = dead_letters.unwrap_or_default();
        let source = match undelivered(&progress) {
            Some(count) => Some(count),
            None => self.count_after(progress.delivered).await?,
        };
        backlog.undelivered = source.zip(backlog.undelivered).map(|(s, retry)| s + retry);
        backlog.pending += progress.pending;
        Ok(backlog)
    }

    async fn count_after(&self, id: EntryId) -> Result<Option<u64>, Error> {
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(id.to_string()).arg(MOST_COUNTED).arg(MAX_BYTES);
        };
        let reply = self
            .script(&COUNT_AFTER, &[self.source()], arguments)
            .await?;
        let count = reply::count(reply).map_err(|odd| odd.in_reply_to(COUNT_AFTER.name()))?;
        Ok((count < MOST_COUNTED).then_some(count))
    }

    /// The group's progress on S, and all counts but those of S; `None` where a group is missing.
    fn parse_backlog(&self, answers: Vec<Value>) -> Parsed<Option<(Progress, Backlog)>> {
        let [stream, groups, retry_length, retry_groups, delayed, cursor] =
            reply::exactly(Value::Array(answers))?;
        let groups = (
            find_group(groups, self.group())?,
            find_group(retry_groups, self.group())?,
        );
        let (Some(group), Some(mut retry_group)) = groups else {
            return Ok(None);
        };
        let mut progress = parse_progress(reply::named(stream)?, group)?;
        let retry_pending = number(&mut retry_group, "pending")?.unwrap_or(0);
        let [lost, trimmed] = reply::exactly(cursor)?;
        progress.trimmed = recorded(trimmed)?;
        let backlog = Backlog {
            undelivered: Some(reply::count(retry_length)?.saturating_sub(retry_pending)),
            pending: retry_pending,
            delayed: reply::count(delayed)?,
            dead_letters: 0,
            lost: recorded(lost)?.unwrap_or(0),
        };
        Ok(Some((progress, backlog)))
    }
}

fn parse_progress(
    mut stream: Vec<(String, Value)>,
    mut group: Vec<(String, Value)>,
) -> Parsed<Progress> {
    let first = match reply::take(&mut stream, "first-entry") {
        Some(entry) => reply::items(entry)?
            .into_iter()
            .next()
            .map(reply::id)
            .transpose()?,
        None => None,
    };
    let id = |from: &mut Vec<(String, Value)>, name| {
        let id = reply::take(from, name).map(reply::id).transpose()?;
        Ok(id.unwrap_or_default())
    };
    Ok(Progress {
        last_id: id(&mut stream, "last-generated-id")?,
        first_id: first,
        delivered: id(&mut group, "last-delivered-id")?,
        length: number(&mut stream, "length")?.unwrap_or(0),
        lag: number(&mut group, "lag")?,
        trimmed: None,
        pending: number(&mut group, "pending")?.unwrap_or(0),
    })
}

/// A number of `P:cursor`; nil is none.
fn recorded(value: Value) -> Parsed<Option<u64>> {
    if value == Value::Nil {
        return Ok(None);
    }
    reply::count(value).map(Some)
}

fn number(from: &mut Vec<(String, Value)>, name: &str) -> Parsed<Option<u64>> {
    reply::take(from, name).map(reply::count).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEHIND: Progress = Progress {
        last_id: EntryId::new(9, 0),
        first_id: Some(EntryId::new(1, 0)),
        delivered: EntryId::new(4, 0),
        length: 9,
        lag: Some(5),
        trimmed: Some(0),
        pending: 0,
    };

    #[test]
    fn a_plausible_lag_is_the_answer() {
        assert_eq!(undelivered(&BEHIND), Some(5));
    }

    #[test]
    fn a_group_that_caught_up_has_no_backlog_whatever_the_lag() {
        let caught_up = Progress {
            delivered: EntryId::new(9, 0),
            ..BEHIND
        };
        assert_eq!(undelivered(&caught_up), Some(0));
    }

    #[test]
    fn after_a_trim_ahead_of_the_group_everything_left_waits() {
        let trimmed = Progress {
            first_id: Some(EntryId::new(7, 0)),
            length: 3,
            ..BEHIND
        };
        assert_eq!(undelivered(&trimmed), Some(3));
        let emptied = Progress {
            first_id: None,
            length: 0,
            ..BEHIND
        };
        assert_eq!(undelivered(&emptied), Some(0));
    }

    #[test]
    fn what_was_trimmed_does_not_wait() {
        let trimmed = |trimmed| {
            undelivered(&Progress {
                trimmed: Some(trimmed),
                ..BEHIND
            })
        };
        assert_eq!(trimmed(3), Some(2));
        for doubtful in [5, 6] {
            assert_eq!(trimmed(doubtful), None);
        }
    }

    #[test]
    fn a_missing_or_impossible_lag_is_no_answer() {
        for lag in [None, Some(10)] {
            assert_eq!(undelivered(&Progress { lag, ..BEHIND }), None);
        }
        let unreported = Progress {
            trimmed: None,
            ..BEHIND
        };
        assert_eq!(undelivered(&unreported), None);
    }
}
