//! The suite's hands on a real server.

use std::time::Duration;

use redis::Value;
use streamstage::streams::redis::RedisBroker;
use streamstage::streams::{EntryId, Fields, Settings};

use super::fixture::{Fixture, settings};
use super::server::Server;

pub(crate) struct RedisFixture {
    pub(crate) server: Server,
}

impl Fixture for RedisFixture {
    type Broker = RedisBroker;

    async fn start() -> Self {
        Self {
            server: Server::start().await,
        }
    }

    fn broker_with(&self, consumer: &str, change: impl FnOnce(&mut Settings)) -> RedisBroker {
        let mut settings = settings(&self.server.address(), consumer);
        change(&mut settings);
        RedisBroker::new(settings)
    }

    async fn add_as(&self, stream: &str, id: &str, fields: &Fields) -> EntryId {
        let mut add = redis::cmd("XADD");
        add.arg(stream).arg(id);
        for (name, value) in fields {
            add.arg(name.as_slice()).arg(value.as_slice());
        }
        self.server.query::<String>(&add).await.parse().unwrap()
    }

    async fn delay_raw(&self, member: &[u8]) {
        let mut add = redis::cmd("ZADD");
        add.arg("{orders}:mail:delayed").arg(1).arg(member);
        self.server.query::<Value>(&add).await;
    }

    async fn entries(&self, stream: &str) -> Vec<(EntryId, Fields)> {
        type Flat = Vec<(String, Vec<Vec<u8>>)>;
        let flat: Flat = self
            .server
            .query(redis::cmd("XRANGE").arg(stream).arg("-").arg("+"))
            .await;
        let pairs = |values: Vec<Vec<u8>>| {
            let pairs = values
                .chunks(2)
                .map(|pair| (pair[0].clone(), pair[1].clone()));
            pairs.collect()
        };
        let entry = |(id, values): (String, Vec<Vec<u8>>)| (id.parse().unwrap(), pairs(values));
        flat.into_iter().map(entry).collect()
    }

    async fn trim(&self, stream: &str) {
        self.server.run(&format!("XTRIM {stream} MAXLEN 0")).await;
    }

    async fn destroy_group(&self, stream: &str) {
        self.server
            .run(&format!("XGROUP DESTROY {stream} mail"))
            .await;
    }

    async fn delete(&self, key: &str) {
        self.server.run(&format!("DEL {key}")).await;
    }

    async fn make_string(&self, key: &str) {
        self.server.run(&format!("SET {key} text")).await;
    }

    async fn set_full(&self, full: bool) {
        let limit = i32::from(full);
        self.server
            .run(&format!("CONFIG SET maxmemory {limit}"))
            .await;
    }

    async fn silence(&self, stream: &str, owner: &str, id: EntryId, silent_for: Duration) {
        let idle = silent_for.as_millis();
        let claim = format!("XCLAIM {stream} mail {owner} 0 {id} IDLE {idle} JUSTID");
        self.server.run(&claim).await;
    }

    async fn delivery_count(&self, stream: &str, id: EntryId) -> Option<u32> {
        type Rows = Vec<(String, String, u64, u32)>;
        let mut pending = redis::cmd("XPENDING");
        pending
            .arg(stream)
            .arg("mail")
            .arg(id.to_string())
            .arg(id.to_string())
            .arg(1);
        let rows: Rows = self.server.query(&pending).await;
        rows.first().map(|row| row.3)
    }

    async fn forget_reports(&self, silent_for: Duration) {
        let seen: Option<u64> = self
            .server
            .query(redis::cmd("HGET").arg("{orders}:mail:cursor").arg("seen"))
            .await;
        let seen = seen.unwrap() - u64::try_from(silent_for.as_millis()).unwrap();
        self.server
            .run(&format!("HSET {{orders}}:mail:cursor seen {seen}"))
            .await;
    }

    async fn consumers(&self) -> Vec<String> {
        let rows: Vec<Vec<Value>> = self
            .server
            .query(
                redis::cmd("XINFO")
                    .arg("CONSUMERS")
                    .arg("orders")
                    .arg("mail"),
            )
            .await;
        let name = |row: Vec<Value>| redis::from_redis_value(row[1].clone()).unwrap();
        rows.into_iter().map(name).collect()
    }
}
