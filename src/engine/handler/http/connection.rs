//! One HTTP/1.1 connection to the handler's server.
//!
//! It has no task of its own: it moves only while an exchange waits on it, which saves two hops between tasks per entry, and
//! dropping it closes the socket at once. While idle it is looked at before it is used.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::http::response::Parts;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::engine::handler::wire::MAX_ANSWER_BYTES;
use crate::engine::outcome::UnavailableReason;

/// The limit of a look-up and of a connect: the server is in the same pod, so one that is silent for that long does not accept.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

type Driver = http1::Connection<TokioIo<Ear>, Full<Bytes>>;

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once the connection has ended.
    driver: Option<Driver>,
    /// Whether a byte came since the last request was given to it.
    heard: Arc<AtomicBool>,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: Parts,
    pub(super) body: Bytes,
}

/// Why there is no whole answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// The connection ended.
    Closed {
        /// Some of an answer had come.
        heard: bool,
        /// What was seen.
        text: String,
    },
    /// The answer is longer than we read.
    TooLarge,
    /// What came is not HTTP.
    NotHttp {
        /// What was seen.
        text: String,
    },
}

impl Connection {
    /// Connects within `limit`, and never waits longer than [`CONNECT_TIMEOUT`].
    pub(super) async fn open(
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<Self, UnavailableReason> {
        let limit = limit.min(CONNECT_TIMEOUT);
        let addresses = timeout(limit, lookup_host((host, port))).await;
        let Ok(Ok(addresses)) = addresses else {
            return Err(UnavailableReason::DnsFailure);
        };
        match timeout(limit, connect(addresses)).await {
            Ok(stream) => Self::over(stream?).await,
            Err(_) => Err(UnavailableReason::ConnectionRefused),
        }
    }

    async fn over(stream: TcpStream) -> Result<Self, UnavailableReason> {
        let heard = Arc::new(AtomicBool::new(false));
        let ear = Ear {
            stream,
            heard: Arc::clone(&heard),
        };
        let (sender, driver) = http1::handshake(TokioIo::new(ear))
            .await
            .map_err(|_| UnavailableReason::ConnectionRefused)?;
        Ok(Self {
            sender,
            driver: Some(driver),
            heard,
        })
    }

    /// Whether it is open and can carry a request, as far as one look can tell.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut look = Context::from_waker(std::task::Waker::noop());
        turn(&mut self.driver, &mut look);
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Sends one request and reads the whole answer.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Broken> {
        let Self {
            sender,
            driver,
            heard,
        } = self;
        heard.store(false, Ordering::Relaxed);
        let broken = |error: hyper::Error| broken(&error, heard.load(Ordering::Relaxed));
        let answer = drive(driver, sender.send_request(request))
            .await
            .map_err(broken)?;
        let (head, mut body) = answer.into_parts();
        let body = drive(driver, read(&mut body)).await.map_err(broken)?;
        body.map(|body| Answer { head, body })
            .ok_or(Broken::TooLarge)
    }
}

async fn connect(
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<TcpStream, UnavailableReason> {
    let mut reason = UnavailableReason::DnsFailure;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without it a body in a second packet would wait for the first one's acknowledgement.
                stream
                    .set_nodelay(true)
                    .map_err(|_| UnavailableReason::ConnectionRefused)?;
                return Ok(stream);
            }
            Err(_) => reason = UnavailableReason::ConnectionRefused,
        }
    }
    Err(reason)
}

/// The whole body; `None` if it is longer than we read.
async fn read(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue; // trailers
        };
        if whole.len() + data.len() > MAX_ANSWER_BYTES {
            return Ok(None);
        }
        whole.extend_from_slice(&data);
    }
    Ok(Some(whole.freeze()))
}

/// Waits for `work` while the connection moves.
async fn drive<F: Future>(driver: &mut Option<Driver>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|context| {
        turn(driver, context);
        work.as_mut().poll(context)
    })
    .await
}

/// Moves the connection as far as it goes. How it ends is told to whoever waits for an answer, not here.
fn turn(driver: &mut Option<Driver>, context: &mut Context<'_>) {
    if let Some(running) = driver
        && Pin::new(running).poll(context).is_ready()
    {
        *driver = None;
    }
}

fn broken(error: &hyper::Error, heard: bool) -> Broken {
    let text = match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    if error.is_parse() {
        Broken::NotHttp { text }
    } else {
        Broken::Closed { heard, text }
    }
}

/// A socket that notes whether anything was heard on it.
#[derive(Debug)]
struct Ear {
    stream: TcpStream,
    heard: Arc<AtomicBool>,
}

impl AsyncRead for Ear {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.heard.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ear {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
