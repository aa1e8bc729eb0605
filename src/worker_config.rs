//! `WorkerConfig`: everything a worker must know, and the only thing operator and engine share beside Redis.
//!
//! It travels as one JSON object. [`WorkerConfig::render`] and [`WorkerConfig::parse`] are inverses; what a worker does not
//! read (replicas, template, ...) is left out, so that changing it restarts nothing. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::stage::{
    DeadLetterPolicy, Delivery, GroupCreation, HandlerSpec, Idempotency, Ledger, Output,
    RetryPolicy, Source, StartFrom,
};
use crate::stage::{Stage, millis};
pub use crate::streams::Credentials;

/// The version this build writes.
const VERSION: u32 = 1;

/// What a worker is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerConfig {
    /// The version of this form; a worker understands its own and the one before.
    pub v: u32,
    /// The stage's namespace.
    pub namespace: String,
    /// The stage's name.
    pub stage: String,
    /// Where Redis is.
    pub redis: RedisConfig,
    /// What to read.
    pub source: Source,
    /// How entries are handed out.
    pub delivery: Delivery,
    /// Which entries are the same work.
    pub idempotency: Idempotency,
    /// Where outputs go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// How errors are tried again.
    pub retry: RetryPolicy,
    /// Where poison goes.
    pub dead_letter: DeadLetterPolicy,
    /// The user's code.
    pub handler: HandlerSpec,
    /// How long running handlers may go on after the order to stop.
    #[serde(with = "millis")]
    pub drain_timeout: Duration,
}

/// How to reach Redis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedisConfig {
    /// `host:port`.
    pub address: String,
    /// The database's number.
    pub database: u32,
    /// User and password.
    pub credentials: Credentials,
    /// The limit of one connect attempt.
    #[serde(with = "millis")]
    pub connect_timeout: Duration,
    /// The limit of one command.
    #[serde(with = "millis")]
    pub command_timeout: Duration,
}

impl WorkerConfig {
    /// The config of a stage's workers; `credentials` says where user and password are.
    pub fn of(stage: &Stage, credentials: Credentials) -> Self {
        Self {
            v: VERSION,
            namespace: stage.namespace.clone(),
            stage: stage.name.clone(),
            redis: RedisConfig {
                address: stage.redis.addresses.first().cloned().unwrap_or_default(),
                database: stage.redis.database,
                credentials,
                connect_timeout: stage.redis.connect_timeout,
                command_timeout: stage.redis.command_timeout,
            },
            source: stage.source.clone(),
            delivery: stage.delivery.clone(),
            idempotency: stage.idempotency.clone(),
            output: stage.output.clone(),
            retry: stage.retry.clone(),
            dead_letter: stage.dead_letter.clone(),
            handler: stage.handler.clone(),
            drain_timeout: stage.drain_timeout,
        }
    }
}
