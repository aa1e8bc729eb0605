//! One call of a settlement: how much of a batch it carries, how it is written, and how its answer reads. Pure.

use redis::{Cmd, Value};

use crate::streams::entry::{META_FIELD, size_of};
use crate::streams::redis::reply::{self, Odd, Parsed};
use crate::streams::{
    Fields, IdempotencyKey, Lane, MAX_BATCH, MAX_VALUES, Meta, Place, Settle, Settled, Settlement,
};

/// The most bytes of one call, unless one entry alone has more: longer calls hold up the server for everybody.
pub(in crate::streams::redis) const MAX_BYTES: usize = 1024 * 1024;

/// One settlement of a batch, and where its answer belongs.
pub(super) type Numbered<'a> = (usize, &'a Settle);

/// Cuts a batch into calls: at most [`MAX_BATCH`] entries, [`MAX_BYTES`] and [`MAX_VALUES`]; one larger entry goes alone.
pub(super) fn calls<'a, 'b>(mut batch: &'b [Numbered<'a>]) -> Vec<&'b [Numbered<'a>]> {
    let mut calls = Vec::new();
    while !batch.is_empty() {
        let (mut bytes, mut values) = (0, 0);
        let fits = batch.iter().take(MAX_BATCH).take_while(|(_, settle)| {
            let (more_bytes, more_values) = weight(settle);
            bytes += more_bytes;
            values += more_values;
            bytes <= MAX_BYTES && values <= MAX_VALUES
        });
        let (call, rest) = batch.split_at(fits.count().max(1));
        calls.push(call);
        batch = rest;
    }
    calls
}

/// The bytes and values that a settlement sends.
fn weight(settle: &Settle) -> (usize, usize) {
    match &settle.settlement {
        Settlement::Commit { outputs, .. } => (
            outputs.iter().map(size_of).sum(),
            outputs.iter().map(values_in).sum(),
        ),
        Settlement::RetryAfter { .. }
        | Settlement::DeadLetter { .. }
        | Settlement::Release { .. } => (size_of(&settle.entry.fields), appended_values(settle)),
    }
}

/// The names and values of some fields.
pub(super) fn values_in(fields: &Fields) -> usize {
    2 * fields.len()
}

/// Outputs, key and force of a commit.
pub(super) fn commit_of(settle: &Settle) -> Option<(&[Fields], Option<&IdempotencyKey>, bool)> {
    match &settle.settlement {
        Settlement::Commit {
            outputs,
            key,
            force,
        } => Some((outputs, key.as_ref(), *force)),
        Settlement::RetryAfter { .. }
        | Settlement::DeadLetter { .. }
        | Settlement::Release { .. } => None,
    }
}

/// How many values [`write_appended`] writes.
pub(super) fn appended_values(settle: &Settle) -> usize {
    let context = match &settle.settlement {
        Settlement::DeadLetter { context } => context.len(),
        Settlement::Commit { .. } | Settlement::RetryAfter { .. } | Settlement::Release { .. } => 0,
    };
    2 * (context + 1) + values_in(&settle.entry.fields)
}

/// The pairs that a dead letter or a release appends: what we say of the entry, then its own.
pub(super) fn write_appended(cmd: &mut Cmd, settle: &Settle) {
    match &settle.settlement {
        Settlement::DeadLetter { context } => {
            for (name, value) in context {
                cmd.arg(name).arg(value);
            }
            cmd.arg("fields").arg(settle.entry.fields.len());
        }
        Settlement::Release { meta } | Settlement::RetryAfter { meta, .. } => write_meta(cmd, meta),
        Settlement::Commit { .. } => {}
    }
    write_fields(cmd, &settle.entry.fields);
}

fn write_meta(cmd: &mut Cmd, meta: &Meta) {
    cmd.arg(META_FIELD).arg(meta.render());
}

/// Names and values in turn.
pub(in crate::streams::redis) fn write_fields(cmd: &mut Cmd, fields: &Fields) {
    for (name, value) in fields {
        cmd.arg(name.as_slice()).arg(value.as_slice());
    }
}

/// Lane, id and whether ownership is asked, as every settlement script reads them.
pub(super) fn write_place(cmd: &mut Cmd, settle: &Settle) {
    write_lane(cmd, settle.entry.place);
    cmd.arg(u8::from(settle.unowned));
}

/// Lane (as the index of its key) and id.
pub(in crate::streams::redis) fn write_lane(cmd: &mut Cmd, place: Place) {
    let lane = match place.lane {
        Lane::Source => 1,
        Lane::Retry => 2,
    };
    cmd.arg(lane).arg(place.id.to_string());
}

/// What a settlement script says of one entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Settled(Settled),
    /// It is ours and not known, and cannot be carried.
    Unfit,
    /// The key and text of the first error.
    Error {
        key: String,
        text: String,
    },
}

/// Of `count` entries: 0 not ours, 1 applied, 2 known before, 3 unfit, or the key and text of an error.
pub(super) fn parse_answers(reply: Value, count: usize) -> Parsed<Vec<Answer>> {
    let one = |answer| {
        if let Value::Array(_) = answer {
            let [key, text] = reply::exactly(answer)?;
            let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            return Ok(Answer::Error {
                key: lossy(reply::bytes(key)?),
                text: lossy(reply::bytes(text)?),
            });
        }
        match reply::int(answer) {
            Ok(0) => Ok(Answer::Settled(Settled::NotOurs)),
            Ok(1) => Ok(Answer::Settled(Settled::Applied)),
            Ok(2) => Ok(Answer::Settled(Settled::AlreadyDone)),
            Ok(3) => Ok(Answer::Unfit),
            Ok(_) | Err(_) => Err(Odd("a number from 0 to 3, or an error")),
        }
    };
    let answers = reply::items(reply)?.into_iter().map(one);
    let answers = answers.collect::<Parsed<Vec<_>>>()?;
    if answers.len() == count {
        Ok(answers)
    } else {
        Err(Odd("an answer per entry"))
    }
}

#[cfg(test)]
mod tests;
