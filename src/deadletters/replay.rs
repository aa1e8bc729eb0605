//! What a replay makes of a letter, and how fast it goes. Pure.

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;

use crate::streams::letter::{self, MOST_REPLAYED_PAIRS};
use crate::streams::{EntryId, Letter, Meta};

/// A replay that was held up makes good at most this much, so that it never floods a stage that has just recovered.
const MOST_CATCHING_UP: Duration = Duration::from_millis(100);

/// The letter cannot be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotReplayable {
    /// Its fields are not those of an entry.
    #[error("nobody could read the entry it was made of; its fields hold the raw bytes")]
    Undecodable,
    /// No id says which entry it was.
    #[error("its `entry_id` is missing or no entry id")]
    OriginUnknown,
    /// One script call cannot carry it.
    #[error("it has more than {MOST_REPLAYED_PAIRS} fields")]
    TooLarge,
}

/// What a replayed entry carries: a fresh start, its origin, and one replay more.
pub(super) fn meta(id: EntryId, letter: &Letter, force: bool) -> Result<Meta, NotReplayable> {
    if letter.get(letter::REASON) == Some(letter::UNDECODABLE) {
        return Err(NotReplayable::Undecodable);
    }
    if letter.fields.len() > MOST_REPLAYED_PAIRS {
        return Err(NotReplayable::TooLarge);
    }
    let origin: EntryId = letter
        .get(letter::ENTRY_ID)
        .and_then(|id| id.parse().ok())
        .ok_or(NotReplayable::OriginUnknown)?;
    let first_enqueued_at = letter
        .get(letter::FIRST_ENQUEUED_AT)
        .and_then(|time| time.parse::<Timestamp>().ok())
        .and_then(|time| u64::try_from(time.as_millisecond()).ok());
    let replays = letter
        .get(letter::REPLAYS)
        .and_then(|count| count.parse::<u32>().ok())
        .unwrap_or(0);
    let fresh = Meta::fresh(origin, id.millis);
    Ok(Meta {
        first_enqueued_at: first_enqueued_at.unwrap_or(fresh.first_enqueued_at),
        replays: replays.saturating_add(1),
        force,
        ..fresh
    })
}

/// When the letters of a replay may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    gap: Duration,
    due: Duration,
}

impl Pace {
    /// At most `rate` a second from `now` on; without one, as fast as it goes.
    pub(super) fn from(rate: Option<NonZeroU32>, now: Duration) -> Self {
        Self {
            gap: rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get()),
            due: now,
        }
    }

    /// When the next one may go, asked at `now`.
    pub(super) fn next(&mut self, now: Duration) -> Duration {
        let due = self.due.max(now.saturating_sub(MOST_CATCHING_UP));
        self.due = due + self.gap;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EntryId = EntryId::new(1_800_000_000_000, 0);

    fn letter(pairs: &[(&str, &str)]) -> Letter {
        Letter {
            context: pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            fields: vec![(b"a".to_vec(), b"1".to_vec())],
        }
    }

    #[test]
    fn a_replayed_entry_starts_afresh_but_keeps_its_origin_and_counts_the_round() {
        let letter = letter(&[
            ("attempts", "8"),
            ("crashes", "2"),
            ("replays", "1"),
            ("entry_id", "1700000000000-7"),
            ("first_enqueued_at", "2023-11-14T22:00:00Z"),
        ]);
        let meta = meta(ID, &letter, true).unwrap();
        assert_eq!(meta.origin, EntryId::new(1_700_000_000_000, 7));
        assert_eq!(meta.first_enqueued_at, 1_699_999_200_000);
        assert_eq!((meta.attempts, meta.crashes, meta.suspect), (0, 0, false));
        assert_eq!((meta.replays, meta.force), (2, true));
    }

    #[test]
    fn without_a_first_time_the_origin_says_it_and_without_that_the_letter() {
        let first = |id: &str| {
            let letter = letter(&[("entry_id", id), ("first_enqueued_at", "yesterday")]);
            meta(ID, &letter, false).unwrap().first_enqueued_at
        };
        assert_eq!(first("1700000000000-7"), 1_700_000_000_000);
        assert_eq!(first("5-1"), ID.millis);
    }

    #[test]
    fn what_cannot_be_an_entry_again_is_refused() {
        let rows = [
            (
                letter(&[("reason", "Undecodable")]),
                NotReplayable::Undecodable,
            ),
            (letter(&[]), NotReplayable::OriginUnknown),
            (letter(&[("entry_id", "x")]), NotReplayable::OriginUnknown),
            (
                Letter {
                    fields: vec![(vec![], vec![]); MOST_REPLAYED_PAIRS + 1],
                    ..letter(&[("entry_id", "1-1")])
                },
                NotReplayable::TooLarge,
            ),
        ];
        for (letter, expected) in rows {
            assert_eq!(meta(ID, &letter, false), Err(expected));
        }
    }

    #[test]
    fn a_rate_spaces_letters_and_a_stall_is_not_made_good() {
        let at = Duration::from_millis;
        let mut pace = Pace::from(NonZeroU32::new(10), at(0));
        assert_eq!(pace.next(at(0)), at(0));
        assert_eq!(pace.next(at(1)), at(100));
        assert_eq!(pace.next(at(100)), at(200));
        assert_eq!(pace.next(at(5_000)), at(4_900));
        assert_eq!(pace.next(at(5_000)), at(5_000));
        assert_eq!(pace.next(at(5_000)), at(5_100));
        let mut unpaced = Pace::from(None, at(0));
        assert!((0..100).all(|_| unpaced.next(at(7)) <= at(7)));
    }
}
