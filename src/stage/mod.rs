//! `Stage`: a spec after defaults and checks. Below this line nobody reads the raw spec.
//!
//! [`Stage::parse`] is the truth about what a valid spec is; the schema and the CEL rules in `api/v1alpha1/` are its
//! fast twin at `kubectl apply`, in the same words. Pure: no clock, no client. Read next: `parse.rs`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::v1alpha1::StreamStage;
use crate::streams::{GroupName, Keys, StreamKey};

mod checks;
mod parse;
mod pod;

pub use crate::api::Violation;
pub use crate::streams::{GroupCreation, StartFrom};

/// A valid stage: only [`Stage::parse`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`; `default` where none is given.
    pub namespace: String,
    /// Where its Redis is.
    pub redis: RedisTarget,
    /// What it reads.
    pub source: Source,
    /// How entries are handed out.
    pub delivery: Delivery,
    /// Which entries are the same work.
    pub idempotency: Idempotency,
    /// Where outputs go.
    pub output: Option<Output>,
    /// How errors are tried again.
    pub retry: RetryPolicy,
    /// Where poison goes.
    pub dead_letter: DeadLetterPolicy,
    /// The user's code.
    pub handler: HandlerSpec,
    /// How long running handlers may go on after the order to stop.
    pub drain_timeout: Duration,
    /// Workers wanted.
    pub replicas: u32,
    /// Scaled to zero by order.
    pub suspend: bool,
    /// The engine's image, if pinned.
    pub engine_image: Option<String>,
    /// The engine container's resources, as given.
    pub engine_resources: serde_json::Value,
    /// The pod template, as given.
    pub template: serde_json::Value,
    /// Every key of the stage.
    keys: Keys,
}

impl Stage {
    /// The stage that a StreamStage describes, with every default settled.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its field, the value, and the rule.
    pub fn parse(stage: &StreamStage) -> Result<Self, Vec<Violation>> {
        parse::parse(stage)
    }

    /// Every key of the stage, as its source, its group and its dead-letter stream name them.
    pub fn keys(&self) -> Keys {
        self.keys.clone()
    }
}

/// Where a stage's Redis is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedisTarget {
    /// `host:port`; exactly one while the topology is Standalone.
    pub addresses: Vec<String>,
    /// The database's number.
    pub database: u32,
    /// The secrets with user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// The limit of one connect attempt.
    #[serde(with = "millis")]
    pub connect_timeout: Duration,
    /// The limit of one command (beyond BLOCK for a blocking read).
    #[serde(with = "millis")]
    pub command_timeout: Duration,
}

/// References to the secrets with user and password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Auth {
    /// The user's name; none = the default user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<SecretKey>,
    /// The password.
    pub password: SecretKey,
}

/// A key of a Secret in the stage's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKey {
    /// The Secret's name.
    pub name: String,
    /// The key in it.
    pub key: String,
}

/// What a stage reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// The stream.
    pub stream: StreamKey,
    /// The consumer group.
    pub group: GroupName,
    /// Whether we may create the group.
    pub group_creation: GroupCreation,
    /// Where a group that we create starts.
    pub start_from: StartFrom,
}

/// How entries are handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delivery {
    /// How long a worker may be silent before its entries are reclaimed.
    #[serde(with = "millis")]
    pub visibility_timeout: Duration,
    /// How long one run of the handler may take.
    #[serde(with = "millis")]
    pub handler_timeout: Duration,
    /// How often a worker looks for entries of silent ones.
    #[serde(with = "millis")]
    pub reclaim_interval: Duration,
    /// Charged starts that may end in nothing.
    pub max_deliveries: u32,
    /// Handlers at once in one worker.
    pub concurrency: usize,
    /// How long a read waits on an empty stream.
    #[serde(with = "millis")]
    pub block_timeout: Duration,
}

/// Which entries are the same work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Idempotency {
    /// The fields that make the key; none = the origin id.
    pub key_fields: Vec<String>,
    /// Whether committed keys are remembered.
    pub ledger: Ledger,
    /// How long.
    #[serde(with = "millis")]
    pub window: Duration,
}

/// Whether committed keys are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ledger {
    /// Recorded in the commit.
    AtCommit,
    /// Not at all.
    Off,
}

/// Where outputs go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Output {
    /// The stream.
    pub stream: StreamKey,
    /// Trimmed (approximately) to this many entries; 0 = never.
    pub max_length: u64,
}

/// How errors are tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Starts that may end in an error.
    pub max_attempts: u32,
    /// The wait after the first error.
    #[serde(with = "millis")]
    pub initial_delay: Duration,
    /// The longest wait.
    #[serde(with = "millis")]
    pub max_delay: Duration,
    /// The growth of the wait per error, in percent.
    pub multiplier_percent: u32,
    /// The spread of the wait, in percent either way.
    pub jitter_percent: u32,
    /// Error types that are never tried again.
    pub non_retryable_errors: Vec<String>,
}

/// Where poison goes, and how much context with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterPolicy {
    /// The stream; always named here.
    pub stream: StreamKey,
    /// Trimmed (approximately) to this many entries; 0 = never.
    pub max_length: u64,
    /// The longest error text, in bytes.
    pub max_error_bytes: usize,
    /// The longest traceback, in bytes.
    pub max_trace_bytes: usize,
}

/// The user's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandlerSpec {
    /// A server in the pod: one POST per entry.
    Http {
        /// Its port.
        port: u16,
        /// The path of the POST.
        path: String,
    },
    /// A program that reads a line and writes a line.
    Exec {
        /// The program and its arguments.
        command: Vec<String>,
    },
}

/// Durations as whole milliseconds, for forms that only programs read.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
