//! `P:delayed`: the form of a member, and the move of due ones to `P:retry`.
//!
//! A member is a MessagePack array of the str family only, since Redis's own decoder refuses the bin family:
//! salt, meta, then names and values in turn. The salt keeps equal payloads apart.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Value};

use super::reply::{self, Parsed};
use super::settle::{MAX_BYTES, write_fields};
use super::{RedisBroker, Script, error, lua};
use crate::streams::letter;
use crate::streams::{Error, Fields, MAX_BATCH, MAX_VALUES, Meta, Promoted};

static PROMOTE: LazyLock<Script> = lua!("promote");
static BURY: LazyLock<Script> = lua!("bury");

/// The member of an entry.
pub(super) fn encode(salt: [u8; 8], meta: &Meta, fields: &Fields) -> Vec<u8> {
    let mut member = Vec::new();
    let values = fields.iter().flat_map(|(name, value)| [name, value]);
    let parts = 2 + 2 * fields.len();
    write_array_len(&mut member, parts);
    write_str(&mut member, &salt);
    write_str(&mut member, &meta.render());
    for value in values {
        write_str(&mut member, value);
    }
    member
}

// Writing to a Vec has no way to fail, and Redis holds no string of 4 GiB.
fn write_array_len(to: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    rmp::encode::write_array_len(to, len).ok();
}

fn write_str(to: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    rmp::encode::write_str_len(to, len).ok();
    to.extend_from_slice(bytes);
}

/// What the promote script answered.
struct Page {
    now: u64,
    promoted: Promoted,
    odd: Vec<Vec<u8>>,
}

impl RedisBroker {
    pub(super) async fn promote_due(&self) -> Result<Promoted, Error> {
        let keys = [self.settings.keys.delayed.as_str(), self.retry()];
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(MAX_BATCH).arg(MAX_BYTES).arg(MAX_VALUES);
        };
        let reply = self.script(&PROMOTE, &keys, arguments).await?;
        let mut page = parse_page(reply).map_err(|odd| odd.in_reply_to("promote"))?;
        self.saw_server_time(page.now);
        for member in &page.odd {
            page.promoted.undecodable += self.bury(member, page.now).await?;
        }
        // Where nothing could be done, another try at once could not either.
        page.promoted.more &= page.promoted.moved + page.promoted.undecodable > 0;
        Ok(page.promoted)
    }

    /// Moves a member that cannot be decoded to the dead letters; 0 if another worker did, or the stream refuses it.
    async fn bury(&self, member: &[u8], now: u64) -> Result<u64, Error> {
        let keys = [
            self.settings.keys.delayed.as_str(),
            self.settings.keys.dead.as_str(),
        ];
        let letter = letter::undecodable(&self.settings, now, member);
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(self.settings.dead_max_length).arg(member);
            write_fields(cmd, &letter);
        };
        match self.script(&BURY, &keys, arguments).await {
            Ok(buried) => reply::count(buried).map_err(|odd| odd.in_reply_to("bury")),
            // It stays where it is, and the next promotion tries again; the others must not wait for it.
            Err(Error::WrongType { .. }) => Ok(0),
            Err(error) if error::refusal_of_call(&error).is_some() => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn parse_page(reply: Value) -> Parsed<Page> {
    let [now, moved, more, next, odd] = reply::exactly(reply)?;
    let now = reply::count(now)?;
    let next = reply::text(next)?;
    let next_in = next.parse::<f64>().ok().map(|due| {
        // A negative or absurd score is due now or never; the cast saturates.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "scores are dates in ms; float casts saturate"
        )]
        let due = due.ceil() as u64;
        Duration::from_millis(due.saturating_sub(now))
    });
    let odd = reply::items(odd)?;
    Ok(Page {
        now,
        promoted: Promoted {
            moved: reply::count(moved)?,
            undecodable: 0,
            more: reply::int(more)? == 1,
            next_in,
        },
        odd: odd.into_iter().map(reply::bytes).collect::<Parsed<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::EntryId;

    #[test]
    fn members_hold_strings_only_and_differ_by_their_salt() {
        let meta = Meta::fresh(EntryId::new(1, 0), 1);
        let fields = vec![(b"a".to_vec(), vec![0xff; 40])];
        let member = encode(*b"saltsalt", &meta, &fields);
        // fixarray of 4, fixstr of 8, str8 of the meta, fixstr of 1, str8 of 40.
        assert_eq!(member[..10], *b"\x94\xa8saltsalt");
        assert_eq!(member[10], 0xd9);
        assert_eq!(member[member.len() - 44..][..4], [0xa1, b'a', 0xd9, 40]);
        assert_ne!(member, encode(*b"SALTSALT", &meta, &fields));
    }

    #[test]
    fn the_next_due_time_counts_from_now() {
        let page = |next: &str| {
            let values = vec![
                Value::Int(1000),
                Value::Int(0),
                Value::Int(0),
                Value::BulkString(next.into()),
                Value::Array(Vec::new()),
            ];
            parse_page(Value::Array(values)).unwrap().promoted.next_in
        };
        assert_eq!(page("1500"), Some(Duration::from_millis(500)));
        assert_eq!(page("900"), Some(Duration::ZERO));
        assert_eq!(page("-inf"), Some(Duration::ZERO));
        assert_eq!(page(""), None);
    }
}
