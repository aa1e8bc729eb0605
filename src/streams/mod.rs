//! The words of a stage on Redis, and what a broker guarantees.
//!
//! [`Broker`] is the engine's whole view of a server. Two implementations keep it: [`redis::RedisBroker`], and
//! [`memory::MemoryBroker`] for tests and simulations; `tests/it/contract.rs` runs one suite against both.
//! The data model is in `redis/mod.rs`. Read next on an entry's path: `engine/handler/`.

use std::future::Future;
use std::time::Duration;

pub mod entry;
pub mod letter;
pub mod memory;
pub mod names;
mod recovery;
pub mod redis;
pub mod settings;
pub mod settlement;

pub use entry::{Delivery, Entry, EntryId, Fields, Lane, Meta, Place};
pub use letter::Letter;
pub use names::{ConsumerName, GroupName, Keys, NoPrefix, StreamKey};
pub use settings::{Credentials, GroupCreation, Settings, StartFrom};
pub use settlement::{
    Backlog, IdempotencyKey, LeaseState, Promoted, ReclaimCursor, Reclaimed, Refusal,
    RefusalReason, Reported, SetCount, Settle, Settled, Settlement,
};

/// The most entries of one call; larger batches are split by the broker.
pub const MAX_BATCH: usize = 64;

/// The most names and values of one call, and so of an entry that can be delayed or released: Redis's Lua hands them
/// over on a stack that ends at 8,000.
pub const MAX_VALUES: usize = 7000;

/// Why a session with a server ended, or could not begin.
///
/// Texts name what failed and never a secret. What to do next is decided in `engine/session.rs`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The connection broke, or a command was not answered in time.
    #[error("the connection to {address} was lost: {detail}")]
    Disconnected {
        /// The server.
        address: String,
        /// What the client saw.
        detail: String,
    },
    /// No connection could be made.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The server.
        address: String,
        /// Why.
        reason: Unreachable,
    },
    /// The server refused the user or the password, or wants one.
    #[error("{address} {}", if *given { "refused the user or the password" } else { "wants a password, and none was given" })]
    AuthenticationFailed {
        /// The server.
        address: String,
        /// Whether there was a password to refuse.
        given: bool,
    },
    /// A file of the credentials cannot be read.
    #[error("cannot read the credentials in {path}: {reason}")]
    CredentialsUnreadable {
        /// The file.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// The group or its stream is not there (any more).
    #[error(
        "group {group} is missing on {stream}: create it, or set `source.groupCreation` to IfMissing"
    )]
    GroupMissing {
        /// The stream.
        stream: String,
        /// The group.
        group: String,
    },
    /// The server is a replica.
    #[error("the server is a read-only replica")]
    ReadOnly,
    /// The user may not run a command or touch a key.
    #[error("permission denied: {what}; the README lists the ACL that a worker needs")]
    Denied {
        /// The command or key, as far as the server says.
        what: String,
    },
    /// A key holds another type.
    #[error("key {key} holds no {expected}: rename or delete it, or name another")]
    WrongType {
        /// The key.
        key: String,
        /// The type it should have.
        expected: &'static str,
    },
    /// The server is loading its data, is busy with a script, takes no more clients, or its master is down.
    #[error("the server is not ready: {code}")]
    Loading {
        /// The server's error code.
        code: String,
    },
    /// The server is at `maxmemory` and evicts nothing.
    #[error("the server is out of memory")]
    Full,
    /// A reply has a shape that this build does not know, or an error it has no name for.
    #[error("{}{detail}", if command.is_empty() { String::new() } else { format!("unexpected reply to {command}: ") })]
    Protocol {
        /// The command; empty where the detail says everything.
        command: &'static str,
        /// What is odd about it.
        detail: String,
    },
}

/// Why no connection could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// Nobody listens there.
    #[error("connection refused")]
    ConnectionRefused,
    /// The name does not resolve.
    #[error("the name does not resolve")]
    DnsFailure,
    /// No answer in time.
    #[error("timed out")]
    Timeout,
    /// Anything else of the network.
    #[error("network error")]
    Network,
}

/// What a broker learned when it connected.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Opened {
    /// `redis 7.0.15`, `valkey 8.0.1`.
    pub server: String,
    /// What a person should know about this server, in full sentences (eviction, persistence).
    pub warnings: Vec<String>,
    /// `maxmemory` is set and the policy may evict what a stage lives from; the policy's name.
    pub unsafe_eviction: Option<String>,
    /// The group was created now, at this position: on a stream seen for the first time, or again after it vanished.
    pub group_created_at: Option<EntryId>,
}

/// The engine's view of a server: one stage, one consumer.
///
/// # Guarantees
/// - An entry of `S` or `P:retry` is acknowledged only together with, and after, whatever its [`Settlement`] adds.
/// - Of two consumers, at most one settles an entry: every settlement but an `unowned` one checks that the entry is
///   pending under this consumer, in the same atomic step.
/// - Refused adds change nothing and are returned per entry.
///
/// # Errors
/// Every method returns the [`Error`] that ended the session; calls may then be repeated after [`Broker::connect`].
/// Repeating a settlement whose reply was lost is safe: the second one answers [`Settled::NotOurs`]. An `unowned` one
/// has nothing to tell it by, so what it adds is added at least once.
///
/// # Cancel safety
/// None of the futures may be dropped before it is ready: an abandoned read leaves entries with nobody. A parked
/// [`Broker::read`] is ended by [`Broker::unblock`].
pub trait Broker: Send + Sync + 'static {
    /// Opens the connections, checks keys and server, and creates what is missing of the groups.
    fn connect(&self) -> impl Future<Output = Result<Opened, Error>> + Send;

    /// Reads up to `count` new entries of `P:retry`, without waiting.
    fn read_retry(&self, count: usize)
    -> impl Future<Output = Result<Vec<Delivery>, Error>> + Send;

    /// Reads up to `count` new entries of each stream, waiting at most `block` for the first.
    fn read(
        &self,
        count: usize,
        block: Duration,
    ) -> impl Future<Output = Result<Vec<Delivery>, Error>> + Send;

    /// Ends a parked [`Broker::read`] at once; nothing happens if none is parked.
    fn unblock(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Which of these keys the ledger knows, in order.
    fn known(
        &self,
        keys: &[IdempotencyKey],
    ) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    /// Writes delivery counts of entries held: a start is charged, or a charge is taken back.
    ///
    /// `false` for those not pending under this consumer any more. Works on a full server.
    fn set_counts(
        &self,
        counts: &[SetCount],
    ) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    /// Settles entries; one [`Settled`] each, in order.
    ///
    /// An error only where nothing was answered: what was is never hidden, and the rest is [`Settled::Unanswered`].
    fn settle(&self, batch: &[Settle]) -> impl Future<Output = Result<Vec<Settled>, Error>> + Send;

    /// Renews the lease on every entry named, in order.
    ///
    /// [`LeaseState::Undelivered`] entries have no lease to renew: the group was re-created before them.
    fn renew(
        &self,
        places: &[Place],
    ) -> impl Future<Output = Result<Vec<LeaseState>, Error>> + Send;

    /// Claims up to `limit` entries whose consumer was silent for `idle`, from one page of 100 per stream.
    ///
    /// Claiming charges nothing. Before the end of a grace nothing is claimed.
    fn reclaim(
        &self,
        cursor: &ReclaimCursor,
        idle: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Reclaimed, Error>> + Send;

    /// Moves due entries from `P:delayed` to `P:retry`.
    fn promote(&self) -> impl Future<Output = Result<Promoted, Error>> + Send;

    /// Writes this consumer's report (`body` is a JSON object) and the group's durable position.
    ///
    /// `every` is the interval between two reports. When an outage has just ended (nobody of the stage had reported
    /// for longer than two intervals and half of `visibility`) nothing is reclaimed for one `visibility`.
    fn report(
        &self,
        body: &str,
        every: Duration,
        visibility: Duration,
    ) -> impl Future<Output = Result<Reported, Error>> + Send;

    /// Deletes consumers with nothing pending: this one (`own`), or those of ours whose report is missing or older
    /// than `older_than`. Returns how many.
    fn retire(
        &self,
        own: bool,
        older_than: Duration,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// What waits and what is held.
    fn backlog(&self) -> impl Future<Output = Result<Backlog, Error>> + Send;
}
