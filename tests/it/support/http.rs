//! An HTTP handler in the test itself: its own thread and runtime, so that it dies with all its connections at once.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::redis::free_port;

/// How long the port stays closed after a death.
const RESTARTS_AFTER: Duration = Duration::from_millis(300);

/// One POST as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: String,
    headers: HeaderMap,
}

impl Request {
    /// A header's text; empty without it.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }
}

#[derive(Clone, Default)]
struct Shared {
    requests: Arc<Mutex<Vec<Request>>>,
    deaths: Arc<Mutex<u32>>,
    die: Arc<Notify>,
}

impl Shared {
    /// Notes a POST: how many there were before it for its key.
    fn note(&self, key: String, headers: HeaderMap) -> usize {
        let mut requests = self.requests.lock().expect("no panic inside");
        let before = requests.iter().filter(|request| request.key == key);
        let before = before.count();
        requests.push(Request { key, headers });
        before
    }
}

/// The server. The field `do` of an entry says what it gets: `die` (the process dies with all it holds and comes back),
/// `status:CODE`, `busy:SECONDS` (429), `sleep:MS`, or 200; lists between `|` are for one POST of the key each.
pub(crate) struct HttpHandler {
    port: u16,
    shared: Shared,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl HttpHandler {
    /// A port at which nobody listens yet.
    pub(crate) fn not_yet() -> Self {
        Self {
            port: free_port(),
            shared: Shared::default(),
            stop: watch::Sender::new(false),
            thread: None,
        }
    }

    pub(crate) fn start() -> Self {
        let mut server = Self::not_yet();
        server.begin();
        server
    }

    pub(crate) fn begin(&mut self) {
        let (port, shared, stop) = (self.port, self.shared.clone(), self.stop.subscribe());
        self.thread = Some(std::thread::spawn(move || live(port, &shared, &stop)));
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared
            .requests
            .lock()
            .expect("no panic inside")
            .clone()
    }

    pub(crate) fn deaths(&self) -> u32 {
        *self.shared.deaths.lock().expect("no panic inside")
    }
}

impl Drop for HttpHandler {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// One life after the other, until the test ends.
fn live(port: u16, shared: &Shared, stop: &watch::Receiver<bool>) {
    while !*stop.borrow() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(one_life(port, shared, stop.clone()));
        // Every connection's task dies with its runtime: this is the death of the process, seen from outside.
        drop(runtime);
        std::thread::sleep(RESTARTS_AFTER);
    }
}

async fn one_life(port: u16, shared: &Shared, mut stop: watch::Receiver<bool>) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .expect("the port is still ours");
    let router = Router::new()
        .route("/handle", post(handle))
        .with_state(shared.clone());
    tokio::select! {
        end = IntoFuture::into_future(axum::serve(listener, router)) => end.expect("the server runs"),
        () = shared.die.notified() => *shared.deaths.lock().expect("no panic inside") += 1,
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn handle(State(shared): State<Shared>, headers: HeaderMap, body: String) -> Response {
    let entry: Value = serde_json::from_str(&body).expect("the body is JSON");
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let before = shared.note(text("key"), headers);
    let lists = text("do");
    let lists: Vec<&str> = lists.split('|').collect();
    for step in lists[before.min(lists.len() - 1)].split(';') {
        match step.split_once(':').unwrap_or((step, "")) {
            ("die", _) => {
                shared.die.notify_one();
                std::future::pending::<()>().await;
            }
            ("sleep", ms) => {
                let wait = Duration::from_millis(ms.parse().expect("milliseconds"));
                tokio::time::sleep(wait).await;
            }
            ("status", code) => {
                let code: StatusCode = code.parse().expect("a status code");
                return (code, "as the entry asked").into_response();
            }
            ("busy", seconds) => {
                let wait = [("retry-after", seconds.to_owned())];
                return (StatusCode::TOO_MANY_REQUESTS, wait, "").into_response();
            }
            _ => {}
        }
    }
    StatusCode::OK.into_response()
}
