//! `/livez`, `/readyz` and `/metrics`, for every role of the program.
//!
//! It asks two functions and a registry; it decides nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A question that is answered at every probe.
pub type Probe = Arc<dyn Fn() -> bool + Send + Sync>;

/// What is served.
#[derive(Clone)]
pub struct Endpoints {
    /// Behind `/metrics`.
    pub registry: Registry,
    /// Behind `/livez`: `false` asks for a restart of this process.
    pub live: Probe,
    /// Behind `/readyz`.
    pub ready: Probe,
}

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct CannotListen {
    /// The address.
    address: SocketAddr,
    /// Why.
    source: io::Error,
}

/// Serves `endpoints` on `address` until `stop`, and returns the address in fact bound (port 0 picks a free one).
pub async fn serve(
    address: SocketAddr,
    endpoints: Endpoints,
    stop: CancellationToken,
) -> Result<SocketAddr, CannotListen> {
    let failed = |source| CannotListen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(endpoints);
    tokio::spawn(async move {
        let served = axum::serve(listener, router)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::warn!(%error, "the admin server has ended");
        }
    });
    Ok(bound)
}

async fn livez(State(endpoints): State<Endpoints>) -> Response {
    answer((endpoints.live)())
}

async fn readyz(State(endpoints): State<Endpoints>) -> Response {
    answer((endpoints.ready)())
}

fn answer(fine: bool) -> Response {
    if fine {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ok\n").into_response()
    }
}

async fn metrics(State(endpoints): State<Endpoints>) -> Response {
    let encoder = TextEncoder::new();
    let mut body = Vec::new();
    match encoder.encode(&endpoints.registry.gather(), &mut body) {
        Ok(()) => {
            let form = encoder.format_type().to_owned();
            ([(header::CONTENT_TYPE, form)], body).into_response()
        }
        Err(error) => {
            tracing::warn!(%error, "metrics cannot be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
