//! A redis-server of a test's own, on a free loopback port, stopped when the test ends.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};

/// How long a server may take to answer its first PING.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Server {
    process: Child,
    port: u16,
    admin: MultiplexedConnection,
}

impl Server {
    /// Starts a server without persistence and waits until it answers.
    pub(crate) async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(std::env::temp_dir())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let admin = tokio::time::timeout(START_LIMIT, first_connection(port))
            .await
            .expect("redis-server answers in time");
        Self {
            process,
            port,
            admin,
        }
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs a command as the administrator.
    pub(crate) async fn query<T: FromRedisValue>(&self, cmd: &Cmd) -> T {
        cmd.query_async(&mut self.admin.clone())
            .await
            .expect("the administrator's command succeeds")
    }

    /// Runs a command of words as the administrator.
    pub(crate) async fn run(&self, words: &str) -> redis::Value {
        let mut words = words.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap_or_default());
        for word in words {
            cmd.arg(word);
        }
        self.query(&cmd).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

async fn first_connection(port: u16) -> MultiplexedConnection {
    let client = redis::Client::open(("127.0.0.1", port)).expect("an address");
    loop {
        match client.get_multiplexed_async_connection().await {
            Ok(connection) => return connection,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
