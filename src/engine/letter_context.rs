//! The context pairs of a dead letter: what a person needs to triage it. Pure.
//!
//! Secrets and Redis errors never enter it: everything comes from the entry, the handler's own words and the stage.

use jiff::Timestamp;

use super::outcome::Failure;
use super::settle::Standing;
use crate::streams::ConsumerName;
use crate::streams::letter as names;
use crate::worker_config::WorkerConfig;

/// Why an entry became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The handler said that the entry itself is wrong.
    Rejected,
    /// `retry.maxAttempts` starts ended in an error.
    AttemptsExhausted,
    /// `delivery.maxDeliveries` starts ended in nothing, the last of them alone or with the culprit known.
    Poison,
    /// `delivery.maxDeliveries` starts ended in nothing, and it was never alone.
    DeliveriesExhausted,
    /// It holds more values than a retry can carry.
    EntryTooLarge,
}

impl Reason {
    /// The reason's name, as the pair `reason` gives it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => names::REJECTED,
            Self::AttemptsExhausted => names::ATTEMPTS_EXHAUSTED,
            Self::Poison => names::POISON,
            Self::DeliveriesExhausted => names::DELIVERIES_EXHAUSTED,
            Self::EntryTooLarge => names::ENTRY_TOO_LARGE,
        }
    }
}

/// What is the same in every dead letter of one worker.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The stage's name.
    pub stage: String,
    /// Its namespace.
    pub namespace: String,
    /// The source stream.
    pub stream: String,
    /// The group.
    pub group: String,
    /// This consumer.
    pub consumer: String,
    /// The pod (or host) it runs in.
    pub pod: String,
    /// The handler's image, where known.
    pub image: Option<String>,
    /// The longest error text, in bytes.
    pub max_error_bytes: usize,
    /// The longest traceback, in bytes.
    pub max_trace_bytes: usize,
}

impl Writer {
    /// The writer of one worker.
    pub fn new(
        config: &WorkerConfig,
        consumer: &ConsumerName,
        pod: &str,
        image: Option<String>,
    ) -> Self {
        Self {
            stage: config.stage.clone(),
            namespace: config.namespace.clone(),
            stream: config.source.stream.to_string(),
            group: config.source.group.to_string(),
            consumer: consumer.to_string(),
            pod: pod.to_owned(),
            image,
            max_error_bytes: config.dead_letter.max_error_bytes,
            max_trace_bytes: config.dead_letter.max_trace_bytes,
        }
    }

    /// The pairs, in the order in which a person reads them.
    pub(super) fn context(
        &self,
        at: &Standing<'_>,
        reason: Reason,
        (attempts, crashes): (u32, u32),
        error: &Failure,
    ) -> Vec<(String, String)> {
        let meta = &at.entry.meta;
        let mut pairs = vec![
            (names::FAILED_AT, rfc3339(at.now_ms)),
            (names::REASON, reason.as_str().to_owned()),
            (names::ATTEMPTS, attempts.to_string()),
            (names::STAGE, self.stage.clone()),
            (
                names::ERROR_TYPE,
                cut(&error.error_type, self.max_error_bytes).to_owned(),
            ),
            (
                names::ERROR,
                cut(&error.message, self.max_error_bytes).to_owned(),
            ),
            (
                names::TRACEBACK,
                cut(&error.traceback, self.max_trace_bytes).to_owned(),
            ),
            (names::NAMESPACE, self.namespace.clone()),
            (
                names::DELIVERIES,
                attempts.saturating_add(crashes).to_string(),
            ),
            (names::CRASHES, crashes.to_string()),
            (names::REPLAYS, meta.replays.to_string()),
            (names::ENTRY_ID, meta.origin.to_string()),
            (names::STREAM, self.stream.clone()),
            (names::GROUP, self.group.clone()),
            (names::CONSUMER, self.consumer.clone()),
            (names::POD, self.pod.clone()),
        ];
        pairs.extend(self.image.clone().map(|image| (names::IMAGE, image)));
        pairs.push((names::FIRST_ENQUEUED_AT, rfc3339(meta.first_enqueued_at)));
        pairs.push((names::IDEMPOTENCY_KEY, at.key.to_string()));
        pairs.extend(traceparent(at).map(|value| (names::TRACEPARENT, value)));
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// The entry's `traceparent`, where it is text.
fn traceparent(at: &Standing<'_>) -> Option<String> {
    let (_, value) = at
        .entry
        .fields
        .iter()
        .find(|(name, _)| name == b"traceparent")?;
    String::from_utf8(value.clone()).ok()
}

fn rfc3339(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis)
        .map_or_else(|_| millis.to_string(), |time| format!("{time:.3}"))
}

/// `text` cut to at most `max` bytes, on a character boundary.
fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_on_a_character_boundary() {
        assert_eq!(cut("abc", 10), "abc");
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("🦀", 3), "");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn times_are_rfc_3339_with_milliseconds() {
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
    }
}
