//! Letters counted by kind of failure: reason, error type and the error's text with its numbers taken out. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::render::NARROWEST_ERROR;
use crate::printable::escaped_to;
use crate::streams::{EntryId, Letter, letter};

/// So many kinds are kept apart; the letters of others are counted together.
const MOST_GROUPS: usize = 1_000;

/// The text of the group that takes them.
const OTHERS: &str = "(other errors)";

/// So many characters of an error's first line tell its kind.
const TELLING: usize = 160;

/// The columns before the error: head and width.
const COLUMNS: [(&str, usize); 6] = [
    ("COUNT", 7),
    ("REASON", 19),
    ("ERROR TYPE", 20),
    ("FIRST SEEN", 24),
    ("LAST SEEN", 24),
    ("SAMPLE", 20),
];

/// The letters seen so far, by kind.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<Kind, Tally>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    reason: String,
    error_type: String,
    error: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tally {
    count: u64,
    first_seen: String,
    last_seen: String,
    sample: EntryId,
}

/// One kind and its count, as one JSON object.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    #[serde(flatten)]
    kind: &'a Kind,
    #[serde(flatten)]
    seen: &'a Tally,
}

impl Groups {
    /// Counts a letter. Letters come oldest first.
    pub(super) fn add(&mut self, id: EntryId, letter: &Letter) {
        let says = |name| letter.get(name).unwrap_or_default().to_owned();
        let mut kind = Kind {
            reason: says(letter::REASON),
            error_type: says(letter::ERROR_TYPE),
            error: normalized(letter.get(letter::ERROR).unwrap_or_default()),
        };
        if self.0.len() >= MOST_GROUPS && !self.0.contains_key(&kind) {
            OTHERS.clone_into(&mut kind.error);
            kind.error_type.clear();
        }
        let failed_at = says(letter::FAILED_AT);
        let seen = self.0.entry(kind).or_insert_with(|| Tally {
            count: 0,
            first_seen: failed_at.clone(),
            last_seen: String::new(),
            sample: id,
        });
        seen.count += 1;
        seen.last_seen = failed_at;
    }

    /// The largest first.
    pub(super) fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: Vec<Line<'_>> = self
            .0
            .iter()
            .map(|(kind, seen)| Line { kind, seen })
            .collect();
        lines.sort_by_key(|line| Reverse(line.seen.count));
        lines
    }

    /// The line above [`Line::row`]s.
    pub(super) fn heads() -> String {
        let cells = COLUMNS.map(|(head, width)| format!("{head:width$}"));
        format!("{} ERROR", cells.join(" "))
    }
}

impl Line<'_> {
    /// One line of at most `width` characters; the error is cut first.
    pub(super) fn row(&self, width: usize) -> String {
        let (kind, seen) = (self.kind, self.seen);
        let count = seen.count.to_string();
        let sample = seen.sample.to_string();
        let texts = [
            &count,
            &kind.reason,
            &kind.error_type,
            &seen.first_seen,
            &seen.last_seen,
            &sample,
        ];
        let mut cells = Vec::new();
        for ((_, width), text) in COLUMNS.into_iter().zip(texts) {
            cells.push(format!("{:width$}", escaped_to(text, width)));
        }
        let before = cells.join(" ");
        let left = width
            .saturating_sub(before.chars().count() + 1)
            .max(NARROWEST_ERROR);
        let error = escaped_to(&kind.error, left);
        format!("{before} {error}").trim_end().to_owned()
    }
}

/// The first line of an error with every word that holds a digit written `#`: numbers, ids, times and addresses differ from
/// letter to letter where the failure is the same.
fn normalized(error: &str) -> String {
    let first = error.lines().next().unwrap_or_default();
    let mut text = String::new();
    let mut word = String::new();
    for character in first.chars().chain(['\0']) {
        if character.is_alphanumeric() || matches!(character, '-' | '_') {
            word.push(character);
            continue;
        }
        let numbered = word.chars().any(|character| character.is_ascii_digit());
        text.push_str(if numbered { "#" } else { &word });
        word.clear();
        text.push(character);
    }
    text.pop();
    text.chars().take(TELLING).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(error_type: &str, error: &str, at: &str) -> Letter {
        let context = [
            ("reason", "Rejected"),
            ("error_type", error_type),
            ("error", error),
            ("failed_at", at),
        ];
        Letter {
            context: context
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            fields: Vec::new(),
        }
    }

    #[test]
    fn texts_that_differ_in_numbers_and_ids_are_one_kind() {
        let rows = [
            ("document 8812 is empty", "document # is empty"),
            (
                "no user 6f9619ff-8b86-d011-b42d-00cf4fc964ff!",
                "no user #!",
            ),
            (
                "10.0.0.7:6379 timed out after 5s",
                "#.#.#.#:# timed out after #",
            ),
            ("plain words, näher", "plain words, näher"),
            ("first line\nsecond line", "first line"),
            ("", ""),
        ];
        for (error, kind) in rows {
            assert_eq!(normalized(error), kind);
        }
    }

    #[test]
    fn groups_count_and_remember_first_last_and_a_sample_largest_first() {
        let mut groups = Groups::default();
        groups.add(EntryId::new(1, 0), &letter("A", "x 1", "t1"));
        groups.add(EntryId::new(2, 0), &letter("B", "y 1", "t2"));
        groups.add(EntryId::new(3, 0), &letter("B", "y 2", "t3"));
        let lines: Vec<_> = groups
            .lines()
            .iter()
            .map(|line| serde_json::to_value(line).unwrap())
            .collect();
        assert_eq!(
            lines[0],
            serde_json::json!({
                "reason": "Rejected", "errorType": "B", "error": "y #", "count": 2,
                "firstSeen": "t2", "lastSeen": "t3", "sample": "2-0",
            })
        );
        assert_eq!(lines[1]["count"], 1);
    }

    #[test]
    fn kinds_beyond_the_limit_are_counted_together() {
        let mut groups = Groups::default();
        for kind in 0..MOST_GROUPS as u64 + 50 {
            let name: String = kind
                .to_string()
                .bytes()
                .map(|digit| char::from(digit + 49))
                .collect();
            groups.add(EntryId::new(kind, 0), &letter("E", &name, "t"));
        }
        let lines = groups.lines();
        assert_eq!(lines.len(), MOST_GROUPS + 1);
        assert_eq!(
            (lines[0].seen.count, lines[0].kind.error.as_str()),
            (50, OTHERS)
        );
    }

    #[test]
    fn a_row_escapes_and_stays_within_its_width() {
        let mut groups = Groups::default();
        groups.add(
            EntryId::new(1, 0),
            &letter("\u{1b}c", &"long ".repeat(50), "t"),
        );
        let row = groups.lines()[0].row(180);
        assert!(row.contains("\\u{1b}c"));
        assert_eq!(row.chars().count(), 180);
        assert_eq!(Groups::heads().rfind("ERROR"), row.find("long"));
    }
}
