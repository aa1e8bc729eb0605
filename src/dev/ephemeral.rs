//! A redis-server for one local run: on a free port of the loopback interface, in memory only, gone with the run.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::clock::Clock;

/// How long a new server may take to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// How often a new server is asked.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// What a shell says of a program that it does not find.
const NOT_FOUND: i32 = 127;

/// Runs the server until it ends, or until nobody holds the other end of the standard input: that is so when we end, in
/// whichever way.
const LEASH: &str = r#"
exec 3<&0
redis-server "$@" 3<&- </dev/null &
server=$!
{ read -r _; kill -KILL "$server"; } <&3 &
leash=$!
exec 3<&-
wait "$server"
status=$?
kill "$leash"
wait
exit "$status"
"#;

/// A server that lives as long as this value.
#[derive(Debug)]
pub(super) struct EphemeralServer {
    address: SocketAddr,
    process: Child,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoServer {
    #[error(
        "no redis-server on the PATH: install Debian's package redis-server, or name a server with --redis"
    )]
    NotInstalled,
    #[error("cannot start redis-server through sh")]
    CannotStart(#[from] io::Error),
    #[error("the redis-server that was started has ended: {0}")]
    Ended(ExitStatus),
    #[error("the redis-server that was started ({0}) does not answer")]
    Silent(SocketAddr),
}

impl EphemeralServer {
    pub(super) async fn start(clock: Clock) -> Result<Self, NoServer> {
        // The port is free at this moment. If another process takes it first, the server ends at once.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut process = Command::new("sh")
            .args(["-c", LEASH, "sh"])
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args([
                "--save",
                "",
                "--appendonly",
                "no",
                "--maxmemory-policy",
                "noeviction",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C is for the worker, which still needs its server to drain.
            .process_group(0)
            .spawn()?;
        let deadline = clock.now() + STARTS_WITHIN;
        while TcpStream::connect(address).await.is_err() {
            if clock.now() >= deadline {
                return Err(NoServer::Silent(address));
            }
            still_runs(&mut process)?;
            clock.until(clock.now() + ASKED_EVERY).await;
        }
        still_runs(&mut process)?;
        Ok(Self { address, process })
    }

    /// Ends the server and waits for that; dropping it ends it too.
    pub(super) async fn end(mut self) {
        // `wait` lets go of our end of its standard input first.
        if let Err(error) = self.process.wait().await {
            tracing::debug!(%error, "the end of redis-server cannot be seen");
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn still_runs(process: &mut Child) -> Result<(), NoServer> {
    match process.try_wait()? {
        None => Ok(()),
        Some(status) if status.code() == Some(NOT_FOUND) => Err(NoServer::NotInstalled),
        Some(status) => Err(NoServer::Ended(status)),
    }
}
