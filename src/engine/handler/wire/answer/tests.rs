use super::*;
use crate::streams::{EntryId, Meta, Place};

const NOW: &str = "2026-01-02T03:04:05Z";
const PROBLEM: &str = "application/problem+json; charset=utf-8";

fn entry(fields: &[(&str, &str)]) -> Entry {
    Entry {
        place: Place::source(EntryId::new(7, 1)),
        fields: pairs(fields),
        meta: Meta::fresh(EntryId::new(7, 1), 0),
    }
}

fn pairs(fields: &[(&str, &str)]) -> Fields {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

fn http(status: u16, headers: &[(&'static str, &str)], body: &str) -> Outcome {
    let headers = headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
        .collect();
    let entry = entry(&[("a", "1")]);
    let terms = Terms {
        entry: &entry,
        has_output: true,
    };
    let status = StatusCode::from_u16(status).unwrap();
    of_http(
        status,
        &headers,
        body.as_bytes(),
        terms,
        NOW.parse().unwrap(),
    )
}

fn line(text: &str) -> Result<Outcome, String> {
    let entry = entry(&[("a", "1")]);
    let terms = Terms {
        entry: &entry,
        has_output: true,
    };
    of_line(text.as_bytes(), terms)
}

fn done(outputs: &[&[(&str, &str)]]) -> Outcome {
    Outcome::Done {
        outputs: outputs.iter().map(|fields| pairs(fields)).collect(),
    }
}

fn error_type_of(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Retry { error, .. }
        | Outcome::Reject { error }
        | Outcome::Busy { error, .. }
        | Outcome::Crashed { error, .. } => &error.error_type,
        Outcome::Done { .. } | Outcome::Unavailable { .. } | Outcome::Cancelled => "none",
    }
}

fn wait_of(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Retry { after, .. } | Outcome::Busy { after, .. } => *after,
        Outcome::Done { .. }
        | Outcome::Reject { .. }
        | Outcome::Crashed { .. }
        | Outcome::Unavailable { .. }
        | Outcome::Cancelled => None,
    }
}

#[test]
fn every_2xx_without_outputs_is_done() {
    let json = ("content-type", "application/json");
    for (status, headers, body) in [
        (200, vec![], ""),
        (204, vec![json], ""),
        (202, vec![json], " \n"),
        (299, vec![json], "{}"),
        (200, vec![json], r#"{"status":"ok","n":1e999}"#),
        (200, vec![json], r#"{"outputs":[]}"#),
        (200, vec![json], r#"{"outputs":null}"#),
        (200, vec![json], "[1]"),
        (200, vec![json], "null"),
        (200, vec![], "ok"),
        (200, vec![("content-type", "text/html")], "<p>{</p>"),
        (200, vec![("content-type", "text/plain")], "{oops"),
    ] {
        assert_eq!(http(status, &headers, body), done(&[]), "{body}");
    }
}

#[test]
fn outputs_are_taken_whatever_the_body_calls_itself() {
    let body = r#" {"n":1,"outputs":[{"x":"1"},{"y":"2","x":"3"}]}"#;
    let expected = done(&[&[("x", "1")], &[("y", "2"), ("x", "3")]]);
    for content_type in [
        "application/json",
        "Application/CloudEvents+JSON;a=b",
        "text/plain",
    ] {
        assert_eq!(http(200, &[("content-type", content_type)], body), expected);
    }
    assert_eq!(http(200, &[], body), expected);
}

#[test]
fn wrong_outputs_are_an_error_and_never_dropped() {
    let json = [("content-type", "application/json")];
    let long = format!(
        r#"{{"outputs":[{{{}"a":"1"}}]}}"#,
        r#""a":"1","#.repeat(MAX_OUTPUT_PAIRS)
    );
    for body in [
        r#"{"outputs":{}}"#,
        r#"{"outputs":"x"}"#,
        r#"{"outputs":[1]}"#,
        r#"{"outputs":[{}]}"#,
        r#"{"outputs":[{"a":1}]}"#,
        r#"{"outputs":[{"a":"1"},["b","2"]]}"#,
        r#"{"outputs":[{"a":"1"}],"outputs":[]}"#,
        r#"{"outputs":[{"a":"1"}]"#,
        "nonsense",
        &long,
    ] {
        assert_eq!(
            error_type_of(&http(200, &json, body)),
            "InvalidOutput",
            "{body}"
        );
    }
}

#[test]
fn outputs_without_an_output_stream_are_an_error() {
    let entry = entry(&[]);
    let terms = Terms {
        entry: &entry,
        has_output: false,
    };
    let of = |line: &str| of_line(line.as_bytes(), terms).unwrap();
    let outcome = of(r#"{"id":"7-1","ok":true,"outputs":[{"a":"1"}]}"#);
    assert_eq!(error_type_of(&outcome), "InvalidOutput");
    assert_eq!(of(r#"{"id":"7-1","ok":true,"outputs":[]}"#), done(&[]));
}

#[test]
fn a_traceparent_goes_on_into_outputs_that_set_none() {
    let entry = entry(&[("traceparent", "00-ab"), ("traceparent", "00-cd")]);
    let terms = Terms {
        entry: &entry,
        has_output: true,
    };
    let line = br#"{"id":"7-1","ok":true,"outputs":[{"a":"1"},{"traceparent":"00-ef"}]}"#;
    assert_eq!(
        of_line(line, terms).unwrap(),
        done(&[
            &[("a", "1"), ("traceparent", "00-ab")],
            &[("traceparent", "00-ef")]
        ])
    );
}

#[test]
fn a_problem_gives_type_text_traceback_and_its_word_on_retries() {
    let body = r#"{"type":"Malformed","title":"T","detail":"no date","traceback":"at 1","retryable":false}"#;
    let error = Failure {
        error_type: "Malformed".to_owned(),
        message: "no date".to_owned(),
        traceback: "at 1".to_owned(),
    };
    let of = |status, body: &str| http(status, &[("content-type", PROBLEM)], body);
    assert_eq!(
        of(500, body),
        Outcome::Reject {
            error: error.clone()
        }
    );
    let retryable = body.replace("false", "true");
    assert_eq!(of(422, &retryable), Outcome::Retry { error, after: None });
}

#[test]
fn error_types_and_texts_come_from_the_best_source() {
    let is = |status, headers: &[_], body: &str, error_type: &str, message: &str| {
        let error = Failure::new(error_type, message);
        let after = None;
        assert_eq!(http(status, headers, body), Outcome::Retry { error, after });
    };
    let problem = ("content-type", PROBLEM);
    let json = ("content-type", "application/json");
    let named = ("streamstage-error-type", " Named ");
    is(500, &[], "", "Http500", "HTTP 500 Internal Server Error");
    is(500, &[], " oops\n", "Http500", "oops");
    is(
        404,
        &[("content-type", "text/html")],
        "<p>",
        "Http404",
        "<p>",
    );
    is(302, &[("location", "/")], "", "Http302", "HTTP 302 Found");
    is(599, &[("streamstage-error-type", "")], "x", "Http599", "x");
    is(
        500,
        &[named, problem],
        r#"{"type":"T","detail":"d"}"#,
        "Named",
        "d",
    );
    is(
        500,
        &[problem],
        r#"{"type":"about:blank","title":"t"}"#,
        "Http500",
        "t",
    );
    for body in [r#"{"type":7,"detail":[]}"#, "not json", "[1]"] {
        is(500, &[problem], body, "Http500", body);
    }
    is(
        500,
        &[json],
        r#"{"type":"T"}"#,
        "Http500",
        r#"{"type":"T"}"#,
    );
}

#[test]
fn a_long_error_type_is_cut_between_characters() {
    let name = "ä".repeat(150);
    let body = format!(r#"{{"type":"{name}"}}"#);
    let outcome = http(500, &[("content-type", PROBLEM)], &body);
    assert_eq!(error_type_of(&outcome), "ä".repeat(100));
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    for (value, seconds) in [
        ("0", Some(0)),
        ("120", Some(120)),
        ("99999999999999999999", Some(MAX_WAIT.as_secs())),
        ("Fri, 02 Jan 2026 03:05:05 GMT", Some(60)),
        ("Friday, 02-Jan-26 03:05:05 GMT", Some(60)),
        ("Fri, 02 Jan 2026 03:00:00 GMT", Some(0)),
        ("Tue, 01 Jan 2999 00:00:00 GMT", Some(MAX_WAIT.as_secs())),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
    ] {
        let outcome = http(500, &[("retry-after", value)], "");
        assert_eq!(
            wait_of(&outcome),
            seconds.map(Duration::from_secs),
            "{value}"
        );
        assert!(matches!(outcome, Outcome::Retry { .. }), "{value}");
    }
    let busy = http(503, &[("retry-after", "5")], "");
    assert!(matches!(busy, Outcome::Busy { .. }));
    assert!(matches!(
        http(503, &[("retry-after", "soon")], ""),
        Outcome::Retry { .. }
    ));
}

#[test]
fn a_line_that_says_ok_is_done() {
    assert_eq!(line(r#"{"id":"7-1","ok":true}"#), Ok(done(&[])));
    assert_eq!(
        line("{\"ok\":true,\"x\":[1e999],\"id\":\"7-1\",\"error\":null}\r"),
        Ok(done(&[]))
    );
    assert_eq!(
        line(r#"{"id":"7-1","ok":true,"outputs":[{"a":"1"}]}"#),
        Ok(done(&[&[("a", "1")]]))
    );
    let wrong = line(r#"{"id":"7-1","ok":true,"outputs":[{"a":1}]}"#).unwrap();
    assert_eq!(error_type_of(&wrong), "InvalidOutput");
}

#[test]
fn a_line_with_an_error_says_which_class() {
    let of = |members: &str| line(&format!(r#"{{"id":"7-1","error":{{{members}}}}}"#)).unwrap();
    let error = Failure {
        error_type: "T".to_owned(),
        message: "m".to_owned(),
        traceback: "b".to_owned(),
    };
    let words = r#""type":"T","message":"m","traceback":"b""#;
    assert_eq!(
        of(words),
        Outcome::Retry {
            error: error.clone(),
            after: None
        }
    );
    assert_eq!(
        of(&format!(r#"{words},"retryable":false,"retryAfter":1"#)),
        Outcome::Reject {
            error: error.clone()
        }
    );
    let busy = of(&format!(r#"{words},"retryAfter":1.5"#));
    let after = Some(Duration::from_millis(1500));
    assert_eq!(busy, Outcome::Busy { error, after });
    assert_eq!(wait_of(&of(r#""retryAfter":1e300"#)), Some(MAX_WAIT));
    for ignored in [
        r#""retryAfter":-1"#,
        r#""retryAfter":"1""#,
        r#""retryable":"no""#,
        "",
    ] {
        let error = Failure::new("HandlerError", "");
        assert_eq!(
            of(ignored),
            Outcome::Retry { error, after: None },
            "{ignored}"
        );
    }
}

#[test]
fn a_line_that_is_no_answer_is_refused() {
    for wrong in [
        "",
        "ok",
        "{",
        "[]",
        r#"["7-1",true]"#,
        "{}",
        r#"{"ok":true}"#,
        r#"{"id":71,"ok":true}"#,
        r#"{"id":"7-2","ok":true}"#,
        r#"{"id":"7-1"}"#,
        r#"{"id":"7-1","ok":false}"#,
        r#"{"id":"7-1","ok":1}"#,
        r#"{"id":"7-1","error":"text"}"#,
        r#"{"id":"7-1","ok":true,"error":{}}"#,
        r#"{"id":"7-1","id":"7-1","ok":true}"#,
        r#"{"id":"7-1","ok":true} {"id":"7-1","ok":true}"#,
    ] {
        assert!(line(wrong).is_err(), "{wrong}");
    }
    assert!(line(r#"{"id":"7-1","ok":false,"error":{}}"#).is_ok());
}

proptest::proptest! {
    #[test]
    fn whatever_a_child_or_a_server_writes_is_judged(
        text in r#"(\{"id":"7-1",)?["\[{]*(ok|error|outputs|id|base64)?"?:?[a-z0-9"\[\]{},:. ]*[\]}]*"#,
    ) {
        line(&text).ok();
        http(200, &[("content-type", "application/json")], &text);
        http(500, &[("content-type", PROBLEM)], &text);
    }
}
