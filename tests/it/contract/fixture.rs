//! What the suite needs of a server beside its brokers: hands to add, trim, break and look.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use streamstage::streams::{
    Broker, ConsumerName, Credentials, Delivery, EntryId, Fields, GroupCreation, GroupName, Keys,
    Meta, Settings, Settle, Settled, Settlement, StartFrom, StreamKey,
};

/// The source stream, and the keys derived from it and the group `mail`.
pub(crate) const SOURCE: &str = "orders";
pub(crate) const RETRY: &str = "{orders}:mail:retry";
pub(crate) const DEAD: &str = "{orders}:mail:dead";
pub(crate) const DELAYED: &str = "{orders}:mail:delayed";
pub(crate) const OUTPUT: &str = "sent";

/// The two workers, named as their processes would be.
pub(crate) const A: &str = "a.00000001";
pub(crate) const B: &str = "b.00000002";

/// The limit of anything that the suite waits for.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) trait Fixture: Sized + Send + Sync + 'static {
    type Broker: Broker;

    async fn start() -> Self;

    /// A broker of the stage for one consumer; not connected yet.
    fn broker_with(&self, consumer: &str, change: impl FnOnce(&mut Settings)) -> Self::Broker;

    /// Adds an entry under `id` (`*`: the server's choice).
    fn add_as(
        &self,
        stream: &str,
        id: &str,
        fields: &Fields,
    ) -> impl Future<Output = EntryId> + Send;

    /// Puts raw bytes among the delayed, due long ago.
    fn delay_raw(&self, member: &[u8]) -> impl Future<Output = ()> + Send;

    /// What lies in a stream.
    fn entries(&self, stream: &str) -> impl Future<Output = Vec<(EntryId, Fields)>> + Send;

    /// Removes every entry of a stream; ids go on.
    fn trim(&self, stream: &str) -> impl Future<Output = ()> + Send;

    fn destroy_group(&self, stream: &str) -> impl Future<Output = ()> + Send;

    fn delete(&self, key: &str) -> impl Future<Output = ()> + Send;

    /// Puts a value of another type under `key`.
    fn make_string(&self, key: &str) -> impl Future<Output = ()> + Send;

    /// At the memory limit, with nothing to evict; or not any more.
    fn set_full(&self, full: bool) -> impl Future<Output = ()> + Send;

    /// The server stops answering, or goes on.
    fn set_frozen(&self, frozen: bool) -> impl Future<Output = ()> + Send;

    /// Makes a pending entry look as if its owner had been silent for so long.
    fn silence(
        &self,
        stream: &str,
        owner: &str,
        id: EntryId,
        silent_for: Duration,
    ) -> impl Future<Output = ()> + Send;

    /// The delivery count of a pending entry.
    fn delivery_count(&self, stream: &str, id: EntryId)
    -> impl Future<Output = Option<u32>> + Send;

    /// Makes the last report look so old.
    fn forget_reports(&self, silent_for: Duration) -> impl Future<Output = ()> + Send;

    /// Whether the server counts what was ever added, and so can say how much was trimmed (Redis 7.0).
    fn counts_added(&self) -> impl Future<Output = bool> + Send;

    /// The consumers of the group on the source stream.
    fn consumers(&self) -> impl Future<Output = Vec<String>> + Send;

    /// A connected broker with a ledger and an output stream.
    async fn broker(&self, consumer: &str) -> Self::Broker {
        let broker = self.broker_with(consumer, |_| {});
        broker.connect().await.unwrap();
        broker
    }

    async fn add(&self, name: &str, value: &str) -> EntryId {
        self.add_as(SOURCE, "*", &pairs(&[(name, value)])).await
    }

    async fn add_many(&self, count: usize) -> Vec<EntryId> {
        let mut ids = Vec::new();
        for number in 0..count {
            ids.push(self.add("n", &number.to_string()).await);
        }
        ids
    }
}

pub(crate) fn settings(address: &str, consumer: &str) -> Settings {
    Settings {
        address: address.to_owned(),
        database: 0,
        credentials: Credentials::None,
        connect_timeout: Duration::from_secs(5),
        command_timeout: Duration::from_secs(5),
        keys: Keys::derive(StreamKey::new(SOURCE), GroupName::new("mail"), None).unwrap(),
        consumer: ConsumerName::new(consumer),
        group_creation: GroupCreation::IfMissing,
        start_from: StartFrom::Beginning,
        output: Some(StreamKey::new(OUTPUT)),
        output_max_length: 0,
        dead_max_length: 0,
        ledger_window: Some(Duration::from_secs(3600)),
    }
}

pub(crate) fn pairs(pairs: &[(&str, &str)]) -> Fields {
    let owned = |text: &str| text.as_bytes().to_vec();
    pairs
        .iter()
        .map(|(name, value)| (owned(name), owned(value)))
        .collect()
}

/// Reads what is there, which must be exactly `count` entries, without waiting long.
pub(crate) async fn read(broker: &impl Broker, count: usize) -> Vec<Delivery> {
    let block = Duration::from_millis(1);
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        let more = broker.read(count - deliveries.len(), block).await.unwrap();
        assert!(!more.is_empty(), "{} of {count} came", deliveries.len());
        deliveries.extend(more);
    }
    deliveries
}

pub(crate) async fn read_one(broker: &impl Broker) -> Delivery {
    read(broker, 1).await.remove(0)
}

/// Nothing is there to be read.
pub(crate) async fn assert_nothing_to_read(broker: &impl Broker) {
    let read = broker.read(10, Duration::from_millis(1)).await.unwrap();
    assert_eq!(read, []);
}

pub(crate) fn settle(delivery: &Delivery, settlement: Settlement) -> Settle {
    Settle {
        entry: Arc::clone(&delivery.entry),
        settlement,
        unowned: false,
    }
}

/// Settles one entry.
pub(crate) async fn settle_one(
    broker: &impl Broker,
    delivery: &Delivery,
    settlement: Settlement,
) -> Settled {
    let mut settled = broker
        .settle(&[settle(delivery, settlement)])
        .await
        .unwrap();
    assert_eq!(settled.len(), 1);
    settled.remove(0)
}

pub(crate) fn done() -> Settlement {
    commit(&[], None)
}

pub(crate) fn commit(outputs: &[Fields], key: Option<u8>) -> Settlement {
    Settlement::Commit {
        outputs: outputs.to_vec(),
        key: key.map(key_of),
        force: false,
    }
}

pub(crate) fn key_of(byte: u8) -> streamstage::streams::IdempotencyKey {
    streamstage::streams::IdempotencyKey::from_bytes([byte; 16])
}

pub(crate) fn retry_now(delivery: &Delivery) -> Settlement {
    let mut meta = delivery.entry.meta.clone();
    meta.attempts += 1;
    Settlement::RetryAfter {
        delay: Duration::ZERO,
        meta,
    }
}

pub(crate) fn release(meta: Meta) -> Settlement {
    Settlement::Release { meta }
}

pub(crate) fn dead_letter() -> Settlement {
    Settlement::DeadLetter {
        context: vec![("reason".to_owned(), "Rejected".to_owned())],
    }
}

/// Waits until `check` holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let wait = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}
