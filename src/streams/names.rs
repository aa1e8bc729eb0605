//! Names of keys, groups and consumers, and the keys derived from a stage's stream and group.
//!
//! Every derived key lands in the cluster slot of the source stream, so a script may touch them all.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::entry::Lane;

/// A Redis key that is (or will be) a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamKey(String);

/// A consumer group's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupName(String);

/// A consumer's name: unique for every start of a process, never chosen by a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConsumerName(String);

macro_rules! name {
    ($type:ident) => {
        impl $type {
            /// The name as given; its rules are checked by whoever read it.
            pub fn new(name: impl Into<String>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
name!(StreamKey);
name!(GroupName);
name!(ConsumerName);

/// The hex digits after the last dot of every name that [`ConsumerName::unique`] makes.
const NONCE_DIGITS: usize = 8;

impl ConsumerName {
    /// The name of one start of a process: `<pod or host>.<nonce as 8 hex digits>`.
    pub fn unique(base: &str, nonce: u32) -> Self {
        Self(format!("{base}.{nonce:08x}"))
    }

    /// Whether [`ConsumerName::unique`] may have made it: such a consumer may be retired, any other is left alone.
    pub fn is_ours(&self) -> bool {
        let is_nonce = |text: &str| {
            text.len() == NONCE_DIGITS
                && text
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        self.0
            .rsplit_once('.')
            .is_some_and(|(base, nonce)| !base.is_empty() && is_nonce(nonce))
    }
}

/// There is no prefix that keeps derived keys in the source stream's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPrefix {
    /// The name holds a `}` and no hash tag before it.
    #[error("a `}}` in the name must close a hash tag, as in {{tag}}name")]
    StrayBrace,
    /// The first braces of the name hold nothing.
    #[error("the hash tag may not be empty: write {{tag}}name, or leave the braces out")]
    EmptyTag,
}

/// Every key of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// `S`.
    pub source: StreamKey,
    /// The group, on the source and on the retry stream.
    pub group: GroupName,
    /// `P:retry`.
    pub retry: StreamKey,
    /// `P:delayed`.
    pub delayed: String,
    /// `P:dead`, or what `deadLetter.stream` names.
    pub dead: StreamKey,
    /// What every ledger key starts with: `P:done:`.
    pub done_prefix: String,
    /// `P:workers`.
    pub workers: String,
    /// `P:cursor`.
    pub cursor: String,
}

impl Keys {
    /// The keys of `group` on `source`; `dead` replaces the default dead-letter stream.
    ///
    /// # Errors
    /// [`NoPrefix`] where the name of `source` leaves no prefix in its own slot.
    pub fn derive(
        source: StreamKey,
        group: GroupName,
        dead: Option<StreamKey>,
    ) -> Result<Self, NoPrefix> {
        let prefix = prefix(source.as_str(), group.as_str())?;
        Ok(Self {
            retry: StreamKey::new(format!("{prefix}:retry")),
            delayed: format!("{prefix}:delayed"),
            dead: dead.unwrap_or_else(|| StreamKey::new(format!("{prefix}:dead"))),
            done_prefix: format!("{prefix}:done:"),
            workers: format!("{prefix}:workers"),
            cursor: format!("{prefix}:cursor"),
            source,
            group,
        })
    }

    /// The stream of a lane.
    pub fn stream(&self, lane: Lane) -> &StreamKey {
        match lane {
            Lane::Source => &self.source,
            Lane::Retry => &self.retry,
        }
    }

    /// Whether `key` is one of those derived for this stage (the dead-letter stream aside).
    pub fn is_derived(&self, key: &str) -> bool {
        key == self.retry.as_str()
            || key == self.delayed
            || key == self.workers
            || key == self.cursor
            || key.starts_with(&self.done_prefix)
    }
}

/// `{S}:G`, or `{tag}:S:G` where S holds a hash tag; G with `%` and `:` percent-encoded.
fn prefix(stream: &str, group: &str) -> Result<String, NoPrefix> {
    let group = group.replace('%', "%25").replace(':', "%3A");
    let Some(open) = stream.find('{') else {
        if stream.contains('}') {
            return Err(NoPrefix::StrayBrace);
        }
        return Ok(format!("{{{stream}}}:{group}"));
    };
    let (before, rest) = stream.split_at(open);
    match rest.find('}') {
        // Redis hashes up to the first `}` after the first `{`; a name without that pair is hashed whole.
        Some(1) => Err(NoPrefix::EmptyTag),
        Some(close) => {
            let tag = rest.get(1..close).unwrap_or_default();
            Ok(format!("{{{tag}}}:{stream}:{group}"))
        }
        None if before.contains('}') => Err(NoPrefix::StrayBrace),
        None => Ok(format!("{{{stream}}}:{group}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix_of(stream: &str, group: &str) -> Result<String, NoPrefix> {
        prefix(stream, group)
    }

    #[test]
    fn derived_keys_hash_to_the_slot_of_the_source() {
        assert_eq!(prefix_of("orders", "mail").unwrap(), "{orders}:mail");
        assert_eq!(
            prefix_of("{eu}orders", "mail").unwrap(),
            "{eu}:{eu}orders:mail"
        );
        assert_eq!(prefix_of("a{eu}b", "g").unwrap(), "{eu}:a{eu}b:g");
        assert_eq!(prefix_of("open{", "g").unwrap(), "{open{}:g");
    }

    #[test]
    fn two_stages_never_share_a_prefix() {
        assert_ne!(
            prefix_of("a", "b:c").unwrap(),
            prefix_of("a:b", "c").unwrap()
        );
        assert_eq!(prefix_of("a", "b:c%").unwrap(), "{a}:b%3Ac%25");
    }

    #[test]
    fn names_without_a_prefix_in_their_slot_are_refused() {
        assert_eq!(prefix_of("a}b", "g"), Err(NoPrefix::StrayBrace));
        assert_eq!(prefix_of("a}b{", "g"), Err(NoPrefix::StrayBrace));
        assert_eq!(prefix_of("{}a", "g"), Err(NoPrefix::EmptyTag));
    }

    #[test]
    fn a_named_dead_letter_stream_replaces_the_default() {
        let keys = |dead| Keys::derive(StreamKey::new("s"), GroupName::new("g"), dead).unwrap();
        assert_eq!(keys(None).dead.as_str(), "{s}:g:dead");
        assert_eq!(
            keys(Some(StreamKey::new("{s}:bin"))).dead.as_str(),
            "{s}:bin"
        );
        assert!(keys(None).is_derived("{s}:g:done:abc"));
        assert!(!keys(None).is_derived("{s}:g:dead"));
    }

    #[test]
    fn only_names_with_a_nonce_are_taken_for_ours() {
        assert_eq!(ConsumerName::unique("pod-1", 10).as_str(), "pod-1.0000000a");
        assert!(ConsumerName::unique("pod.a", 10).is_ours());
        for foreign in [
            "pod-1",
            "a.0000000A",
            "a.000000a",
            ".0000000a",
            "a.0000000ab",
        ] {
            assert!(!ConsumerName::new(foreign).is_ours(), "{foreign}");
        }
    }
}
