//! An HTTP handler: a server that is posted one entry at a time.
//!
//! `cargo run --example http-handler -- --port 8080 --echo`
//!
//! It does what the entry's fields tell it, so that every class of answer can be seen:
//!
//! | field | answer |
//! | --- | --- |
//! | `sleep` = milliseconds | first of all waits that long |
//! | `heal` = N | an error before the N-th attempt |
//! | `fail` = a type | an error of that type: tried again |
//! | `reject` = a type | an error of the entry itself: dead-lettered at once |
//! | `busy` = seconds | not now: tried again after that time, no attempt spent |
//! | `die` | none: the process ends |
//! | none of these | done; with `--echo`, the entry's fields are the one output |

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use clap::Parser;
use serde_json::{Map, Value, json};

#[derive(Parser)]
struct Arguments {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The port; 0 takes a free one and names it in the log.
    #[arg(long, env = "PORT", default_value_t = 8080)]
    port: u16,
    /// Answer with the entry's fields as an output.
    #[arg(long)]
    echo: bool,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let listener = tokio::net::TcpListener::bind((arguments.host, arguments.port)).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    let app = Router::new().fallback(handle).with_state(arguments.echo);
    axum::serve(listener, app).await
}

async fn handle(State(echo): State<bool>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(&body) else {
        return problem(
            StatusCode::BAD_REQUEST,
            "NotAnObject",
            "the body is no object",
        );
    };
    let order = |name: &str| fields.get(name).and_then(Value::as_str);
    let number = |name: &str| order(name).and_then(|text| text.parse::<u64>().ok());
    if let Some(millis) = number("sleep") {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    if order("die").is_some() {
        std::process::exit(1);
    }
    if number("heal").is_some_and(|attempt| attempt_of(&headers) < attempt) {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "NotYet", "it will heal");
    }
    if let Some(error_type) = order("fail") {
        return problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            error_type,
            "told to fail",
        );
    }
    if let Some(error_type) = order("reject") {
        return problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            error_type,
            "told to reject",
        );
    }
    if let Some(seconds) = order("busy") {
        let wait = [(header::RETRY_AFTER, seconds.to_owned())];
        return (StatusCode::TOO_MANY_REQUESTS, wait, "told to be busy").into_response();
    }
    if !echo {
        return StatusCode::NO_CONTENT.into_response();
    }
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, json!({ "outputs": [fields] }).to_string()).into_response()
}

/// Errors so far + 1, as the engine counts them.
fn attempt_of(headers: &HeaderMap) -> u64 {
    let attempt = headers.get("streamstage-attempt");
    let attempt = attempt.and_then(|value| value.to_str().ok()?.parse().ok());
    attempt.unwrap_or(1)
}

/// An error as RFC 9457 has it: the engine takes its type and its text.
fn problem(status: StatusCode, error_type: &str, detail: &str) -> Response {
    let body = json!({ "type": error_type, "detail": detail }).to_string();
    let problem_json = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, problem_json, body).into_response()
}
