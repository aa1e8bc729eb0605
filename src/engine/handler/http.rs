//! The HTTP handler: one POST per entry to a server in the pod.
//!
//! Owns the connections and judges how they break; what is sent and what answers mean is in `wire.rs`. It never follows a
//! redirect and never posts an entry twice, but for one case: a kept connection that breaks before the first byte of an answer
//! was most likely closed by the server before it saw the request, so the entry is posted once more on a fresh one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::uri::InvalidUri;
use hyper::{HeaderMap, Method, Request, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio_util::sync::CancellationToken;

use self::connection::{Answer, Broken, CONNECT_TIMEOUT, Connection};
use self::pool::Pool;
use super::told::Told;
use super::wire::answer::{Terms, of_http, too_large};
use super::wire::request::{StageHeaders, body};
use super::{Handler, Start};
use crate::clock::Clock;
use crate::engine::outcome::{Failure, Outcome, UnavailableReason, timed_out};
use crate::streams::StreamKey;

mod connection;
mod pool;

/// What may not stand in a request's path as it is.
const NOT_IN_A_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Where the server is, and which stage asks.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Its host; `127.0.0.1` in a pod.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The path of the POST.
    pub path: String,
    /// The stage's namespace.
    pub namespace: String,
    /// The stage's name.
    pub stage: String,
    /// The stream the entries come from.
    pub source: StreamKey,
    /// The stage has an output stream.
    pub has_output: bool,
    /// Entries at once, and so the most connections that are kept.
    pub concurrency: usize,
    /// The time.
    pub clock: Clock,
}

/// The path cannot be asked for.
#[derive(Debug, thiserror::Error)]
#[error("`{path}` is not a path to post to")]
pub struct InvalidPath {
    path: String,
    source: InvalidUri,
}

/// A server in the pod that is posted one entry at a time per connection.
#[derive(Debug)]
pub struct HttpHandler {
    host: String,
    port: u16,
    uri: Uri,
    headers: StageHeaders,
    has_output: bool,
    clock: Clock,
    pool: Arc<Pool>,
    /// Why no connection was made.
    absences: Told,
}

impl HttpHandler {
    /// A handler without a connection yet.
    ///
    /// # Errors
    /// [`InvalidPath`] where `settings.path` is none.
    pub fn new(settings: HttpSettings) -> Result<Self, InvalidPath> {
        let HttpSettings {
            host,
            port,
            path,
            namespace,
            stage,
            source,
            ..
        } = settings;
        let uri = match utf8_percent_encode(&path, NOT_IN_A_PATH)
            .to_string()
            .parse()
        {
            Ok(uri) => uri,
            Err(source) => return Err(InvalidPath { path, source }),
        };
        Ok(Self {
            headers: StageHeaders::new(&authority(&host, port), &namespace, &stage, &source),
            host,
            port,
            uri,
            has_output: settings.has_output,
            clock: settings.clock,
            pool: Arc::new(Pool::new(settings.concurrency, settings.clock)),
            absences: Told::default(),
        })
    }

    /// Posts one entry and waits for whatever comes.
    async fn post(&self, start: &Start) -> Outcome {
        let post = Post {
            headers: self.headers.of(start),
            body: body(&start.entry).into(),
        };
        let mut first_break = None;
        if let Some(kept) = self.kept(start) {
            match self.ask(kept, &post, start).await {
                Err(Broken::Closed { heard: false, text }) => first_break = Some(text),
                Err(broken) => return judge(broken),
                Ok(outcome) => return outcome,
            }
        }
        // A connect must fail before the run as a whole does: nothing has run yet, so no attempt may be spent.
        let limit = start.timeout / 2;
        let opened = self.open(limit).await;
        match (opened, first_break) {
            (Ok(fresh), _) => self.ask(fresh, &post, start).await.unwrap_or_else(judge),
            (Err(_), Some(text)) => crashed(text),
            (Err(reason), None) => Outcome::Unavailable { reason },
        }
    }

    /// A new connection. That nobody is there is said once, until somebody is.
    async fn open(&self, limit: Duration) -> Result<Connection, UnavailableReason> {
        let opened = Connection::open(&self.host, self.port, limit).await;
        match &opened {
            Ok(_) => self.absences.forget(),
            Err(reason) => {
                if self.absences.is_news(reason.as_str()) {
                    tracing::warn!(
                        reason = reason.as_str(),
                        "nobody listens on {} (`handler.http.port`): the stage reads nothing until somebody does",
                        authority(&self.host, self.port)
                    );
                }
            }
        }
        opened
    }

    fn kept(&self, start: &Start) -> Option<Connection> {
        if start.fresh { None } else { self.pool.take() }
    }

    /// One exchange; the connection is kept if it can carry another.
    async fn ask(
        &self,
        mut connection: Connection,
        post: &Post,
        start: &Start,
    ) -> Result<Outcome, Broken> {
        let Answer { head, body } = connection.exchange(self.request(post)).await?;
        if !start.fresh {
            self.pool.keep(connection);
        }
        let terms = Terms {
            entry: &start.entry,
            has_output: self.has_output,
        };
        let now = self.clock.wall(self.clock.now());
        Ok(of_http(head.status, &head.headers, &body, terms, now))
    }

    fn request(&self, post: &Post) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(post.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = post.headers.clone();
        request
    }
}

impl Handler for HttpHandler {
    async fn call(&self, start: Start, cancel: CancellationToken) -> Outcome {
        // Whichever wins, the other is dropped, and with it the connection: that is how the server learns of it.
        tokio::select! {
            biased;
            answered = tokio::time::timeout(start.timeout, self.post(&start)) => {
                answered.unwrap_or_else(|_| timed_out(start.timeout))
            }
            () = cancel.cancelled() => Outcome::Cancelled,
        }
    }

    async fn probe(&self) -> Result<(), UnavailableReason> {
        self.open(CONNECT_TIMEOUT).await.map(drop)
    }

    async fn stop(&self) {
        self.pool.close();
    }
}

/// What is posted, kept for a second try.
struct Post {
    headers: HeaderMap,
    body: Bytes,
}

/// `host:port`, with the brackets of an IPv6 address.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// What a broken exchange means for its entry.
fn judge(broken: Broken) -> Outcome {
    match broken {
        Broken::Closed { text, .. } => crashed(text),
        Broken::TooLarge => too_large(),
        Broken::NotHttp { text } => Outcome::Retry {
            error: Failure::new("InvalidAnswer", text),
            after: None,
        },
    }
}

/// Other connections to the same server may have broken with this one: only the engine sees whether it was alone.
fn crashed(text: String) -> Outcome {
    Outcome::Crashed {
        error: Failure::new("ConnectionBroken", text),
        alone: false,
    }
}
