//! Reads replies: every shape that is not expected is an error, never a panic.
//!
//! Pure. Only RESP2 shapes are met, since the connections speak RESP2.

use redis::Value;

use crate::streams::{EntryId, Error, Fields};

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
    if let Value::Array(items) = value {
        return Ok(items);
    }
    if value == Value::Nil {
        return Ok(Vec::new());
    }
    Err(Odd("an array"))
}

/// An array of exactly `N` elements.
pub(super) fn exactly<const N: usize>(value: Value) -> Parsed<[Value; N]> {
    items(value)?
        .try_into()
        .map_err(|_: Vec<Value>| Odd("an array of another length"))
}

/// A string's bytes.
pub(super) fn bytes(value: Value) -> Parsed<Vec<u8>> {
    if let Value::BulkString(bytes) = value {
        return Ok(bytes);
    }
    if let Value::SimpleString(text) = value {
        return Ok(text.into_bytes());
    }
    Err(Odd("a string"))
}

/// A string of UTF-8.
pub(super) fn text(value: Value) -> Parsed<String> {
    String::from_utf8(bytes(value)?).map_err(|_| Odd("a string of UTF-8"))
}

/// An integer, also where it comes as a string.
pub(super) fn int(value: Value) -> Parsed<i64> {
    if let Value::Int(number) = value {
        return Ok(number);
    }
    text(value)?.parse().map_err(|_| Odd("an integer"))
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

#[cfg(test)]
mod tests {
    use super::*;

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
