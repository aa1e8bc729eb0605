//! A dead letter: an entry that was given up, and why, in the form of one stream entry.
//!
//! First the context pairs, then a pair [`FIELDS`] that counts what follows, then the entry's own pairs verbatim and in
//! order. So an entry's field may have any name and any bytes, and a replay is exact. Pure.

use super::{Fields, Settings};

/// The pair that ends the context: its value is the number of the entry's own pairs.
pub const FIELDS: &str = "fields";

/// When it was given up (RFC 3339).
pub const FAILED_AT: &str = "failed_at";
/// Starts that ended in an error; 1 for a reject at the first start.
pub const ATTEMPTS: &str = "attempts";
/// The stage's name.
pub const STAGE: &str = "stage";
/// The type of the last error.
pub const ERROR_TYPE: &str = "error_type";
/// The text of the last error, cut.
pub const ERROR: &str = "error";
/// The traceback of the last error, cut.
pub const TRACEBACK: &str = "traceback";
/// Why it was given up: one of [`REASONS`].
pub const REASON: &str = "reason";
/// The stage's namespace.
pub const NAMESPACE: &str = "namespace";
/// Charged starts.
pub const DELIVERIES: &str = "deliveries";
/// Charged starts that ended in nothing.
pub const CRASHES: &str = "crashes";
/// How often it had been replayed before.
pub const REPLAYS: &str = "replays";
/// The entry's id in the source stream.
pub const ENTRY_ID: &str = "entry_id";
/// The source stream.
pub const STREAM: &str = "stream";
/// The group.
pub const GROUP: &str = "group";
/// The consumer that gave it up.
pub const CONSUMER: &str = "consumer";
/// The pod of that consumer.
pub const POD: &str = "pod";
/// The handler's image.
pub const IMAGE: &str = "image";
/// When the entry was first enqueued (RFC 3339).
pub const FIRST_ENQUEUED_AT: &str = "first_enqueued_at";
/// The idempotency key.
pub const IDEMPOTENCY_KEY: &str = "idempotency_key";
/// The entry's trace context.
pub const TRACEPARENT: &str = "traceparent";

/// The handler said that no further try can help.
pub const REJECTED: &str = "Rejected";
/// As many starts ended in an error as the stage allows.
pub const ATTEMPTS_EXHAUSTED: &str = "AttemptsExhausted";
/// Its handler died with it, alone, as often as the stage allows.
pub const POISON: &str = "Poison";
/// As many charged starts ended in nothing as the stage allows.
pub const DELIVERIES_EXHAUSTED: &str = "DeliveriesExhausted";
/// A member of the delayed set that nobody can read.
pub const UNDECODABLE: &str = "Undecodable";
/// It has more values than one script call can carry, so it cannot be retried.
pub const ENTRY_TOO_LARGE: &str = "EntryTooLarge";

/// Every reason.
pub const REASONS: [&str; 6] = [
    REJECTED,
    ATTEMPTS_EXHAUSTED,
    POISON,
    DELIVERIES_EXHAUSTED,
    UNDECODABLE,
    ENTRY_TOO_LARGE,
];

/// The most own pairs a letter may have to be replayed: one script call carries 7,000 values, two of them our meta.
pub const MOST_REPLAYED_PAIRS: usize = 3_499;

/// A dead letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letter {
    /// What is known of the failure, in order. No name in it is [`FIELDS`].
    pub context: Vec<(String, String)>,
    /// The entry's own pairs.
    pub fields: Fields,
}

/// The stream entry is not a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotALetter {
    /// There is no pair that counts the entry's own.
    #[error("it has no pair `fields`")]
    CountMissing,
    /// That pair holds no number.
    #[error("its pair `fields` holds no number")]
    CountUnreadable,
    /// Fewer or more pairs follow than it says.
    #[error("{found} pairs follow where `fields` says {said}")]
    CountWrong {
        /// The number in the pair.
        said: usize,
        /// The number that follow.
        found: usize,
    },
    /// A context pair is not text.
    #[error("its context is not UTF-8")]
    ContextNotText,
}

impl Letter {
    /// The value of a context pair; the first one where a name is repeated.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.context
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The stream entry's pairs; the inverse of [`Letter::parse`].
    pub fn render(&self) -> Fields {
        let context = self
            .context
            .iter()
            .map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()));
        let count = (
            FIELDS.as_bytes().to_vec(),
            self.fields.len().to_string().into_bytes(),
        );
        context
            .chain([count])
            .chain(self.fields.iter().cloned())
            .collect()
    }

    /// Reads a stream entry's pairs.
    pub fn parse(pairs: &Fields) -> Result<Self, NotALetter> {
        let (at, value) = pairs
            .iter()
            .enumerate()
            .find(|(_, (name, _))| name == FIELDS.as_bytes())
            .map(|(at, (_, value))| (at, value))
            .ok_or(NotALetter::CountMissing)?;
        let said: usize = std::str::from_utf8(value)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .ok_or(NotALetter::CountUnreadable)?;
        let (context, own) = pairs.split_at(at);
        let fields: Fields = own.iter().skip(1).cloned().collect();
        if fields.len() != said {
            return Err(NotALetter::CountWrong {
                said,
                found: fields.len(),
            });
        }
        let text = |bytes: &Vec<u8>| {
            String::from_utf8(bytes.clone()).map_err(|_| NotALetter::ContextNotText)
        };
        let context = context
            .iter()
            .map(|(name, value)| Ok((text(name)?, text(value)?)))
            .collect::<Result<_, _>>()?;
        Ok(Self { context, fields })
    }
}

/// The dead letter of a member of `P:delayed` that cannot be decoded, found at `now` (milliseconds since the epoch):
/// nothing is known of the entry but these bytes.
pub(super) fn undecodable(settings: &Settings, now: u64, member: &[u8]) -> Fields {
    let failed_at = i64::try_from(now)
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        .unwrap_or_default();
    let context = [
        (FAILED_AT, format!("{failed_at:.3}")),
        (REASON, UNDECODABLE.to_owned()),
        (ATTEMPTS, "0".to_owned()),
        (ERROR_TYPE, UNDECODABLE.to_owned()),
        (
            ERROR,
            "a member of the delayed set is not an entry".to_owned(),
        ),
        (STREAM, settings.keys.source.to_string()),
        (GROUP, settings.keys.group.to_string()),
        (CONSUMER, settings.consumer.to_string()),
    ];
    let letter = Letter {
        context: context
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec(),
        fields: vec![(b"member".to_vec(), member.to_vec())],
    };
    letter.render()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Fields {
        pairs
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn own_pairs_may_have_the_names_of_the_context_and_repeat_themselves() {
        let letter = Letter {
            context: vec![
                (REASON.to_owned(), POISON.to_owned()),
                (ERROR.to_owned(), String::new()),
            ],
            fields: vec![
                (FIELDS.into(), b"7".to_vec()),
                (REASON.into(), vec![0, 255]),
                (REASON.into(), vec![]),
                (vec![], b"nameless".to_vec()),
            ],
        };
        assert_eq!(Letter::parse(&letter.render()), Ok(letter.clone()));
        assert_eq!(letter.get(REASON), Some(POISON));
        assert_eq!(letter.get(STAGE), None);
    }

    #[test]
    fn the_form_is_context_count_own_pairs() {
        let letter = Letter {
            context: vec![(STAGE.to_owned(), "mail".to_owned())],
            fields: pairs(&[("to", "x")]),
        };
        assert_eq!(
            letter.render(),
            pairs(&[("stage", "mail"), ("fields", "1"), ("to", "x")])
        );
    }

    #[test]
    fn entries_of_another_form_are_refused_by_name() {
        let rows = [
            (pairs(&[("to", "x")]), NotALetter::CountMissing),
            (
                pairs(&[("fields", "+1"), ("to", "x")]),
                NotALetter::CountUnreadable,
            ),
            (pairs(&[("fields", "two")]), NotALetter::CountUnreadable),
            (
                pairs(&[("fields", "2"), ("to", "x")]),
                NotALetter::CountWrong { said: 2, found: 1 },
            ),
            (
                vec![(vec![255], vec![]), (FIELDS.into(), b"0".to_vec())],
                NotALetter::ContextNotText,
            ),
        ];
        for (entry, expected) in rows {
            assert_eq!(Letter::parse(&entry), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn every_letter_reads_back_as_it_was(
            context in vec(("[a-e]{1,2}|reason|error", ".*"), 0..6),
            fields in vec(("fields|reason|x?".prop_map(String::into_bytes), any::<Vec<u8>>()), 0..6),
        ) {
            let letter = Letter { context, fields };
            prop_assert_eq!(Letter::parse(&letter.render()), Ok(letter));
        }
    }
}
