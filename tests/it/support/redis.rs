//! A redis-server of the test's own: on a free port, in its own directory, stopped and started as the test likes.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::Db;
use super::eventually;
use super::process::Process;
use super::scratch::{Scratch, tail};

/// A server that loads nothing answers in milliseconds; the rest is room for a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Redis {
    port: u16,
    directory: Scratch,
    options: Vec<String>,
    server: Option<Process>,
}

impl Redis {
    /// A server without persistence.
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// A server with these options, as on the command line.
    pub(crate) async fn with(options: &[&str]) -> Self {
        let mut redis = Self::not_yet(options);
        redis.begin().await;
        redis
    }

    /// An address at which nobody listens yet.
    pub(crate) fn not_yet(options: &[&str]) -> Self {
        Self {
            port: free_port(),
            directory: Scratch::new("redis"),
            options: options.iter().map(ToString::to_string).collect(),
            server: None,
        }
    }

    /// Starts the server, at the same address and in the same directory each time.
    pub(crate) async fn begin(&mut self) {
        let command = &mut Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(self.directory.path())
            .args(&self.options)
            .stdin(Stdio::null());
        let log = self.directory.file("log");
        self.server = Some(Process::start(
            command,
            &log,
            &self.directory.file("errors"),
        ));
        let db = self.db();
        eventually("the test's Redis answers", STARTS_WITHIN, async || {
            let gone = self.server.as_mut().and_then(Process::ended);
            assert!(gone.is_none(), "redis-server: {}", tail(&log, 5));
            db.try_call::<String>(&["PING"]).await.ok()
        })
        .await;
    }

    /// Kills the server as a crash would, and waits for its end.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().await;
        }
    }

    /// The server stops answering; connections stay open.
    pub(crate) fn freeze(&self) {
        self.running().signal(Signal::STOP);
    }

    /// The server goes on.
    pub(crate) fn thaw(&self) {
        self.running().signal(Signal::CONT);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn db(&self) -> Db {
        Db::at(&self.url())
    }

    fn running(&self) -> &Process {
        self.server.as_ref().expect("the server was started")
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("its address").port()
}
