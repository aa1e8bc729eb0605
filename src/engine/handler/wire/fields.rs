//! Fields as JSON, and outputs back from it. Pure.
//!
//! | fields | JSON |
//! | --- | --- |
//! | a value that is UTF-8 | a string |
//! | any other value | `{"base64": "..."}` |
//! | a name that comes again | one array, where the name came first |
//! | a name that is not UTF-8, or itself begins with `base64:` | the name `base64:<its bytes in Base64>` |
//!
//! So every set of fields has one form and can be had back from it, but for the places of repeated names among the others.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::streams::Fields;

/// What a name begins with whose rest is Base64.
const ENCODED_NAME: &str = "base64:";

/// The one member of an object that stands for bytes.
const ENCODED_VALUE: &str = "base64";

/// The standard alphabet, written with padding and read with or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An entry's fields, to be written as one JSON object.
pub(crate) struct FieldsJson<'a>(pub(crate) &'a Fields);

impl Serialize for FieldsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = by_name(self.0);
        let mut object = serializer.serialize_map(Some(fields.len()))?;
        for (name, values) in &fields {
            let name = name_json(name);
            match values.as_slice() {
                [value] => object.serialize_entry(&name, &ValueJson(value))?,
                values => {
                    let values: Vec<_> = values.iter().map(|value| ValueJson(value)).collect();
                    object.serialize_entry(&name, &values)?;
                }
            }
        }
        object.end()
    }
}

/// The values of each name, both in the order they first appear.
fn by_name(fields: &Fields) -> Vec<(&[u8], Vec<&[u8]>)> {
    let mut positions: HashMap<&[u8], usize> = HashMap::with_capacity(fields.len());
    let mut grouped: Vec<(&[u8], Vec<&[u8]>)> = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let position = *positions.entry(name).or_insert(grouped.len());
        match grouped.get_mut(position) {
            Some((_, values)) => values.push(value),
            None => grouped.push((name, vec![value])),
        }
    }
    grouped
}

fn name_json(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.starts_with(ENCODED_NAME) => Cow::Borrowed(text),
        Ok(_) | Err(_) => Cow::Owned(format!("{ENCODED_NAME}{}", BASE64.encode(name))),
    }
}

struct ValueJson<'a>(&'a [u8]);

impl Serialize for ValueJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return serializer.serialize_str(text);
        }
        let mut object = serializer.serialize_map(Some(1))?;
        object.serialize_entry(ENCODED_VALUE, &BASE64.encode(self.0))?;
        object.end()
    }
}

/// One output as a handler wrote it: an object of strings and `{"base64"}`, at least one, in the order written.
#[derive(Debug)]
pub(crate) struct OutputJson(pub(crate) Fields);

impl<'de> Deserialize<'de> for OutputJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OutputVisitor)
    }
}

struct OutputVisitor;

impl<'de> Visitor<'de> for OutputVisitor {
    type Value = OutputJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an output: an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<OutputJson, A::Error> {
        let mut fields = Fields::new();
        while let Some(name) = object.next_key::<String>()? {
            let name = match name.strip_prefix(ENCODED_NAME) {
                Some(encoded) => decode(encoded)?,
                None => name.into_bytes(),
            };
            fields.push((name, object.next_value::<OutputValue>()?.0));
        }
        if fields.is_empty() {
            return Err(de::Error::custom("an output has at least one field"));
        }
        Ok(OutputJson(fields))
    }
}

struct OutputValue(Vec<u8>);

impl<'de> Deserialize<'de> for OutputValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OutputValueVisitor)
    }
}

struct OutputValueVisitor;

impl<'de> Visitor<'de> for OutputValueVisitor {
    type Value = OutputValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a string or {"base64": "..."}"#)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OutputValue, E> {
        Ok(OutputValue(text.as_bytes().to_vec()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<OutputValue, E> {
        Ok(OutputValue(text.into_bytes()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<OutputValue, A::Error> {
        let wrong = || de::Error::custom(r#"expected a string or {"base64": "..."}"#);
        match object.next_key::<String>()? {
            Some(name) if name == ENCODED_VALUE => {}
            Some(_) | None => return Err(wrong()),
        }
        let value = decode(&object.next_value::<String>()?)?;
        match object.next_key::<String>()? {
            None => Ok(OutputValue(value)),
            Some(_) => Err(wrong()),
        }
    }
}

fn decode<E: de::Error>(encoded: &str) -> Result<Vec<u8>, E> {
    BASE64
        .decode(encoded)
        .map_err(|error| E::custom(format_args!("not Base64: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&[u8], &[u8])]) -> Fields {
        pairs
            .iter()
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect()
    }

    fn json(pairs: &[(&[u8], &[u8])]) -> String {
        serde_json::to_string(&FieldsJson(&fields(pairs))).unwrap()
    }

    fn output(text: &str) -> Result<Fields, String> {
        serde_json::from_str::<OutputJson>(text)
            .map(|output| output.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn fields_are_written_as_the_design_says() {
        for (pairs, expected) in [
            (vec![], "{}"),
            (vec![(&b"a"[..], &b""[..])], r#"{"a":""}"#),
            (vec![(b"z", b"1"), (b"a", b"2")], r#"{"z":"1","a":"2"}"#),
            (vec![(b"n", b"1e999")], r#"{"n":"1e999"}"#),
            (
                vec![(b"t", b"line\nquote\" \xc3\xa4")],
                "{\"t\":\"line\\nquote\\\" ä\"}",
            ),
            (vec![(b"b", b"\xff\x00")], r#"{"b":{"base64":"/wA="}}"#),
            (
                vec![(b"r", b"1"), (b"o", b"x"), (b"r", b"\xff"), (b"r", b"")],
                r#"{"r":["1",{"base64":"/w=="},""],"o":"x"}"#,
            ),
            (vec![(b"\xff", b"v")], r#"{"base64:/w==":"v"}"#),
            (vec![(b"base64:x", b"v")], r#"{"base64:YmFzZTY0Ong=":"v"}"#),
            (vec![(b"", b"v")], r#"{"":"v"}"#),
        ] {
            assert_eq!(json(&pairs), expected);
        }
    }

    #[test]
    fn outputs_are_strings_or_base64_and_nothing_else() {
        assert_eq!(
            output(r#"{"z":"1","a":{"base64":"/wA"},"z":"2","base64:/w==":"v","":"\u00e4"}"#),
            Ok(fields(&[
                (b"z", b"1"),
                (b"a", b"\xff\x00"),
                (b"z", b"2"),
                (b"\xff", b"v"),
                (b"", "ä".as_bytes()),
            ]))
        );
        for wrong in [
            "{}",
            "[]",
            "null",
            r#""text""#,
            r#"{"a":1}"#,
            r#"{"a":1e999}"#,
            r#"{"a":true}"#,
            r#"{"a":null}"#,
            r#"{"a":["x"]}"#,
            r#"{"a":{}}"#,
            r#"{"a":{"base64":1}}"#,
            r#"{"a":{"base64":"*"}}"#,
            r#"{"a":{"base64":"/w==","more":1}}"#,
            r#"{"a":{"Base64":"/w=="}}"#,
            r#"{"base64:*":"v"}"#,
        ] {
            assert!(output(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_say_what_was_expected_and_where() {
        assert_eq!(
            output(r#"{"a":1}"#).unwrap_err(),
            r#"invalid type: integer `1`, expected a string or {"base64": "..."} at line 1 column 6"#
        );
    }

    proptest::proptest! {
        #[test]
        fn distinct_fields_come_back_as_they_went(
            pairs in proptest::collection::btree_map(
                proptest::prop_oneof![
                    proptest::collection::vec(proptest::num::u8::ANY, 0..12),
                    "(base64:)?[ -~]{0,8}".prop_map(String::into_bytes),
                ],
                proptest::collection::vec(proptest::num::u8::ANY, 0..12),
                1..8,
            )
        ) {
            let sent: Fields = pairs.into_iter().collect();
            let text = serde_json::to_string(&FieldsJson(&sent)).unwrap();
            proptest::prop_assert_eq!(output(&text).unwrap(), sent);
        }
    }

    use proptest::strategy::Strategy as _;
}
