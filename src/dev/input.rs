//! Entries for a local run: one JSON object a line, its members the fields of one entry.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::cli::Input;
use crate::printable::escaped_to;
use crate::streams::Fields;

/// Lines that are read ahead of their adding. Few: each may be long.
const LINES_AHEAD: usize = 4;

/// A longer line is no entry.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// So many characters of a member's name tell which one it is.
const TELLING: usize = 60;

/// Why the input cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadInput {
    #[error("cannot read {name}")]
    Unreadable { name: String, source: io::Error },
    #[error("line {line} of {name} is no entry: {problem}")]
    NotAnEntry {
        name: String,
        line: u64,
        problem: String,
    },
}

/// A line as it was read: its text, or why it has none.
type Line = Result<String, &'static str>;

/// Lines on their way to become entries, read by a thread of their own: a terminal that says nothing holds up no exit.
pub(super) struct Entries {
    name: String,
    lines: mpsc::Receiver<io::Result<Line>>,
    line: u64,
}

impl Entries {
    pub(super) fn open(input: &Input) -> Result<Self, BadInput> {
        let (name, mut reader): (_, Box<dyn BufRead + Send>) = match input {
            Input::Stdin => (
                "standard input".to_owned(),
                Box::new(BufReader::new(io::stdin())),
            ),
            Input::File(path) => {
                let name = path.display().to_string();
                match File::open(path) {
                    Ok(file) => (name, Box::new(BufReader::new(file))),
                    Err(source) => return Err(BadInput::Unreadable { name, source }),
                }
            }
        };
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        std::thread::spawn(move || {
            while let Some(line) = next_line(&mut reader).transpose() {
                let is_last = !matches!(line, Ok(Ok(_)));
                if sender.blocking_send(line).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(Self {
            name,
            lines,
            line: 0,
        })
    }

    /// The next entry; `None` at the end. Blank lines are passed over.
    pub(super) async fn next(&mut self) -> Result<Option<Fields>, BadInput> {
        loop {
            self.line += 1;
            let Some(line) = self.lines.recv().await else {
                return Ok(None);
            };
            let line = line.map_err(|source| BadInput::Unreadable {
                name: self.name.clone(),
                source,
            })?;
            let parsed = match line {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => parse(&text),
                Err(problem) => Err(problem.to_owned()),
            };
            return parsed.map(Some).map_err(|problem| BadInput::NotAnEntry {
                name: self.name.clone(),
                line: self.line,
                problem,
            });
        }
    }
}

/// The next line without its end; `None` at the end of the input. Behind a line without a text nothing can be read.
fn next_line(reader: &mut dyn BufRead) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    // One byte for the line's end, or for being too long.
    let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX) + 1;
    if io::Read::take(reader, most).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(Some(if bytes.len() > MOST_BYTES {
        Err("it is longer than 64 MiB")
    } else {
        String::from_utf8(bytes)
            .map_err(|_| "it is not UTF-8; write a value of other bytes as {\"base64\": \"...\"}")
    }))
}

/// The fields of a line, or what is wrong with it.
fn parse(line: &str) -> Result<Fields, String> {
    match serde_json::from_str::<EntryJson>(line) {
        Ok(entry) => Ok(entry.0),
        Err(error) => {
            let text = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            Err(text.strip_suffix(&place).unwrap_or(&text).to_owned())
        }
    }
}

/// An object's members in their order; an array is a repeated field.
struct EntryJson(Fields);

impl<'de> Deserialize<'de> for EntryJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = EntryJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of fields such as {\"name\": \"value\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<EntryJson, A::Error> {
        let mut fields = Fields::new();
        while let Some((name, value)) = object.next_entry::<String, Value>()? {
            let values = bytes(value).map_err(|problem| {
                de::Error::custom(format!("`{}` is {problem}", escaped_to(&name, TELLING)))
            })?;
            fields.extend(
                values
                    .into_iter()
                    .map(|value| (name.clone().into_bytes(), value)),
            );
        }
        if fields.is_empty() {
            return Err(de::Error::custom(
                "it has no field: an entry needs at least one",
            ));
        }
        Ok(EntryJson(fields))
    }
}

/// The values of a member, or what it is instead.
fn bytes(value: Value) -> Result<Vec<Vec<u8>>, &'static str> {
    Ok(match value {
        Value::Null => return Err("null: leave it out, or write a string"),
        Value::String(text) => vec![text.into_bytes()],
        Value::Number(number) => vec![number.to_string().into_bytes()],
        Value::Bool(flag) => vec![flag.to_string().into_bytes()],
        Value::Object(members) => vec![decoded(&members)?],
        Value::Array(values) => {
            let all: Result<Vec<_>, _> = values.into_iter().map(bytes).collect();
            all?.concat()
        }
    })
}

fn decoded(members: &Map<String, Value>) -> Result<Vec<u8>, &'static str> {
    match members.get("base64") {
        Some(Value::String(text)) if members.len() == 1 => BASE64
            .decode(text)
            .map_err(|_| "no base64 (of the standard alphabet, with padding)"),
        _ => Err("an object: write it as a string, or bytes as {\"base64\": \"...\"}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_become_fields_in_their_order() {
        let fields = parse(r#"{"z":"1","a":2,"b":[true,"x"],"c":{"base64":"/w=="}}"#).unwrap();
        let names: Vec<_> = fields.iter().map(|(name, _)| name.as_slice()).collect();
        let values: Vec<_> = fields.iter().map(|(_, value)| value.as_slice()).collect();
        assert_eq!(names, [b"z", b"a", b"b", b"b", b"c"]);
        assert_eq!(values, [b"1".as_slice(), b"2", b"true", b"x", b"\xff"]);
    }

    #[test]
    fn large_numbers_keep_their_digits() {
        let fields = parse(r#"{"id":9007199254740993}"#).unwrap();
        assert_eq!(fields, [(b"id".to_vec(), b"9007199254740993".to_vec())]);
    }

    #[test]
    fn what_is_no_entry_is_refused_with_its_cause() {
        for (line, cause) in [
            ("[]", "invalid type: sequence"),
            ("1", "invalid type: integer"),
            ("{}", "no field"),
            ("{\"a\":null}", "`a` is null"),
            ("{\"a\":[\"x\",null]}", "`a` is null"),
            ("{\"a\":{\"b\":1}}", "`a` is an object"),
            ("{\"a\":{\"base64\":\"/w==\",\"b\":1}}", "`a` is an object"),
            ("{\"a\":{\"base64\":\"?\"}}", "`a` is no base64"),
            ("{\"a\\n\":null}", "`a\\n` is null"),
            ("{\"a\":\"x\"", "EOF while parsing an object"),
            ("{\"a\":\"x\"} x", "trailing characters"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.contains(cause), "{line}: {problem}");
            assert!(!problem.contains("column"), "{line}: {problem}");
        }
    }

    #[test]
    fn a_line_is_bounded_and_its_text_is_utf8() {
        let mut lines: &[u8] = b"one\n\nlast";
        let mut next = || next_line(&mut lines).unwrap();
        assert_eq!(next(), Some(Ok("one".to_owned())));
        assert_eq!(next(), Some(Ok(String::new())));
        assert_eq!(next(), Some(Ok("last".to_owned())));
        assert_eq!(next(), None);
        let problem = next_line(&mut &b"\xff\n"[..]).unwrap().unwrap();
        assert!(problem.unwrap_err().contains("UTF-8"));
        let mut endless = BufReader::new(io::repeat(b'x'));
        let problem = next_line(&mut endless).unwrap().unwrap();
        assert!(problem.unwrap_err().contains("64 MiB"));
    }
}
