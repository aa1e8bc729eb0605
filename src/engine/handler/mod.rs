//! The user's code, as the engine calls it: one [`Start`] in, one [`Outcome`] out.
//!
//! [`http::HttpHandler`] posts to a server in the pod, [`exec::ExecHandler`] writes a line to a child; both speak the wires of
//! `wire.rs`. They never touch Redis and never decide what becomes of an entry. Read next: `engine/settle.rs`.

use std::future::Future;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::outcome::{Failure, Outcome, UnavailableReason};

pub mod exec;
pub mod http;
pub mod start;
mod told;
pub(crate) mod wire;

pub use start::Start;

/// The user's code.
///
/// # Guarantees asked of an implementation
/// - `call` answers within `start.timeout` (with `Retry` of type `Timeout`), or soon after `cancel` (with `Cancelled`), and then no
///   longer runs anything for that entry as far as it can help it.
/// - It never panics on what the user's code sends.
///
/// # Cancel safety
/// The engine never drops a `call`; it fires `cancel` and awaits the answer.
pub trait Handler: Send + Sync + 'static {
    /// Runs one entry.
    fn call(&self, start: Start, cancel: CancellationToken)
    -> impl Future<Output = Outcome> + Send;

    /// Whether the handler can be reached (a TCP connect, a spawn); never costs an entry.
    fn probe(&self) -> impl Future<Output = Result<(), UnavailableReason>> + Send;

    /// Ends what the handler keeps running (idle children, connections).
    fn stop(&self) -> impl Future<Output = ()> + Send;
}

/// Awaits a call; a panic in it is a crash of the entry, with its culprit known.
pub(super) async fn caught(call: impl Future<Output = Outcome> + Send) -> Outcome {
    std::panic::AssertUnwindSafe(call)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Outcome::Crashed {
            error: Failure::new("Panic", "the handler panicked"),
            alone: true,
        })
}
