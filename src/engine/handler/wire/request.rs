//! What a handler is sent: the head and body of a POST, or one line. Pure.

use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;

use super::fields::FieldsJson;
use super::traceparent;
use crate::engine::handler::Start;
use crate::streams::{Entry, StreamKey};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const NAMESPACE: HeaderName = HeaderName::from_static("streamstage-namespace");
const STAGE: HeaderName = HeaderName::from_static("streamstage-stage");
const ENTRY_ID: HeaderName = HeaderName::from_static("streamstage-entry-id");
const ATTEMPT: HeaderName = HeaderName::from_static("streamstage-attempt");
const DELIVERIES: HeaderName = HeaderName::from_static("streamstage-deliveries");
const FIRST_ENQUEUED_AT: HeaderName = HeaderName::from_static("streamstage-first-enqueued-at");
const DEADLINE: HeaderName = HeaderName::from_static("streamstage-deadline");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const CE_SPECVERSION: HeaderName = HeaderName::from_static("ce-specversion");
const CE_ID: HeaderName = HeaderName::from_static("ce-id");
const CE_SOURCE: HeaderName = HeaderName::from_static("ce-source");
const CE_TYPE: HeaderName = HeaderName::from_static("ce-type");

/// What CloudEvents' HTTP binding asks to encode in a header, beside all that is not ASCII; more than HTTP itself asks.
const NOT_IN_A_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// All but the characters that a URI never gives a meaning: a stream's `:` must not look like a scheme's.
const NOT_IN_A_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The headers that are the same for every entry of a stage.
#[derive(Clone, Debug)]
pub(crate) struct StageHeaders(HeaderMap);

impl StageHeaders {
    /// The headers of a stage that reads `source`, for the handler at `authority` (`host:port`).
    pub(crate) fn new(authority: &str, namespace: &str, stage: &str, source: &StreamKey) -> Self {
        let source = percent_encode(source.as_str().as_bytes(), NOT_IN_A_SEGMENT).to_string();
        let mut headers = HeaderMap::with_capacity(24);
        headers.insert(HOST, legal(authority.as_bytes()));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(NAMESPACE, legal(namespace.as_bytes()));
        headers.insert(STAGE, legal(stage.as_bytes()));
        headers.insert(CE_SPECVERSION, HeaderValue::from_static("1.0"));
        headers.insert(CE_TYPE, legal(stage.as_bytes()));
        // It is encoded already: the `%` of that must not be encoded again.
        headers.insert(CE_SOURCE, visible(source));
        Self(headers)
    }

    /// All headers of one POST.
    pub(crate) fn of(&self, start: &Start) -> HeaderMap {
        let meta = &start.entry.meta;
        let id = visible(meta.origin.to_string());
        let mut headers = self.0.clone();
        headers.insert(IDEMPOTENCY_KEY, legal(start.key.as_str().as_bytes()));
        headers.insert(ENTRY_ID, id.clone());
        headers.insert(CE_ID, id);
        headers.insert(ATTEMPT, start.attempt.into());
        headers.insert(DELIVERIES, start.deliveries.into());
        headers.insert(
            FIRST_ENQUEUED_AT,
            visible(utc(from_millis(meta.first_enqueued_at))),
        );
        headers.insert(DEADLINE, visible(utc(start.deadline)));
        if let Some(parent) = traceparent(&start.entry.fields) {
            headers.insert(TRACEPARENT, legal(parent));
        }
        headers
    }
}

/// The body of one POST.
pub(crate) fn body(entry: &Entry) -> Vec<u8> {
    // Maps of strings have no way to fail.
    serde_json::to_vec(&FieldsJson(&entry.fields)).unwrap_or_default()
}

/// The line a child reads, in the order of its members.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: String,
    stage: &'a str,
    namespace: &'a str,
    attempt: u32,
    deliveries: u32,
    idempotency_key: &'a str,
    deadline: String,
    fields: FieldsJson<'a>,
}

/// One line for a child, its newline included. A newline in a value is escaped by JSON.
pub(crate) fn line(start: &Start, namespace: &str, stage: &str) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Line {
        id: start.entry.meta.origin.to_string(),
        stage,
        namespace,
        attempt: start.attempt,
        deliveries: start.deliveries,
        idempotency_key: start.key.as_str(),
        deadline: utc(start.deadline),
        fields: FieldsJson(&start.entry.fields),
    })
    .unwrap_or_default();
    line.push(b'\n');
    line
}

/// RFC 3339 in UTC, with milliseconds.
fn utc(at: Timestamp) -> String {
    format!("{at:.3}")
}

fn from_millis(millis: u64) -> Timestamp {
    // A time beyond the year 9999 was no time to begin with.
    i64::try_from(millis)
        .ok()
        .and_then(|millis| Timestamp::from_millisecond(millis).ok())
        .unwrap_or(Timestamp::MAX)
}

/// `bytes` as a header's value, percent-encoded where they may not stand there as they are.
fn legal(bytes: &[u8]) -> HeaderValue {
    visible(percent_encode(bytes, NOT_IN_A_HEADER).to_string())
}

/// A text of visible ASCII characters as a header's value.
fn visible(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::streams::{EntryId, Fields, IdempotencyKey, Meta, Place};

    fn start(fields: &[(&[u8], &[u8])]) -> Start {
        let fields: Fields = fields
            .iter()
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect();
        Start {
            entry: Arc::new(Entry {
                place: Place::retry(EntryId::new(9, 9)),
                fields,
                meta: Meta::fresh(EntryId::new(1_700_000_000_123, 4), 0),
            }),
            key: IdempotencyKey::from_bytes([0xab; 16]),
            attempt: 2,
            deliveries: 1,
            deadline: "2026-01-02T03:04:05.6789Z".parse().unwrap(),
            timeout: Duration::from_secs(1),
            fresh: false,
        }
    }

    #[test]
    fn a_post_carries_every_header_of_the_wire() {
        let stage = StageHeaders::new(
            "127.0.0.1:8080",
            "news crawl",
            "embed-ä",
            &StreamKey::new("{eu}crawl:raw/ä"),
        );
        let headers = stage.of(&start(&[(b"a", b"1"), (b"traceparent", b"00-ab-cd-01")]));
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        let expected = [
            "ce-id: 1700000000123-4",
            "ce-source: %7Beu%7Dcrawl%3Araw%2F%C3%A4",
            "ce-specversion: 1.0",
            "ce-type: embed-%C3%A4",
            "content-type: application/json",
            "host: 127.0.0.1:8080",
            "idempotency-key: abababababababababababababababab",
            "streamstage-attempt: 2",
            "streamstage-deadline: 2026-01-02T03:04:05.678Z",
            "streamstage-deliveries: 1",
            "streamstage-entry-id: 1700000000123-4",
            "streamstage-first-enqueued-at: 2023-11-14T22:13:20.123Z",
            "streamstage-namespace: news%20crawl",
            "streamstage-stage: embed-%C3%A4",
            "traceparent: 00-ab-cd-01",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_traceparent_that_no_header_may_hold_is_encoded() {
        let stage = StageHeaders::new("h:1", "n", "s", &StreamKey::new("s"));
        let headers = stage.of(&start(&[(b"traceparent", b"a\r\nx: y\xff%")]));
        assert_eq!(headers.get("traceparent").unwrap(), "a%0D%0Ax:%20y%FF%25");
        assert!(stage.of(&start(&[])).get("traceparent").is_none());
    }

    #[test]
    fn a_line_holds_everything_in_its_order_and_ends_once() {
        let line = line(&start(&[(b"b", b"x\ny"), (b"a", b"\xff")]), "ns", "st");
        assert_eq!(
            String::from_utf8(line).unwrap(),
            concat!(
                r#"{"id":"1700000000123-4","stage":"st","namespace":"ns","attempt":2,"deliveries":1,"#,
                r#""idempotencyKey":"abababababababababababababababab","#,
                r#""deadline":"2026-01-02T03:04:05.678Z","fields":{"b":"x\ny","a":{"base64":"/w=="}}}"#,
                "\n"
            )
        );
    }
}
