//! Which entries of a dead-letter stream are meant, and how many are fetched at a time. Pure.

use std::time::Duration;

use super::request::Selection;
use crate::streams::{EntryId, GroupName, Letter, StreamKey, letter};

/// The entries of the first page, when nothing is known of their size; later pages follow the size of what came.
pub(super) const FIRST_PAGE: usize = 10;

/// No page has more entries: small ones may be followed by large ones.
const LARGEST_PAGE: usize = 100;

/// A page should hold about this many bytes: memory stays small whatever the entries hold.
const PAGE_BYTES: usize = 1024 * 1024;

/// Whose letters, of a stream that stages may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The stage's source stream.
    pub(super) stream: StreamKey,
    /// Its group.
    pub(super) group: GroupName,
}

impl Owner {
    /// Whether the letter came from this stage.
    pub(super) fn owns(&self, letter: &Letter) -> bool {
        letter.get(letter::STREAM) == Some(self.stream.as_str())
            && letter.get(letter::GROUP) == Some(self.group.as_str())
    }
}

/// A stretch of a stream, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The first id.
    pub(super) from: EntryId,
    /// The last id.
    pub(super) until: EntryId,
}

impl Range {
    /// Where the selected letters lie at `now` (milliseconds since the epoch) in a stream that ends with `last`.
    ///
    /// What is added later lies behind `last`, so a replay never meets what it caused.
    pub(super) fn of(selection: &Selection, now: u64, last: EntryId) -> Self {
        let ago =
            |age: Duration| now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let from = selection
            .newer_than
            .map_or(EntryId::ZERO, |age| EntryId::new(ago(age), 0));
        let until = selection
            .older_than
            .map_or(last, |age| EntryId::new(ago(age), u64::MAX).min(last));
        Self { from, until }
    }

    /// Whether `id` lies in it.
    pub(super) fn contains(self, id: EntryId) -> bool {
        (self.from..=self.until).contains(&id)
    }

    /// What remains behind `id`; `None` if nothing does.
    pub(super) fn behind(self, id: EntryId) -> Option<Self> {
        let from = after(id)?;
        (from <= self.until).then_some(Self { from, ..self })
    }
}

/// The id that follows `id`.
fn after(id: EntryId) -> Option<EntryId> {
    match id.sequence.checked_add(1) {
        Some(sequence) => Some(EntryId::new(id.millis, sequence)),
        None => Some(EntryId::new(id.millis.checked_add(1)?, 0)),
    }
}

/// Whether a letter of the stage passes the filters that its id and range do not settle.
pub(super) fn passes(selection: &Selection, letter: &Letter) -> bool {
    let says = |name, wanted: &Option<String>| {
        wanted
            .as_deref()
            .is_none_or(|wanted| letter.get(name) == Some(wanted))
    };
    says(letter::REASON, &selection.reason) && says(letter::ERROR_TYPE, &selection.error_type)
}

/// How many entries to ask for after a page of `entries` that held `bytes`.
pub(super) fn next_page(entries: usize, bytes: usize) -> usize {
    let average = (bytes / entries.max(1)).max(1);
    (PAGE_BYTES / average).clamp(1, LARGEST_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(pairs: &[(&str, &str)]) -> Letter {
        Letter {
            context: pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            fields: Vec::new(),
        }
    }

    #[test]
    fn a_letter_belongs_to_the_stage_whose_stream_and_group_it_names() {
        let owner = Owner {
            stream: StreamKey::new("orders"),
            group: GroupName::new("mail"),
        };
        assert!(owner.owns(&letter(&[("stream", "orders"), ("group", "mail")])));
        assert!(!owner.owns(&letter(&[("stream", "orders"), ("group", "bill")])));
        assert!(!owner.owns(&letter(&[("stream", "orders")])));
        assert!(!owner.owns(&letter(&[])));
    }

    #[test]
    fn every_filter_given_must_hold() {
        let timeout = letter(&[("reason", "Poison"), ("error_type", "Timeout")]);
        let selection = |reason: Option<&str>, error_type: Option<&str>| Selection {
            reason: reason.map(str::to_owned),
            error_type: error_type.map(str::to_owned),
            ..Selection::default()
        };
        assert!(passes(&selection(None, None), &timeout));
        assert!(passes(
            &selection(Some("Poison"), Some("Timeout")),
            &timeout
        ));
        assert!(!passes(&selection(Some("Poison"), Some("Other")), &timeout));
        assert!(!passes(&selection(Some("Rejected"), None), &timeout));
        assert!(!passes(&selection(None, Some("Timeout")), &letter(&[])));
    }

    #[test]
    fn ages_bound_the_range_and_nothing_added_later_is_in_it() {
        let last = EntryId::new(9_000, 4);
        let range = |older: Option<u64>, newer: Option<u64>| {
            let selection = Selection {
                older_than: older.map(Duration::from_millis),
                newer_than: newer.map(Duration::from_millis),
                ..Selection::default()
            };
            let Range { from, until } = Range::of(&selection, 10_000, last);
            (from, until)
        };
        assert_eq!(range(None, None), (EntryId::ZERO, last));
        assert_eq!(
            range(Some(3_000), Some(5_000)),
            (EntryId::new(5_000, 0), EntryId::new(7_000, u64::MAX))
        );
        assert_eq!(range(Some(0), None), (EntryId::ZERO, last));
        assert_eq!(range(None, Some(99_000)), (EntryId::ZERO, last));
    }

    #[test]
    fn a_range_ends_at_its_last_id() {
        let range = Range {
            from: EntryId::ZERO,
            until: EntryId::new(7, u64::MAX),
        };
        assert_eq!(
            range.behind(EntryId::new(7, 1)).map(|range| range.from),
            Some(EntryId::new(7, 2))
        );
        assert_eq!(
            range
                .behind(EntryId::new(6, u64::MAX))
                .map(|range| range.from),
            Some(EntryId::new(7, 0))
        );
        assert_eq!(range.behind(EntryId::new(7, u64::MAX)), None);
        let all = Range {
            until: EntryId::new(u64::MAX, u64::MAX),
            ..range
        };
        assert_eq!(all.behind(all.until), None);
    }

    #[test]
    fn pages_shrink_with_the_size_of_entries() {
        assert_eq!(next_page(100, 20_000), LARGEST_PAGE);
        assert_eq!(next_page(100, 100 * 64 * 1024), 16);
        assert_eq!(next_page(1, 5 * PAGE_BYTES), 1);
        assert_eq!(next_page(0, 0), LARGEST_PAGE);
    }
}
