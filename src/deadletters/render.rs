//! Letters as people and programs see them: a row, everything, or a lossless JSON object. Pure.
//!
//! What goes to people is escaped ([`crate::printable`]): every text of a letter was written by somebody else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::printable::{escaped, escaped_to};
use crate::streams::{EntryId, Letter, letter};

/// The columns between id and error: head and width.
const COLUMNS: [(&str, usize); 6] = [
    ("FAILED AT", 24),
    ("REASON", 19),
    ("ERROR TYPE", 20),
    ("ATTEMPTS", 8),
    ("DELIVERIES", 10),
    ("REPLAYS", 7),
];

/// The width of the ids that servers give out. An id is there to be copied: a longer one is never cut.
const ID_WIDTH: usize = 17;

/// The last column's width where it would otherwise be narrower.
pub(super) const NARROWEST_ERROR: usize = 20;

/// The line above the rows.
pub(super) fn heads() -> String {
    let mut cells = vec![format!("{:ID_WIDTH$}", "ID")];
    cells.extend(COLUMNS.map(|(head, width)| format!("{head:width$}")));
    cells.push("ERROR".to_owned());
    cells.join(" ")
}

/// One letter in one line of at most `width` characters; the error is cut first.
pub(super) fn row(id: EntryId, letter: &Letter, width: usize) -> String {
    let says = |name| letter.get(name).unwrap_or_default();
    let texts = [
        says(letter::FAILED_AT),
        says(letter::REASON),
        says(letter::ERROR_TYPE),
        says(letter::ATTEMPTS),
        says(letter::DELIVERIES),
        says(letter::REPLAYS),
    ];
    let mut cells = vec![format!("{:ID_WIDTH$}", id.to_string())];
    for ((_, width), text) in COLUMNS.into_iter().zip(texts) {
        cells.push(format!("{:width$}", escaped_to(text, width)));
    }
    let before = cells.join(" ");
    let left = width
        .saturating_sub(before.chars().count() + 1)
        .max(NARROWEST_ERROR);
    let error = escaped_to(says(letter::ERROR), left);
    format!("{before} {error}").trim_end().to_owned()
}

/// One letter as a JSON object with the columns of a row, the error uncut.
pub(super) fn row_json(id: EntryId, letter: &Letter) -> serde_json::Value {
    let number = |name| letter.get(name).and_then(|text| text.parse::<u64>().ok());
    json!({
        "id": id,
        "failedAt": letter.get(letter::FAILED_AT),
        "reason": letter.get(letter::REASON),
        "errorType": letter.get(letter::ERROR_TYPE),
        "attempts": number(letter::ATTEMPTS),
        "deliveries": number(letter::DELIVERIES),
        "replays": number(letter::REPLAYS),
        "error": letter.get(letter::ERROR),
    })
}

/// Everything about one letter, for people, in lines.
pub(super) fn whole(id: EntryId, letter: &Letter) -> Vec<String> {
    let mut lines = vec![format!("dead letter {id}")];
    for (name, value) in &letter.context {
        let mut parts = value.trim_end_matches('\n').split('\n').map(escaped);
        let first = parts.next().unwrap_or_default();
        lines.push(format!("  {:18} {first}", escaped(name)));
        // The bar tells lines of a text from ours: a traceback cannot forge a pair.
        lines.extend(parts.map(|part| format!("    | {part}")));
    }
    let count = letter.fields.len();
    let noun = if count == 1 { "field" } else { "fields" };
    lines.push(format!("  {count} {noun} of the entry:"));
    for (name, value) in &letter.fields {
        lines.push(format!("    {} = {}", shown(name), shown(value)));
    }
    lines
}

/// A name or value on one line: text, or base64 marked as such.
fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => escaped(text),
        Err(_) => format!("(base64) {}", STANDARD.encode(bytes)),
    }
}

/// One letter as a JSON object from which it can be made again.
///
/// `context` keeps the order of its pairs; `fields` is a list of pairs, for names may repeat. Text is a string, anything
/// else `{"base64": "..."}`.
#[derive(Serialize)]
pub(super) struct Export<'a> {
    id: EntryId,
    context: Context<'a>,
    fields: Pairs<'a>,
}

impl<'a> Export<'a> {
    pub(super) fn of(id: EntryId, letter: &'a Letter) -> Self {
        Self {
            id,
            context: Context(letter),
            fields: Pairs(letter),
        }
    }
}

struct Context<'a>(&'a Letter);

impl Serialize for Context<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.context.len()))?;
        for (name, value) in &self.0.context {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

struct Pairs<'a>(&'a Letter);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.fields.len()))?;
        for (name, value) in &self.0.fields {
            list.serialize_element(&(Bytes(name), Bytes(value)))?;
        }
        list.end()
    }
}

struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("base64", &STANDARD.encode(self.0))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter() -> Letter {
        let context = [
            ("failed_at", "2026-12-01T10:00:00.123Z"),
            ("attempts", "8"),
            ("error_type", "Time\u{1b}[2Jout"),
            ("error", "first\nsecond \u{202e}"),
            ("reason", "AttemptsExhausted"),
            ("deliveries", "9"),
            ("replays", "0"),
        ];
        Letter {
            context: context
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            fields: vec![
                (b"to".to_vec(), b"x\ry".to_vec()),
                (b"to".to_vec(), b"z".to_vec()),
                (vec![0xff], vec![0, 0xfe]),
            ],
        }
    }

    const ID: EntryId = EntryId::new(1_700_000_000_000, 0);

    #[test]
    fn a_row_is_one_line_cut_to_the_width_and_free_of_control_characters() {
        let line = row(ID, &letter(), 140);
        assert_eq!(
            line,
            "1700000000000-0   2026-12-01T10:00:00.123Z AttemptsExhausted   Time\\u{1b}[2Jout     \
             8        9          0       first\\nsecond \\u{202e}"
        );
        let cut = row(ID, &letter(), 130);
        assert!(cut.ends_with(" first\\nsecond \\u{20…"), "{cut}");
        assert_eq!(heads().find("ERROR TYPE"), line.find("Time"));
        assert_eq!(heads().rfind("ERROR"), line.find("first"));
    }

    #[test]
    fn show_keeps_lines_apart_and_marks_what_is_not_text() {
        let lines = whole(ID, &letter());
        let has = |part: &[&str]| lines.windows(part.len()).any(|lines| lines == part);
        assert!(
            has(&["  error              first", "    | second \\u{202e}"]),
            "{lines:?}"
        );
        assert!(
            has(&["  3 fields of the entry:", "    to = x\\ry", "    to = z"]),
            "{lines:?}"
        );
        assert!(has(&["    (base64) /w== = (base64) AP4="]), "{lines:?}");
    }

    #[test]
    fn json_rows_hold_numbers_and_the_error_uncut() {
        let row = row_json(ID, &letter());
        assert_eq!(row["attempts"], 8);
        assert_eq!(row["error"], "first\nsecond \u{202e}");
        assert_eq!(row_json(ID, &Letter::default())["attempts"], json!(null));
    }

    #[test]
    fn an_export_keeps_order_repetitions_and_bytes() {
        let line = serde_json::to_string(&Export::of(ID, &letter())).unwrap();
        assert!(
            line.starts_with(r#"{"id":"1700000000000-0","context":{"failed_at":"#),
            "{line}"
        );
        assert!(
            line.ends_with(
                r#""fields":[["to","x\ry"],["to","z"],[{"base64":"/w=="},{"base64":"AP4="}]]}"#
            ),
            "{line}"
        );
    }
}
