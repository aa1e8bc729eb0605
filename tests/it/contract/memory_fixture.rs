//! The suite's hands on a server in memory.

use std::time::Duration;

use streamstage::clock::Clock;
use streamstage::streams::memory::{MemoryBroker, MemoryServer};
use streamstage::streams::{EntryId, Fields, GroupName, Settings};

use super::fixture::{DELAYED, Fixture, SOURCE, settings};

/// When the server's clock starts, since the epoch.
const START: Duration = Duration::from_secs(1_700_000_000);

pub(crate) struct MemoryFixture {
    server: MemoryServer,
    group: GroupName,
}

impl Fixture for MemoryFixture {
    type Broker = MemoryBroker;

    async fn start() -> Self {
        let clock = Clock::start();
        Self {
            server: MemoryServer::new(move || START + clock.now()),
            group: GroupName::new("mail"),
        }
    }

    fn broker_with(&self, consumer: &str, change: impl FnOnce(&mut Settings)) -> MemoryBroker {
        let mut settings = settings("memory:0", consumer);
        change(&mut settings);
        self.server.broker(settings)
    }

    async fn add_as(&self, stream: &str, id: &str, fields: &Fields) -> EntryId {
        self.server.add_as(stream, id.parse().ok(), fields.clone())
    }

    async fn delay_raw(&self, member: &[u8]) {
        self.server.delay_raw(DELAYED, member);
    }

    async fn entries(&self, stream: &str) -> Vec<(EntryId, Fields)> {
        self.server.entries(stream)
    }

    async fn trim(&self, stream: &str) {
        self.server.trim(stream);
    }

    async fn destroy_group(&self, stream: &str) {
        self.server.destroy_group(stream, &self.group);
    }

    async fn delete(&self, key: &str) {
        self.server.delete(key);
    }

    async fn make_string(&self, key: &str) {
        self.server.make_text(key);
    }

    async fn set_full(&self, full: bool) {
        self.server.set_full(full);
    }

    async fn silence(&self, stream: &str, _owner: &str, id: EntryId, silent_for: Duration) {
        self.server.silence(stream, &self.group, id, silent_for);
    }

    async fn delivery_count(&self, stream: &str, id: EntryId) -> Option<u32> {
        self.server.delivery_count(stream, &self.group, id)
    }

    async fn forget_reports(&self, silent_for: Duration) {
        self.server
            .forget_reports("{orders}:mail:cursor", silent_for);
    }

    async fn consumers(&self) -> Vec<String> {
        self.server.consumers(SOURCE, &self.group)
    }
}
