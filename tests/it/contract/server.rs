//! The suite's server: the harness's, and a connection to it that stays the administrator's whatever a test forbids.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};

use crate::support::Redis;

/// A running server.
pub(crate) struct Server {
    redis: Redis,
    admin: MultiplexedConnection,
}

impl Server {
    /// A server without persistence.
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// A server with these options, as on the command line.
    pub(crate) async fn with(options: &[&str]) -> Self {
        let redis = Redis::with(options).await;
        let admin = redis.db().connection().await;
        Self {
            redis,
            admin: admin.expect("the administrator's connection"),
        }
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.redis.port())
    }

    /// The server stops answering; connections stay open.
    pub(crate) fn freeze(&self) {
        self.redis.freeze();
    }

    /// The server goes on.
    pub(crate) fn thaw(&self) {
        self.redis.thaw();
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
