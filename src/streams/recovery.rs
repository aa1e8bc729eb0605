//! Where a group is created that is missing: the one decision that can skip entries or repeat them. Pure.

use super::{EntryId, StartFrom};

/// What is known about a stream whose group is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The stream as it is now; `None` if it does not exist.
    pub(super) stream: Option<StreamFacts>,
    /// What the last report recorded; `None` if there was none.
    pub(super) cursor: Option<CursorFacts>,
    /// This process has met the group before.
    pub(super) joined: bool,
    /// Where a group starts on a stream met for the first time.
    pub(super) start_from: StartFrom,
}

/// A stream's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamFacts {
    /// The last id it gave out.
    pub(super) last_id: EntryId,
    /// Entries added ever; `None` before Redis 7.0.
    pub(super) added: Option<u64>,
}

/// A group's durable position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CursorFacts {
    /// Everything up to here is settled.
    pub(super) position: EntryId,
    /// The stream's progress when that was written.
    pub(super) stream: StreamFacts,
}

/// Where a missing group is created.
///
/// A stream whose progress is below the recorded one is a new stream, and so is one without any record that this process
/// had read: it is read from its first entry. Otherwise the group goes on where its position was.
pub(super) fn recovery_start(facts: &Facts) -> EntryId {
    let last_id = facts.stream.map_or(EntryId::ZERO, |stream| stream.last_id);
    let added = facts.stream.and_then(|stream| stream.added);
    match facts.cursor {
        Some(cursor) => {
            let is_new = facts.stream.is_none()
                || last_id < cursor.position.max(cursor.stream.last_id)
                || matches!((added, cursor.stream.added), (Some(now), Some(then)) if now < then);
            if is_new {
                EntryId::ZERO
            } else {
                cursor.position
            }
        }
        None if facts.joined => EntryId::ZERO,
        None => match facts.start_from {
            StartFrom::Beginning => EntryId::ZERO,
            StartFrom::End => last_id,
            StartFrom::After(id) => id,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(millis: u64) -> EntryId {
        EntryId::new(millis, 0)
    }

    fn stream(last: u64, added: u64) -> StreamFacts {
        StreamFacts {
            last_id: id(last),
            added: Some(added),
        }
    }

    fn facts(stream: Option<StreamFacts>, cursor: Option<CursorFacts>) -> Facts {
        Facts {
            stream,
            cursor,
            joined: false,
            start_from: StartFrom::End,
        }
    }

    const CURSOR: CursorFacts = CursorFacts {
        position: id(50),
        stream: StreamFacts {
            last_id: id(60),
            added: Some(6),
        },
    };

    #[test]
    fn a_group_lost_from_a_stream_that_went_on_starts_at_the_position() {
        assert_eq!(
            recovery_start(&facts(Some(stream(60, 6)), Some(CURSOR))),
            id(50)
        );
        assert_eq!(
            recovery_start(&facts(Some(stream(90, 9)), Some(CURSOR))),
            id(50)
        );
    }

    #[test]
    fn a_stream_behind_its_record_is_new_and_read_from_its_first_entry() {
        for new in [
            None,
            Some(stream(59, 6)),
            Some(stream(90, 5)),
            Some(stream(0, 0)),
        ] {
            assert_eq!(
                recovery_start(&facts(new, Some(CURSOR))),
                EntryId::ZERO,
                "{new:?}"
            );
        }
    }

    #[test]
    fn servers_without_entries_added_are_judged_by_the_last_id() {
        let old = |last| StreamFacts {
            last_id: id(last),
            added: None,
        };
        assert_eq!(recovery_start(&facts(Some(old(90)), Some(CURSOR))), id(50));
        assert_eq!(
            recovery_start(&facts(Some(old(10)), Some(CURSOR))),
            EntryId::ZERO
        );
    }

    #[test]
    fn a_stream_that_vanished_without_a_record_is_new_to_who_had_read_it() {
        let joined = Facts {
            joined: true,
            ..facts(Some(stream(90, 9)), None)
        };
        assert_eq!(recovery_start(&joined), EntryId::ZERO);
    }

    #[test]
    fn a_stream_met_for_the_first_time_starts_where_the_stage_says() {
        let met = |start_from| {
            recovery_start(&Facts {
                start_from,
                ..facts(Some(stream(90, 9)), None)
            })
        };
        assert_eq!(met(StartFrom::Beginning), EntryId::ZERO);
        assert_eq!(met(StartFrom::End), id(90));
        assert_eq!(met(StartFrom::After(id(7))), id(7));
    }
}
