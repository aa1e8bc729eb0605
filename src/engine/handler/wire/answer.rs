//! What a handler answers, read as an [`Outcome`]. Pure.
//!
//! Outputs are taken strictly: one that cannot be appended as it was meant is an error of the handler (`InvalidOutput`), never
//! dropped. Errors are taken leniently: a member of another type than the wire's is as good as absent, since the error is
//! worth more than its form.

use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::fields::OutputJson;
use super::{TRACEPARENT_FIELD, traceparent};
use crate::engine::outcome::{Failure, Outcome, of_error, of_status};
use crate::streams::{Entry, Fields};

const ERROR_TYPE: HeaderName = HeaderName::from_static("streamstage-error-type");

/// The pairs of one answer's outputs: two values each, they go through one script call, which carries 7,000 values.
const MAX_OUTPUT_PAIRS: usize = 3_000;

/// The longest error type, in bytes: it is a name, and it travels with the entry.
const MAX_ERROR_TYPE_BYTES: usize = 200;

/// The longest wait an answer can ask for; beyond it a sum of times could overflow, and the engine caps it far below.
const MAX_WAIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What an answer is judged by, beside its own words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// The entry it is for.
    pub(crate) entry: &'a Entry,
    /// The stage has an output stream.
    pub(crate) has_output: bool,
}

/// The outcome of a whole HTTP answer; `now` is the time that a date in Retry-After counts from.
pub(crate) fn of_http(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    terms: Terms<'_>,
    now: Timestamp,
) -> Outcome {
    if status.is_success() {
        return of_success(media_type(headers).as_deref(), body, terms);
    }
    let problem = match media_type(headers).as_deref() {
        Some("application/problem+json") => serde_json::from_slice(body).unwrap_or_default(),
        Some(_) | None => Map::new(),
    };
    let named = headers
        .get(ERROR_TYPE)
        .map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
        // `about:blank` is RFC 9457's word for "no more than the status says".
        .or_else(|| text(&problem, "type").filter(|name| name != "about:blank"));
    let message = text(&problem, "detail")
        .or_else(|| text(&problem, "title"))
        .unwrap_or_else(|| body_text(status, body));
    let error = Failure {
        error_type: error_type(named.as_deref(), &format!("Http{}", status.as_u16())),
        message,
        traceback: text(&problem, "traceback").unwrap_or_default(),
    };
    let retryable = problem.get("retryable").and_then(Value::as_bool);
    of_status(status.as_u16(), retryable, error, retry_after(headers, now))
}

/// An answer that was longer than we read.
pub(crate) fn too_large() -> Outcome {
    let message = format!(
        "the answer is longer than {} bytes",
        super::MAX_ANSWER_BYTES
    );
    retry(Failure::new("AnswerTooLarge", message))
}

/// The outcome of one line of a child.
///
/// # Errors
/// What is wrong with a line that is no answer for this entry.
pub(crate) fn of_line(line: &[u8], terms: Terms<'_>) -> Result<Outcome, String> {
    if !is_object(line) {
        return Err("it is no JSON object".to_owned());
    }
    let answer: AnswerLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let id = terms.entry.meta.origin.to_string();
    if answer.id != id {
        return Err(format!(
            "it answers `{}`, and the child holds `{id}`",
            answer.id
        ));
    }
    match (answer.ok, answer.error) {
        (Some(true), None) => Ok(match answer.outputs {
            Some(IgnoredAny) => of_outputs(line, terms),
            None => Outcome::Done { outputs: vec![] },
        }),
        (None | Some(false), Some(error)) => Ok(of_error_object(&error)),
        (Some(true), Some(_)) => Err("it says both `ok` and `error`".to_owned()),
        (None | Some(false), None) => Err(r#"it says neither `"ok": true` nor `error`"#.to_owned()),
    }
}

/// One line, but for what its outputs hold: wrong outputs are the handler's error, a wrong line is the child's.
#[derive(Deserialize)]
struct AnswerLine {
    id: String,
    #[serde(default)]
    ok: Option<bool>,
    #[serde(default)]
    outputs: Option<IgnoredAny>,
    #[serde(default)]
    error: Option<Map<String, Value>>,
}

fn of_error_object(error: &Map<String, Value>) -> Outcome {
    let failure = Failure {
        error_type: error_type(text(error, "type").as_deref(), "HandlerError"),
        message: text(error, "message").unwrap_or_default(),
        traceback: text(error, "traceback").unwrap_or_default(),
    };
    let after = error
        .get("retryAfter")
        .and_then(Value::as_f64)
        .filter(|seconds| *seconds >= 0.0)
        .map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .unwrap_or(MAX_WAIT)
                .min(MAX_WAIT)
        });
    of_error(
        error.get("retryable").and_then(Value::as_bool),
        failure,
        after,
    )
}

/// A 2xx. Any body that is an object is asked for outputs, so that a forgotten content type loses none; one that calls
/// itself JSON must be JSON.
fn of_success(media_type: Option<&str>, body: &[u8], terms: Terms<'_>) -> Outcome {
    let is_declared =
        media_type.is_some_and(|it| it == "application/json" || it.ends_with("+json"));
    let none = Outcome::Done { outputs: vec![] };
    let body = body.trim_ascii();
    if body.is_empty() {
        return none;
    }
    let has_outputs = if is_object(body) {
        serde_json::from_slice::<Has>(body).map(|has| has.outputs.is_some())
    } else {
        serde_json::from_slice::<IgnoredAny>(body).map(|IgnoredAny| false)
    };
    match has_outputs {
        Ok(true) => of_outputs(body, terms),
        Err(error) if is_declared || error.is_data() => invalid_output(error),
        Ok(false) | Err(_) => none,
    }
}

/// Whether there are outputs; `null` is none.
#[derive(Deserialize)]
struct Has {
    #[serde(default)]
    outputs: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Outputs {
    outputs: Vec<OutputJson>,
}

/// The outcome of an answer that has outputs. The entry's traceparent goes on into those that set none.
fn of_outputs(json: &[u8], terms: Terms<'_>) -> Outcome {
    let outputs: Vec<Fields> = match serde_json::from_slice::<Outputs>(json) {
        Ok(found) => found.outputs.into_iter().map(|output| output.0).collect(),
        Err(error) => return invalid_output(error),
    };
    if !outputs.is_empty() && !terms.has_output {
        return invalid_output("the stage has no output stream");
    }
    if outputs.iter().map(Vec::len).sum::<usize>() > MAX_OUTPUT_PAIRS {
        return invalid_output(format_args!(
            "more than {MAX_OUTPUT_PAIRS} fields in one answer"
        ));
    }
    let parent = traceparent(&terms.entry.fields);
    let outputs = outputs.into_iter().map(|output| traced(output, parent));
    Outcome::Done {
        outputs: outputs.collect(),
    }
}

fn traced(mut output: Fields, parent: Option<&[u8]>) -> Fields {
    if let (Some(parent), None) = (parent, traceparent(&output)) {
        output.push((TRACEPARENT_FIELD.to_vec(), parent.to_vec()));
    }
    output
}

fn invalid_output(why: impl std::fmt::Display) -> Outcome {
    retry(Failure::new("InvalidOutput", why.to_string()))
}

fn retry(error: Failure) -> Outcome {
    Outcome::Retry { error, after: None }
}

/// serde would also read a struct from an array.
fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().starts_with(b"{")
}

/// The media type without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = value.split(';').next().unwrap_or_default();
    Some(essence.trim().to_ascii_lowercase())
}

/// A member that is a text, and not an empty one.
fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    let text = object.get(name)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn body_text(status: StatusCode, body: &[u8]) -> String {
    match body.trim_ascii() {
        [] => format!("HTTP {status}"),
        body => String::from_utf8_lossy(body).into_owned(),
    }
}

/// The type a handler named, or the default; cut on a character boundary.
fn error_type(named: Option<&str>, default: &str) -> String {
    let name = named
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .unwrap_or(default);
    let longest = name.len().min(MAX_ERROR_TYPE_BYTES);
    let cut = (0..=longest).rev().find_map(|end| name.get(..end));
    cut.unwrap_or(default).to_owned()
}

/// Seconds, or an HTTP date; a date that has passed is no wait. Anything else is as good as absent.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = value.parse().map_or(MAX_WAIT, Duration::from_secs);
        return Some(seconds.min(MAX_WAIT));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let until = Timestamp::try_from(until).ok()?;
    Some(
        Duration::try_from(until.duration_since(now))
            .unwrap_or_default()
            .min(MAX_WAIT),
    )
}

#[cfg(test)]
mod tests;
