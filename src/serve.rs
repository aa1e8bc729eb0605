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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus::IntCounter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn endpoints(ready: &Arc<AtomicBool>) -> Endpoints {
        let registry = Registry::new();
        let counter = IntCounter::new("entries_total", "Entries.").unwrap();
        counter.inc_by(7);
        registry.register(Box::new(counter)).unwrap();
        let ready = Arc::clone(ready);
        Endpoints {
            registry,
            live: Arc::new(|| true),
            ready: Arc::new(move || ready.load(Ordering::Relaxed)),
        }
    }

    const ANY_PORT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn probes_and_metrics_answer_as_things_are_now() {
        let ready = Arc::new(AtomicBool::new(false));
        let stop = CancellationToken::new();
        let address = serve(ANY_PORT, endpoints(&ready), stop.clone())
            .await
            .unwrap();
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503 "));
        ready.store(true, Ordering::Relaxed);
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200 "));
        let metrics = get(address, "/metrics").await;
        assert!(metrics.contains("content-type: text/plain"), "{metrics}");
        assert!(metrics.ends_with("entries_total 7\n"), "{metrics}");
        stop.cancel();
    }

    #[tokio::test]
    async fn an_address_in_use_is_a_clear_error() {
        let taken = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = serve(
            address,
            endpoints(&Arc::default()),
            CancellationToken::new(),
        )
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), format!("cannot listen on {address}"));
    }
}
