//! Entries for a local run: one JSON object a line, its members the fields of one entry.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use tokio::sync::mpsc;

use crate::cli::Input;
use crate::streams::Fields;

/// Lines that are read ahead of their adding.
const LINES_AHEAD: usize = 256;

/// Why the input cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadInput {
    #[error("cannot read {name}")]
    Unreadable { name: String, source: io::Error },
    #[error(
        "line {line} of {name} is no JSON object of strings, numbers, booleans, arrays of these, or {{\"base64\": \"...\"}}"
    )]
    NotAnEntry { name: String, line: u64 },
}

/// Lines on their way to become entries, read by a thread of their own: a terminal that says nothing holds up no exit.
pub(super) struct Entries {
    name: String,
    lines: mpsc::Receiver<io::Result<String>>,
    line: u64,
}

impl Entries {
    pub(super) fn open(input: &Input) -> Result<Self, BadInput> {
        let (name, reader): (_, Box<dyn BufRead + Send>) = match input {
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
            for line in reader.lines() {
                if sender.blocking_send(line).is_err() {
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
            let name = || self.name.clone();
            let line = match self.lines.recv().await {
                Some(Ok(line)) => line,
                None => return Ok(None),
                Some(Err(source)) => {
                    return Err(BadInput::Unreadable {
                        name: name(),
                        source,
                    });
                }
            };
            if line.trim().is_empty() {
                continue;
            }
            return match parse(&line) {
                Ok(fields) => Ok(Some(fields)),
                Err(_) => Err(BadInput::NotAnEntry {
                    name: name(),
                    line: self.line,
                }),
            };
        }
    }
}

fn parse(line: &str) -> Result<Fields, serde_json::Error> {
    serde_json::from_str::<EntryJson>(line).map(|entry| entry.0)
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
        f.write_str("an object with at least one member")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<EntryJson, A::Error> {
        let mut fields = Fields::new();
        while let Some((name, value)) = object.next_entry::<String, ValueJson>()? {
            let values = value.bytes().map_err(de::Error::custom)?;
            fields.extend(
                values
                    .into_iter()
                    .map(|value| (name.clone().into_bytes(), value)),
            );
        }
        if fields.is_empty() {
            return Err(de::Error::custom("an entry has at least one field"));
        }
        Ok(EntryJson(fields))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ValueJson {
    Text(String),
    Number(serde_json::Number),
    Flag(bool),
    Bytes { base64: String },
    Many(Vec<ValueJson>),
}

impl ValueJson {
    fn bytes(self) -> Result<Vec<Vec<u8>>, base64::DecodeError> {
        Ok(match self {
            Self::Text(text) => vec![text.into_bytes()],
            Self::Number(number) => vec![number.to_string().into_bytes()],
            Self::Flag(flag) => vec![flag.to_string().into_bytes()],
            Self::Bytes { base64 } => vec![BASE64.decode(base64)?],
            Self::Many(values) => {
                let mut all = Vec::new();
                for value in values {
                    all.extend(value.bytes()?);
                }
                all
            }
        })
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
    fn what_is_no_entry_is_refused() {
        for line in [
            "",
            "[]",
            "{}",
            "1",
            "{\"a\":null}",
            "{\"a\":{\"b\":1}}",
            "{\"a\":\"x\"",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
