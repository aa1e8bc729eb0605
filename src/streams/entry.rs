//! An entry and what travels with it: ids, fields as bytes, and the meta that outlives retries.
//!
//! Pure data: nothing here talks to a server. Read next: [`super::settlement`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The first field of an entry in `P:retry`; its value is a [`Meta`] as JSON.
///
/// In the source stream that name is a field like any other.
pub const META_FIELD: &[u8] = b"streamstage.meta";

/// The version this build writes into [`Meta`].
const META_VERSION: u32 = 1;

/// The milliseconds that count as a wall-clock time: years 2001 to 2286. Ids outside were chosen by hand.
const PLAUSIBLE_MILLIS: std::ops::Range<u64> = 978_307_200_000..10_000_000_000_000;

/// A stream entry's id, `<milliseconds>-<sequence>`, ordered as Redis orders it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// The part before the dash: milliseconds since the epoch, unless the producer chose ids by hand.
    pub millis: u64,
    /// The part after the dash.
    pub sequence: u64,
}

impl EntryId {
    /// The smallest id; a group created here reads the whole stream.
    pub const ZERO: Self = Self {
        millis: 0,
        sequence: 0,
    };

    /// An id from its two parts.
    pub const fn new(millis: u64, sequence: u64) -> Self {
        Self { millis, sequence }
    }

    /// The id just below this one; `0-0` stays.
    #[must_use]
    pub const fn before(self) -> Self {
        match (self.millis, self.sequence) {
            (0, 0) => self,
            (millis, 0) => Self::new(millis - 1, u64::MAX),
            (millis, sequence) => Self::new(millis, sequence - 1),
        }
    }

    /// When the entry was added, in milliseconds since the epoch, where the id says so plausibly.
    pub fn added_at(self) -> Option<u64> {
        PLAUSIBLE_MILLIS
            .contains(&self.millis)
            .then_some(self.millis)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

/// The text is not an entry id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an entry id such as 1700000000000-0")]
pub struct NotAnId(pub String);

impl FromStr for EntryId {
    type Err = NotAnId;

    /// Reads `ms-seq`, or `ms` alone (sequence 0).
    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let (millis, sequence) = text.split_once('-').unwrap_or((text, "0"));
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        match (number(millis), number(sequence)) {
            (Some(millis), Some(sequence)) => Ok(Self { millis, sequence }),
            _ => Err(NotAnId(text.to_owned())),
        }
    }
}

impl Serialize for EntryId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which of a stage's two streams an entry lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// `S`: shared with other groups; never trimmed by us.
    Source,
    /// `P:retry`: ours alone; an entry is deleted with its ack.
    Retry,
}

/// Where an entry is: its stream and its id there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The stream.
    pub lane: Lane,
    /// The id in that stream (not the origin id: a retry gets a new one).
    pub id: EntryId,
}

impl Place {
    /// A place in the source stream.
    pub const fn source(id: EntryId) -> Self {
        Self {
            lane: Lane::Source,
            id,
        }
    }

    /// A place in `P:retry`.
    pub const fn retry(id: EntryId) -> Self {
        Self {
            lane: Lane::Retry,
            id,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lane {
            Lane::Source => write!(f, "{}", self.id),
            Lane::Retry => write!(f, "retry:{}", self.id),
        }
    }
}

/// An entry's pairs, verbatim: names and values are bytes, order and repetitions are kept.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The bytes of all names and values together.
pub fn size_of(fields: &Fields) -> usize {
    fields
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

/// What an entry carries through retries, releases and replays, beside its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The version of this form.
    pub v: u32,
    /// The id in the source stream.
    pub origin: EntryId,
    /// When it was first enqueued, in milliseconds since the epoch.
    pub first_enqueued_at: u64,
    /// Starts that ended in an error.
    #[serde(default)]
    pub attempts: u32,
    /// Charged starts that ended in nothing, in earlier lives (before the last retry or release).
    #[serde(default)]
    pub crashes: u32,
    /// It ran beside others when their process died: its next start is alone.
    #[serde(default)]
    pub suspect: bool,
    /// How often it was replayed from the dead letters.
    #[serde(default)]
    pub replays: u32,
    /// Replayed with `--force`: the ledger is not asked.
    #[serde(default)]
    pub force: bool,
    /// When the handler first said it was busy for this entry, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_since: Option<u64>,
    /// The type of the last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Meta {
    /// The meta of an entry met for the first time, in the source stream at `seen_at` (milliseconds since the epoch).
    pub fn fresh(origin: EntryId, seen_at: u64) -> Self {
        Self {
            v: META_VERSION,
            origin,
            first_enqueued_at: origin.added_at().unwrap_or(seen_at),
            attempts: 0,
            crashes: 0,
            suspect: false,
            replays: 0,
            force: false,
            busy_since: None,
            last_error: None,
        }
    }

    /// Reads the value of [`META_FIELD`]; `None` if it is not a meta.
    ///
    /// Of a later version it keeps what this one knows: counts must not begin anew while two versions work side by side.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let meta = serde_json::from_slice::<Self>(bytes).ok()?;
        (meta.v >= META_VERSION).then_some(Self {
            v: META_VERSION,
            ..meta
        })
    }

    /// The value of [`META_FIELD`]; the inverse of [`Meta::parse`].
    pub fn render(&self) -> Vec<u8> {
        // A struct of numbers and strings has no way to fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// An entry as the engine meets it: its pairs without our meta, and the meta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies now.
    pub place: Place,
    /// The producer's pairs.
    pub fields: Fields,
    /// What travelled with it.
    pub meta: Meta,
}

impl Entry {
    /// An entry as it lies in a stream: in `P:retry` the first field is our meta, in S that name is a field like any
    /// other. `seen_at` stands in where the id does not say when it was added.
    pub fn met(place: Place, mut fields: Fields, seen_at: u64) -> Self {
        let carries_meta =
            place.lane == Lane::Retry && fields.first().is_some_and(|(name, _)| name == META_FIELD);
        let carried = carries_meta.then(|| fields.remove(0));
        let meta = carried.and_then(|(_, value)| {
            let meta = Meta::parse(&value);
            if meta.is_none() {
                tracing::warn!(entry = %place, "its meta cannot be read: its counts begin anew");
            }
            meta
        });
        Self {
            place,
            fields,
            meta: meta.unwrap_or_else(|| Meta::fresh(place.id, seen_at)),
        }
    }
}

/// An entry that a read or a claim put into this consumer's pending list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The entry.
    pub entry: Arc<Entry>,
    /// Redis's delivery count now: 1 after a read, unchanged by a claim.
    pub count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_redis_writes_them_and_nothing_else() {
        let id = |text: &str| text.parse::<EntryId>();
        assert_eq!(id("12-3"), Ok(EntryId::new(12, 3)));
        assert_eq!(id("12"), Ok(EntryId::new(12, 0)));
        assert_eq!(
            id("18446744073709551615-1").unwrap().to_string(),
            "18446744073709551615-1"
        );
        for bad in [
            "",
            "-",
            "1-",
            "-1",
            "+1-1",
            "1-1-1",
            "a-1",
            "18446744073709551616-0",
            "$",
        ] {
            assert_eq!(id(bad), Err(NotAnId(bad.to_owned())));
        }
    }

    #[test]
    fn ids_order_by_time_then_sequence_and_know_the_one_before() {
        assert!(EntryId::new(1, 9) < EntryId::new(2, 0));
        assert_eq!(EntryId::new(5, 0).before(), EntryId::new(4, u64::MAX));
        assert_eq!(EntryId::new(5, 7).before(), EntryId::new(5, 6));
        assert_eq!(EntryId::ZERO.before(), EntryId::ZERO);
    }

    #[test]
    fn only_plausible_ids_say_when_they_were_added() {
        assert_eq!(
            EntryId::new(1_700_000_000_000, 0).added_at(),
            Some(1_700_000_000_000)
        );
        assert_eq!(EntryId::new(42, 0).added_at(), None);
        assert_eq!(Meta::fresh(EntryId::new(42, 0), 7).first_enqueued_at, 7);
    }

    #[test]
    fn meta_reads_back_what_it_wrote_and_what_it_knows_of_later_versions() {
        let mut meta = Meta::fresh(EntryId::new(1_700_000_000_000, 4), 0);
        meta.attempts = 2;
        meta.suspect = true;
        meta.last_error = Some("Timeout".to_owned());
        assert_eq!(Meta::parse(&meta.render()), Some(meta.clone()));
        let later = r#"{"v":2,"origin":"5-1","firstEnqueuedAt":9,"attempts":3,"mood":"new"}"#;
        let read = Meta::parse(later.as_bytes()).unwrap();
        assert_eq!(
            (read.v, read.origin, read.attempts),
            (1, EntryId::new(5, 1), 3)
        );
        meta.v = 0;
        assert_eq!(Meta::parse(&meta.render()), None);
        assert_eq!(Meta::parse(b"{}"), None);
    }

    fn pair(name: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
        (name.to_vec(), value.to_vec())
    }

    #[test]
    fn meta_is_taken_off_the_retry_stream_only() {
        let id = EntryId::new(5, 0);
        let mut meta = Meta::fresh(EntryId::new(1, 0), 9);
        meta.attempts = 2;
        let with_meta = vec![pair(META_FIELD, &meta.render()), pair(b"a", b"1")];

        let retried = Entry::met(Place::retry(id), with_meta.clone(), 0);
        assert_eq!(
            (retried.meta, retried.fields),
            (meta, vec![pair(b"a", b"1")])
        );

        let fresh = Entry::met(Place::source(id), with_meta.clone(), 7);
        assert_eq!((fresh.meta, fresh.fields), (Meta::fresh(id, 7), with_meta));
    }

    #[test]
    fn unreadable_meta_is_dropped_and_a_later_field_of_that_name_stays() {
        let id = EntryId::new(5, 0);
        let bad = Entry::met(
            Place::retry(id),
            vec![pair(META_FIELD, b"{"), pair(b"a", b"1")],
            7,
        );
        assert_eq!(
            (bad.meta, bad.fields),
            (Meta::fresh(id, 7), vec![pair(b"a", b"1")])
        );

        let later = vec![pair(b"a", b"1"), pair(META_FIELD, b"x")];
        assert_eq!(Entry::met(Place::retry(id), later.clone(), 7).fields, later);
    }
}
