//! The HTTP handler against servers that follow a script.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use streamstage::clock::Clock;
use streamstage::engine::handler::Handler;
use streamstage::engine::handler::http::{HttpHandler, HttpSettings};
use streamstage::engine::outcome::{Outcome, UnavailableReason};
use streamstage::streams::StreamKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{Log, SHORT, call, class, done, eventually, fresh, start, within};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// What a server does next on a connection. After the last step it closes.
#[derive(Clone, Debug)]
enum Step {
    /// Reads a whole request.
    Hear,
    /// Writes this.
    Say(String),
    /// Waits until the other side closes.
    AwaitClose,
    /// Closes without a farewell: the other side gets a reset.
    Reset,
}

use Step::{AwaitClose, Hear, Reset};

fn say(text: &str) -> Step {
    Step::Say(text.to_owned())
}

/// A server that follows one script per connection, and stops listening when the last script has begun.
struct Server {
    address: SocketAddr,
    /// What happened: `<connection>: <request>`, or `<connection>: closed`.
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn with(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::default();
        let server = Self {
            address,
            log: Arc::clone(&log),
        };
        tokio::spawn(async move {
            for (number, script) in scripts.into_iter().enumerate() {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(follow(number, script, stream, Arc::clone(&log)));
            }
        });
        server
    }

    fn handler(&self) -> HttpHandler {
        handler("127.0.0.1", self.address.port())
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Which connection each request came on.
    fn connections(&self) -> Vec<String> {
        let log = self.log();
        let numbers = log.iter().filter_map(|line| line.split_once(": POST"));
        numbers.map(|(number, _)| number.to_owned()).collect()
    }
}

fn handler(host: &str, port: u16) -> HttpHandler {
    HttpHandler::new(HttpSettings {
        host: host.to_owned(),
        port,
        path: "/handle it".to_owned(),
        namespace: "default".to_owned(),
        stage: "embed".to_owned(),
        source: StreamKey::new("crawl:raw"),
        has_output: true,
        concurrency: 4,
        clock: Clock::start(),
    })
    .unwrap()
}

async fn follow(
    number: usize,
    script: Vec<Step>,
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<String>>>,
) {
    let note = |what: &str| log.lock().unwrap().push(format!("{number}: {what}"));
    for step in script {
        match step {
            Hear => match hear(&mut stream).await {
                Some(request) => note(&request),
                None => return note("closed"),
            },
            // The other side may have closed already.
            Step::Say(text) => stream.write_all(text.as_bytes()).await.unwrap_or_default(),
            AwaitClose => {
                stream
                    .read_to_end(&mut Vec::new())
                    .await
                    .unwrap_or_default();
                note("closed");
            }
            Reset => stream.set_zero_linger().unwrap(),
        }
    }
}

/// One request, head and body; `None` if the other side closes instead.
async fn hear(stream: &mut TcpStream) -> Option<String> {
    let mut request = String::new();
    loop {
        if let Some((head, body)) = request.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return Some(request);
            }
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(length) => request.push_str(std::str::from_utf8(&bytes[..length]).unwrap()),
        }
    }
}

/// The outcome when a fresh connection gets this answer and is then closed.
async fn outcome_of(answer: &str) -> Outcome {
    let server = Server::with(vec![vec![Hear, say(answer)]]).await;
    call(&server.handler(), start(&[("a", "1")])).await
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn an_entry_is_posted_as_the_wire_says() {
    let server = Server::with(vec![vec![Hear, say(OK)]]).await;
    let fields = [("text", "ä\n"), ("n", "1"), ("traceparent", "00-ab-cd-01")];
    assert_eq!(call(&server.handler(), start(&fields)).await, done());
    let request = server.log().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("0: POST /handle%20it HTTP/1.1\r\n"),
        "{head}"
    );
    for header in [
        &format!("host: {}", server.address),
        "content-type: application/json",
        "idempotency-key: abababababababababababababababab",
        "streamstage-namespace: default",
        "streamstage-stage: embed",
        "streamstage-entry-id: 1700000000123-4",
        "streamstage-attempt: 1",
        "streamstage-deliveries: 1",
        "streamstage-first-enqueued-at: 2023-11-14T22:13:20.123Z",
        "streamstage-deadline: 2026-01-02T03:04:05.000Z",
        "traceparent: 00-ab-cd-01",
        "ce-specversion: 1.0",
        "ce-id: 1700000000123-4",
        "ce-source: crawl%3Araw",
        "ce-type: embed",
    ] {
        assert!(head.lines().any(|line| line == header), "{header}: {head}");
    }
    assert_eq!(
        body,
        r#"{"text":"ä\n","n":"1","traceparent":"00-ab-cd-01"}"#
    );
}

#[tokio::test]
async fn answers_have_their_classes() {
    let json = "content-type: application/json\r\n";
    let problem = "content-type: application/problem+json\r\n";
    for (status, headers, body, expected) in [
        ("200 OK", "", "", "Done 0"),
        (
            "200 OK",
            json,
            r#"{"outputs":[{"a":"1"},{"b":"2"}]}"#,
            "Done 2",
        ),
        (
            "200 OK",
            json,
            r#"{"outputs":[{"a":1}]}"#,
            "Retry InvalidOutput",
        ),
        ("200 OK", json, r#"{"outputs":[{"a""#, "Retry InvalidOutput"),
        ("200 OK", "", "fine", "Done 0"),
        ("301 Moved", "location: /elsewhere\r\n", "", "Retry Http301"),
        ("404 Not Found", "", "", "Retry Http404"),
        ("422 Unprocessable", "", "", "Reject Http422"),
        (
            "422 Unprocessable",
            problem,
            r#"{"type":"T","retryable":true}"#,
            "Retry T",
        ),
        ("429 Too Many Requests", "", "", "Busy Http429"),
        (
            "500 Oops",
            "streamstage-error-type: Named\r\n",
            "",
            "Retry Named",
        ),
        ("503 Unavailable", "", "", "Retry Http503"),
        ("503 Unavailable", "retry-after: 1\r\n", "", "Busy Http503"),
    ] {
        let outcome = outcome_of(&answer(status, headers, body)).await;
        assert_eq!(class(&outcome), expected, "{status} {body}");
    }
}

#[tokio::test]
async fn answers_are_read_up_to_one_mebibyte() {
    let mebibyte = "x".repeat(1024 * 1024);
    let whole = outcome_of(&answer("200 OK", "", &mebibyte)).await;
    assert_eq!(class(&whole), "Done 0");
    let longer = outcome_of(&answer("200 OK", "", &format!("{mebibyte}x"))).await;
    assert_eq!(class(&longer), "Retry AnswerTooLarge");
    let chunk = format!("100000\r\n{mebibyte}\r\n");
    let endless = format!("HTTP/1.1 500 Oops\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}");
    assert_eq!(class(&outcome_of(&endless).await), "Retry AnswerTooLarge");
    let text = "e".repeat(100_000);
    let Outcome::Retry { error, .. } = outcome_of(&answer("500 Oops", "", &text)).await else {
        panic!("no error");
    };
    assert_eq!(error.message, text);
}

#[tokio::test]
async fn a_connection_that_breaks_with_the_entry_is_a_crash() {
    let head = "HTTP/1.1 200 OK\r\n";
    for script in [
        vec![Hear],
        vec![Hear, Reset],
        vec![Hear, say("HTTP/1.")],
        vec![Hear, say(head)],
        vec![Hear, say(&format!("{head}content-length: 9\r\n\r\n{{}}"))],
        vec![
            Hear,
            say(&format!("{head}content-length: 9\r\n\r\n{{}}")),
            Reset,
        ],
        vec![
            Hear,
            say(&format!(
                "{head}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n"
            )),
        ],
    ] {
        let server = Server::with(vec![script.clone()]).await;
        let outcome = call(&server.handler(), start(&[])).await;
        assert_eq!(class(&outcome), "Crashed ConnectionBroken", "{script:?}");
        assert_eq!(server.connections().len(), 1, "{script:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_an_error() {
    let outcome = outcome_of("+OK redis\r\n\r\n").await;
    assert_eq!(class(&outcome), "Retry InvalidAnswer");
}

#[tokio::test]
async fn connections_are_kept_and_the_entry_that_must_run_alone_gets_its_own() {
    let server = Server::with(vec![
        vec![Hear, say(OK), Hear, say(OK), Hear, say(OK)],
        vec![Hear, say(OK), AwaitClose],
    ])
    .await;
    let handler = server.handler();
    for start in [start(&[]), start(&[]), fresh(&[]), start(&[])] {
        assert_eq!(call(&handler, start).await, done());
    }
    assert_eq!(server.connections(), ["0", "0", "1", "0"]);
    eventually("the fresh connection is closed", || {
        server.log().contains(&"1: closed".into())
    })
    .await;
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_while_idle_is_not_used() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let server = Server::with(vec![
        vec![Hear, say(OK)],
        vec![Hear, say(closing), AwaitClose],
        vec![Hear, say(OK)],
    ])
    .await;
    let handler = server.handler();
    for _ in 0..3 {
        assert_eq!(call(&handler, start(&[])).await, done());
    }
    assert_eq!(server.connections(), ["0", "1", "2"]);
}

#[tokio::test]
async fn a_kept_connection_that_breaks_without_a_byte_is_tried_once_more() {
    let server = Server::with(vec![
        vec![Hear, say(OK), Hear],
        vec![Hear, say(OK), Hear],
        vec![Hear],
    ])
    .await;
    let handler = server.handler();
    assert_eq!(call(&handler, start(&[])).await, done());
    assert_eq!(call(&handler, start(&[])).await, done());
    let twice_broken = call(&handler, start(&[])).await;
    assert_eq!(class(&twice_broken), "Crashed ConnectionBroken");
    assert_eq!(server.connections(), ["0", "0", "1", "1", "2"]);
}

#[tokio::test]
async fn a_kept_connection_that_breaks_counts_if_nothing_can_be_reached_after_it() {
    let server = Server::with(vec![vec![Hear, say(OK), Hear]]).await;
    let handler = server.handler();
    assert_eq!(call(&handler, start(&[])).await, done());
    assert_eq!(
        class(&call(&handler, start(&[])).await),
        "Crashed ConnectionBroken"
    );
    assert_eq!(
        class(&call(&handler, start(&[])).await),
        "Unavailable ConnectionRefused"
    );
}

#[tokio::test]
async fn a_kept_connection_that_breaks_in_its_answer_is_a_crash_and_no_second_post() {
    let server = Server::with(vec![
        vec![Hear, say(OK), Hear, say("HTTP")],
        vec![Hear, say(OK)],
    ])
    .await;
    let handler = server.handler();
    assert_eq!(call(&handler, start(&[])).await, done());
    assert_eq!(
        class(&call(&handler, start(&[])).await),
        "Crashed ConnectionBroken"
    );
    assert_eq!(server.connections(), ["0", "0"]);
}

#[tokio::test]
async fn idle_connections_are_dropped_after_four_seconds() {
    let server = Server::with(vec![vec![Hear, say(OK), AwaitClose], vec![Hear, say(OK)]]).await;
    let handler = server.handler();
    assert_eq!(call(&handler, start(&[])).await, done());
    tokio::time::pause();
    for _ in 0..6 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::resume();
    eventually("the connection is closed", || {
        server.log().contains(&"0: closed".into())
    })
    .await;
    assert_eq!(call(&handler, start(&[])).await, done());
    assert_eq!(server.connections(), ["0", "1"]);
}

#[tokio::test]
async fn a_handler_that_is_too_slow_is_left_and_hears_of_it() {
    for script in [
        vec![Hear, AwaitClose],
        vec![
            Hear,
            say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
            AwaitClose,
        ],
    ] {
        let server = Server::with(vec![script]).await;
        let outcome = call(&server.handler(), within(SHORT, &[])).await;
        assert_eq!(class(&outcome), "Retry Timeout");
        eventually("the server is left", || {
            server.log().contains(&"0: closed".into())
        })
        .await;
    }
}

#[tokio::test]
async fn a_cancelled_run_is_left_and_the_handler_hears_of_it() {
    let server = Server::with(vec![vec![Hear, AwaitClose]]).await;
    let (handler, cancel) = (server.handler(), CancellationToken::new());
    let (outcome, ()) = tokio::join!(handler.call(start(&[]), cancel.clone()), async {
        eventually("the entry arrives", || server.connections().len() == 1).await;
        cancel.cancel();
    });
    assert_eq!(outcome, Outcome::Cancelled);
    eventually("the server is left", || {
        server.log().contains(&"0: closed".into())
    })
    .await;
}

#[tokio::test]
async fn entries_at_once_have_connections_of_their_own() {
    let both = || vec![Hear, say(OK), AwaitClose];
    let server = Server::with(vec![both(), both()]).await;
    let handler = server.handler();
    let (one, other) = tokio::join!(call(&handler, start(&[])), call(&handler, start(&[])));
    assert_eq!((one, other), (done(), done()));
    handler.stop().await;
    eventually("both are closed", || {
        server
            .log()
            .iter()
            .filter(|line| line.ends_with("closed"))
            .count()
            == 2
    })
    .await;
}

#[tokio::test]
async fn no_more_connections_are_kept_than_entries_run_at_once() {
    let server = Server::with(vec![vec![Hear, say(OK), AwaitClose]; 6]).await;
    let handler = server.handler();
    let calls = (0..6).map(|_| call(&handler, start(&[])));
    assert_eq!(futures_util::future::join_all(calls).await, vec![done(); 6]);
    let closed = || {
        let log = server.log();
        log.iter().filter(|line| line.ends_with("closed")).count()
    };
    eventually("two are closed", || closed() == 2).await;
    handler.stop().await;
    eventually("all are closed", || closed() == 6).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let here = handler("127.0.0.1", port);
    assert_eq!(here.probe().await, Ok(()));
    drop(listener);
    assert_eq!(
        here.probe().await,
        Err(UnavailableReason::ConnectionRefused)
    );
    assert_eq!(
        class(&call(&here, start(&[])).await),
        "Unavailable ConnectionRefused"
    );
    let nowhere = handler("no-such-host.invalid", port);
    assert_eq!(nowhere.probe().await, Err(UnavailableReason::DnsFailure));
    assert_eq!(
        class(&call(&nowhere, start(&[])).await),
        "Unavailable DNSFailure"
    );
}

#[tokio::test]
async fn that_nobody_listens_is_logged_once_until_somebody_does() {
    let log = Log::default();
    let _listening = log.listen();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let here = handler("127.0.0.1", address.port());
    let line = format!("nobody listens on {address} (`handler.http.port`)");
    for outage in 1..=2 {
        for _ in 0..5 {
            here.probe().await.unwrap_err();
        }
        assert_eq!(log.count(&line), outage);
        let listener = TcpListener::bind(address).await.unwrap();
        here.probe().await.unwrap();
        drop(listener);
    }
}

#[tokio::test]
async fn a_server_that_never_accepts_is_unavailable_and_no_attempt_is_spent() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    // Until its queue is full, and the kernel drops what comes.
    while let Ok(stream) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        queued.push(stream.unwrap());
        assert!(queued.len() < 64, "the queue has no end");
    }
    let handler = handler("127.0.0.1", address.port());
    let outcome = call(&handler, within(SHORT, &[])).await;
    assert_eq!(class(&outcome), "Unavailable ConnectionRefused");
}

#[tokio::test]
async fn a_large_entry_and_a_large_answer_pass() {
    let value = "v".repeat(900_000);
    let body = format!(r#"{{"outputs":[{{"a":"{value}"}}]}}"#);
    let server = Server::with(vec![vec![Hear, say(&answer("200 OK", "", &body))]]).await;
    let outcome = call(&server.handler(), start(&[("a", &value.repeat(5))])).await;
    let outputs = vec![vec![(b"a".to_vec(), value.into_bytes())]];
    assert_eq!(outcome, Outcome::Done { outputs });
}

/// The example, running on a port of its own.
struct Example {
    process: std::process::Child,
    port: u16,
}

impl Example {
    fn start() -> Self {
        // Beside the directory this test lies in; `cargo test` has built it, unless it was told to build this test alone.
        let here = std::env::current_exe().unwrap();
        let path = here
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("examples/http-handler");
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", "http-handler"])
            .status()
            .unwrap();
        assert!(built.success());
        let mut process = std::process::Command::new(path)
            .args(["--port", "0", "--echo"])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stderr = process.stderr.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
        let port = line.trim().rsplit_once(':').unwrap().1.parse().unwrap();
        Self { process, port }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        self.process.kill().unwrap_or_default();
        self.process.wait().unwrap();
    }
}

#[tokio::test]
async fn the_rust_example_shows_every_class() {
    let example = Example::start();
    let handler = handler("127.0.0.1", example.port);
    for (fields, expected) in [
        (vec![("a", "ä\n\"")], "Done 1"),
        (vec![("fail", "Oops")], "Retry Oops"),
        (vec![("heal", "2")], "Retry NotYet"),
        (vec![("heal", "1")], "Done 1"),
        (vec![("reject", "Wrong")], "Reject Wrong"),
        (vec![("busy", "1")], "Busy Http429"),
        (vec![("sleep", "1")], "Done 1"),
        (vec![("die", "")], "Crashed ConnectionBroken"),
        (vec![], "Unavailable ConnectionRefused"),
    ] {
        assert_eq!(
            class(&call(&handler, start(&fields)).await),
            expected,
            "{fields:?}"
        );
    }
}
