//! The idempotency key of an entry: the same work has the same key, in every worker and every release.
//!
//! Pure. The bytes hashed are a contract: a change of them would let work that is in the ledger run again. They are,
//! with every number as eight bytes, most significant first:
//!
//! ```text
//! text(stream) text(group)
//! with key fields:     'F', then for each named field, in the order of the names:
//!                      text(name) number(how often the entry has it) text(value) text(value) ...
//! without key fields:  'O' number(origin milliseconds) number(origin sequence)
//!
//! text(x) = number(length of x in bytes) x
//! ```
//!
//! The key is the first 16 bytes of the SHA-256 of that. Counts and lengths come before what they count, so an absent field
//! differs from an empty one, and no two sets of fields share their bytes.

use sha2::{Digest, Sha256};

use crate::streams::{Entry, GroupName, IdempotencyKey, StreamKey};

/// The key of `entry`: of its content where `key_fields` names fields, else of its origin id.
///
/// The second is stable over retries and replays, and blind to a producer that adds the same work twice.
pub fn key(
    source: &StreamKey,
    group: &GroupName,
    key_fields: &[String],
    entry: &Entry,
) -> IdempotencyKey {
    let mut hash = Sha256::new();
    text(&mut hash, source.as_str().as_bytes());
    text(&mut hash, group.as_str().as_bytes());
    if key_fields.is_empty() {
        hash.update(b"O");
        hash.update(entry.meta.origin.millis.to_be_bytes());
        hash.update(entry.meta.origin.sequence.to_be_bytes());
    } else {
        hash.update(b"F");
        for name in key_fields {
            field(&mut hash, name.as_bytes(), entry);
        }
    }
    IdempotencyKey::from_bytes(first_half(hash.finalize().into()))
}

/// One named field: its name, how often it is there, its values in order.
fn field(hash: &mut Sha256, name: &[u8], entry: &Entry) {
    let values = || entry.fields.iter().filter(|(other, _)| other == name);
    text(hash, name);
    number(hash, values().count());
    for (_, value) in values() {
        text(hash, value);
    }
}

fn text(hash: &mut Sha256, bytes: &[u8]) {
    number(hash, bytes.len());
    hash.update(bytes);
}

fn number(hash: &mut Sha256, count: usize) {
    // A length in memory always fits.
    hash.update(u64::try_from(count).unwrap_or(u64::MAX).to_be_bytes());
}

fn first_half(digest: [u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.iter_mut()
        .zip(digest)
        .for_each(|(to, byte)| *to = byte);
    half
}

/// Whether an entry has none of the fields that make its key: then it is the same work as every other such entry.
pub fn is_keyless(key_fields: &[String], entry: &Entry) -> bool {
    let has = |name: &String| {
        entry
            .fields
            .iter()
            .any(|(field, _)| field == name.as_bytes())
    };
    !key_fields.is_empty() && !key_fields.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{EntryId, Meta, Place};

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let origin = EntryId::new(1_700_000_000_000, 7);
        Entry {
            place: Place::retry(EntryId::new(9, 9)),
            fields: fields
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect(),
            meta: Meta::fresh(origin, 0),
        }
    }

    fn hex(stream: &str, group: &str, names: &[&str], fields: &[(&str, &str)]) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let (stream, group) = (StreamKey::new(stream), GroupName::new(group));
        key(&stream, &group, &names, &entry(fields)).to_string()
    }

    /// Made without this code, with Python 3:
    ///
    /// ```text
    /// import hashlib, struct
    /// n = lambda i: struct.pack(">Q", i)
    /// t = lambda s: n(len(s.encode())) + s.encode()
    /// k = lambda *parts: hashlib.sha256(b"".join(parts)).hexdigest()[:32]
    /// head = t("crawl:raw") + t("embed")
    /// k(head, b"O", n(1700000000000), n(7))
    /// k(head, b"F", t("url"), n(1), t("https://example.com/ä"))
    /// k(head, b"F", t("url"), n(0))
    /// k(head, b"F", t("url"), n(1), t(""))
    /// k(head, b"F", t("a"), n(2), t("1"), t("2"), t("b"), n(1), t("3"))
    /// ```
    #[test]
    fn keys_are_the_golden_ones() {
        let of = |names: &[&str], fields: &[(&str, &str)]| hex("crawl:raw", "embed", names, fields);
        let several = [("a", "1"), ("b", "3"), ("c", "4"), ("a", "2")];
        assert_eq!(of(&[], &several), "bf01434b0a4b6c2bf17f23e9e0659c7a");
        assert_eq!(
            of(&["url"], &[("url", "https://example.com/ä")]),
            "dc46b219f9de0a5d56464160eb30d74f"
        );
        assert_eq!(of(&["url"], &[]), "15448c482ba950c0af5335146103b7f4");
        assert_eq!(
            of(&["url"], &[("url", "")]),
            "5d9ca77e6bc41fd94b89e220c4677695"
        );
        assert_eq!(
            of(&["a", "b"], &several),
            "a4d9e162aff1cc681029a9395e75ab47"
        );
    }

    #[test]
    fn different_work_never_shares_a_key() {
        let keys = [
            hex("s", "g", &["a"], &[]),
            hex("s", "g", &["a"], &[("a", "")]),
            hex("s", "g", &["a"], &[("a", ""), ("a", "")]),
            hex("s", "g", &["a"], &[("a", "1"), ("a", "2")]),
            hex("s", "g", &["a"], &[("a", "2"), ("a", "1")]),
            hex("s", "g", &["a"], &[("a", "12")]),
            hex("s", "g", &["b"], &[("b", "12")]),
            hex("s", "g", &["a", "b"], &[("a", "12")]),
            hex("s", "h", &["a"], &[("a", "12")]),
            hex("t", "g", &["a"], &[("a", "12")]),
            hex("sg", "", &["a"], &[("a", "12")]),
            hex("s", "g", &[], &[("a", "12")]),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn fields_that_are_not_named_change_nothing() {
        let of = |fields: &[(&str, &str)]| hex("s", "g", &["a"], fields);
        assert_eq!(of(&[("a", "1")]), of(&[("b", "2"), ("a", "1"), ("c", "3")]));
    }
}
