//! The engine: one entry's life, in a worker that is one consumer of the group.
//!
//! ```text
//!  XREADGROUP ──┐                       ┌─ Done ──────── commit (outputs, ledger, ack)
//!  reclaim ─────┼─> guard ─> lease ─> handler ─ Retry ── attempts < max ? retry after backoff : dead-letter
//!  P:retry ─────┘     │                 ├─ Reject ────── dead-letter
//!                     │                 ├─ Crashed ───── charged, or suspect; solitary run; then dead-letter
//!                     └─ over limit:    ├─ Busy, Unavailable ─ wait, no attempt spent
//!                        dead-letter    └─ lease lost ── cancel, discard, settle nothing
//! ```
//!
//! Decisions are in files without `async`: [`settle`] (one entry), [`core`] (a worker), [`breaker`], [`session`]. [`worker`] carries
//! them out. Read in this order: `worker.rs`, `streams/mod.rs`, `handler/`, `settle.rs`, `streams/redis/`.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;

use crate::clock::Clock;
use crate::metrics::WorkerMetrics;
use crate::shutdown::Shutdown;
use crate::streams::{Broker, ConsumerName, Keys, NoPrefix, Settings};
use crate::worker_config::{Ledger, WorkerConfig};

pub mod breaker;
pub mod core;
#[cfg(test)]
pub(crate) mod fixture;
pub mod handler;
pub mod key;
pub mod letter_context;
pub mod observer;
pub mod outcome;
pub mod report;
pub mod session;
pub mod settle;
pub mod shown;
pub mod worker;

use core::{Birth, Core, SettledKind};
use handler::Handler;
use observer::{Health, Observer};
use report::Tallies;

/// Who a worker is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its consumer name, unique for this start.
    pub consumer: ConsumerName,
    /// The pod, or the host.
    pub pod: String,
    /// The handler's image, where known.
    pub image: Option<String>,
}

/// What a worker needs of the process it runs in.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The process's clock.
    pub clock: Clock,
    /// Where metrics go.
    pub registry: Registry,
    /// What probes ask.
    pub health: Arc<Health>,
    /// The order to stop.
    pub shutdown: Shutdown,
}

/// Why a worker could not begin, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Metrics of this name are registered already.
    #[error("metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
    /// A part of it panicked.
    #[error(transparent)]
    Broken(#[from] worker::Broken),
}

/// What this process did, entry by entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Done and committed.
    pub done: u64,
    /// Known to the ledger: acknowledged only.
    pub skipped: u64,
    /// Put off for another try.
    pub retried: u64,
    /// Among the dead letters now.
    pub dead_lettered: u64,
    /// Handed back.
    pub released: u64,
    /// Found trimmed before they were done.
    pub lost: u64,
}

impl From<&Tallies> for Summary {
    fn from(tallies: &Tallies) -> Self {
        Self {
            done: tallies.settled_as(SettledKind::Done),
            skipped: tallies.settled_as(SettledKind::Skipped),
            retried: tallies.settled_as(SettledKind::Retried),
            dead_lettered: tallies.settled_as(SettledKind::DeadLettered),
            released: tallies.settled_as(SettledKind::Released),
            lost: tallies.lost,
        }
    }
}

/// What a broker must know of this stage and consumer.
///
/// # Errors
/// The stream's name has no room for derived keys; a parsed stage never has such a name.
pub fn settings(config: &WorkerConfig, consumer: ConsumerName) -> Result<Settings, NoPrefix> {
    let source = &config.source;
    let dead = Some(config.dead_letter.stream.clone());
    let output = config.output.as_ref();
    Ok(Settings {
        address: config.redis.address.clone(),
        database: config.redis.database,
        credentials: config.redis.credentials.clone(),
        connect_timeout: core::connect_timeout(config),
        command_timeout: config.redis.command_timeout,
        keys: Keys::derive(source.stream.clone(), source.group.clone(), dead)?,
        consumer,
        group_creation: source.group_creation,
        start_from: source.start_from,
        output: output.map(|output| output.stream.clone()),
        output_max_length: output.map_or(0, |output| output.max_length),
        dead_max_length: config.dead_letter.max_length,
        ledger_window: (config.idempotency.ledger == Ledger::AtCommit)
            .then_some(config.idempotency.window),
    })
}

/// Runs one worker of a stage until the order to stop was carried out.
///
/// # Guarantees
/// At least once: an entry is acknowledged only after its settlement took effect. Errors of Redis and of the handler end
/// nothing: they are waited out, and shown in logs, metrics and the report.
///
/// # Errors
/// [`Failed`], where the engine itself is at fault.
pub async fn run<B: Broker, H: Handler>(
    config: WorkerConfig,
    broker: Arc<B>,
    handler: H,
    identity: &Identity,
    around: Surroundings,
) -> Result<Summary, Failed> {
    let Surroundings {
        clock,
        registry,
        health,
        shutdown,
    } = around;
    let metrics = WorkerMetrics::register(&registry, &config.namespace, &config.stage)?;
    let observer = Observer::new(metrics, health, config.delivery.concurrency);
    let writer = letter_context::Writer::new(
        &config,
        &identity.consumer,
        &identity.pod,
        identity.image.clone(),
    );
    let epoch_ms = u64::try_from(clock.wall(Duration::ZERO).as_millisecond()).unwrap_or(0);
    let birth = Birth {
        seed: fastrand::u64(..),
        now: clock.now(),
        epoch_ms,
    };
    let config = Arc::new(config);
    let core = Core::new(Arc::clone(&config), writer, birth);
    let worker = worker::Worker::new((broker, Arc::new(handler)), config, core, clock, observer);
    let core = worker.run(&shutdown).await?;
    Ok(Summary::from(core.tallies()))
}
