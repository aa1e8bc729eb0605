//! Reads replies: every shape that is not expected is an error, never a panic.
//!
//! Pure. Only RESP2 shapes are met, since the connections speak RESP2.

use redis::Value;

use crate::streams::entry::META_FIELD;
use crate::streams::{Entry, EntryId, Error, Fields, Lane, Meta, Place};

/// What was expected where something else came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Odd(pub(super) &'static str);

/// A part of a reply, or what was expected in its place.
pub(super) type Parsed<T> = Result<T, Odd>;

impl Odd {
    /// The error of the session that met it in the reply to `command`.
    pub(super) fn in_reply_to(self, command: &'static str) -> Error {
        Error::Protocol {
            command,
            detail: format!("expected {}", self.0),
        }
    }
}

/// An array; nil is an empty one.
pub(super) fn items(value: Value) -> Parsed<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Nil => Ok(Vec::new()),
        _ => Err(Odd("an array")),
    }
}

/// An array of exactly `N` elements.
pub(super) fn exactly<const N: usize>(value: Value) -> Parsed<[Value; N]> {
    items(value)?
        .try_into()
        .map_err(|_: Vec<Value>| Odd("an array of another length"))
}

/// A string's bytes.
pub(super) fn bytes(value: Value) -> Parsed<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Okay => Ok(b"OK".to_vec()),
        _ => Err(Odd("a string")),
    }
}

/// A string of UTF-8.
pub(super) fn text(value: Value) -> Parsed<String> {
    String::from_utf8(bytes(value)?).map_err(|_| Odd("a string of UTF-8"))
}

/// An integer, also where it comes as a string.
pub(super) fn int(value: Value) -> Parsed<i64> {
    match value {
        Value::Int(number) => Ok(number),
        other => text(other)?.parse().map_err(|_| Odd("an integer")),
    }
}

/// An integer from 0.
pub(super) fn count(value: Value) -> Parsed<u64> {
    u64::try_from(int(value)?).map_err(|_| Odd("an integer from 0"))
}

/// An entry id.
pub(super) fn id(value: Value) -> Parsed<EntryId> {
    text(value)?.parse().map_err(|_| Odd("an entry id"))
}

/// Names and values in turn, as XINFO gives them.
pub(super) fn named(value: Value) -> Parsed<Vec<(String, Value)>> {
    let mut items = items(value)?.into_iter();
    let mut pairs = Vec::with_capacity(items.len() / 2);
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        pairs.push((text(name)?, value));
    }
    Ok(pairs)
}

/// Takes the value of `name` out of what [`named`] gave; nil counts as absent.
pub(super) fn take(pairs: &mut Vec<(String, Value)>, name: &str) -> Option<Value> {
    let position = pairs.iter().position(|(found, _)| found == name)?;
    let (_, value) = pairs.swap_remove(position);
    (value != Value::Nil).then_some(value)
}

/// An entry's pairs.
pub(super) fn fields(value: Value) -> Parsed<Fields> {
    let mut items = items(value)?.into_iter();
    let mut fields = Vec::with_capacity(items.len() / 2);
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        fields.push((bytes(name)?, bytes(value)?));
    }
    Ok(fields)
}

/// An entry of either stream: in `P:retry` the first field is our meta, in S that name is a field like any other.
pub(super) fn entry(lane: Lane, id: EntryId, mut fields: Fields, seen_at: u64) -> Entry {
    let carried = lane == Lane::Retry && fields.first().is_some_and(|(name, _)| name == META_FIELD);
    let meta = carried
        .then(|| fields.remove(0))
        .and_then(|(_, value)| Meta::parse(&value));
    Entry {
        place: Place { lane, id },
        fields,
        meta: meta.unwrap_or_else(|| Meta::fresh(id, seen_at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
        (name.to_vec(), value.to_vec())
    }

    #[test]
    fn meta_is_taken_off_the_retry_stream_only() {
        let id = EntryId::new(5, 0);
        let mut meta = Meta::fresh(EntryId::new(1, 0), 9);
        meta.attempts = 2;
        let with_meta = vec![pair(META_FIELD, &meta.render()), pair(b"a", b"1")];

        let retried = entry(Lane::Retry, id, with_meta.clone(), 0);
        assert_eq!(
            (retried.meta, retried.fields),
            (meta, vec![pair(b"a", b"1")])
        );

        let fresh = entry(Lane::Source, id, with_meta.clone(), 7);
        assert_eq!((fresh.meta, fresh.fields), (Meta::fresh(id, 7), with_meta));
    }

    #[test]
    fn unreadable_meta_is_dropped_and_a_later_field_of_that_name_stays() {
        let id = EntryId::new(5, 0);
        let bad = entry(
            Lane::Retry,
            id,
            vec![pair(META_FIELD, b"{"), pair(b"a", b"1")],
            7,
        );
        assert_eq!(
            (bad.meta, bad.fields),
            (Meta::fresh(id, 7), vec![pair(b"a", b"1")])
        );

        let later = vec![pair(b"a", b"1"), pair(META_FIELD, b"x")];
        assert_eq!(entry(Lane::Retry, id, later.clone(), 7).fields, later);
    }

    #[test]
    fn odd_shapes_are_errors() {
        assert_eq!(int(Value::BulkString(b"12".to_vec())), Ok(12));
        assert_eq!(
            int(Value::BulkString(b"x".to_vec())),
            Err(Odd("an integer"))
        );
        assert_eq!(items(Value::Nil), Ok(Vec::new()));
        assert!(exactly::<2>(Value::Array(vec![Value::Nil])).is_err());
        assert!(count(Value::Int(-1)).is_err());
    }
}
