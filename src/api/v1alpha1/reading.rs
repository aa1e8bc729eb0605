//! Where Redis is, what is read, how entries are handed out, and which are the same work.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{hours, minutes, number, rules, seconds};
use crate::api::duration::DurationText;

/// Where Redis is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::ADDRESSES_STANDALONE.rule())]
pub struct RedisSpec {
    /// How the servers are arranged. Default: Standalone, one server.
    #[serde(default)]
    pub topology: Topology,
    /// The server as `host:port`; exactly one.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 260)))]
    #[x_kube(merge_strategy = ListMerge::Set, validation = rules::ADDRESS.rule())]
    pub addresses: Vec<String>,
    /// The number of the database. Default: 0; up to 1023.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1023))]
    pub database: i32,
    /// Secrets with user and password. Absent: the default user without a password. Changing a secret's content restarts nothing:
    /// it is read at every connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AuthSpec")]
    pub auth: Option<AuthSpec>,
    /// The limit of one attempt to connect. Default: 5s; 100ms to 60s.
    #[serde(default = "seconds::<5>")]
    #[x_kube(validation = rules::CONNECT_TIMEOUT.rule())]
    pub connect_timeout: DurationText,
    /// The limit of one command. Absent: 5s, or a third of `delivery.visibilityTimeout` where that is less, which it may never
    /// exceed; at least 100ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DurationText")]
    #[x_kube(validation = rules::COMMAND_TIMEOUT.rule())]
    pub command_timeout: Option<DurationText>,
}

/// How the servers are arranged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Topology {
    /// One server.
    #[default]
    Standalone,
}

/// Secrets with user and password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// The user's name. Absent: the default user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SecretKeyRef")]
    pub username_secret_ref: Option<SecretKeyRef>,
    /// The password.
    pub password_secret_ref: SecretKeyRef,
}

/// A key of a Secret in the stage's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// What a stage reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// The stream to read. Other groups may read it too: nothing is ever deleted from it. May not be changed.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = rules::STREAM_BRACES.rule(), validation = rules::IMMUTABLE.rule())]
    pub stream: String,
    /// The consumer group that reads it. May not be changed.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = rules::IMMUTABLE.rule())]
    pub consumer_group: String,
    /// Whether the group (and the stream) is created where it is missing. Default: IfMissing. Changing it rolls the workers.
    #[serde(default)]
    pub group_creation: GroupCreation,
    /// Where a group that we create starts: `Beginning`, `End`, or after an entry id. Default: Beginning. May not be changed.
    #[serde(default = "beginning")]
    #[schemars(length(min = 1, max = 41))]
    #[x_kube(validation = rules::START_FROM.rule(), validation = rules::IMMUTABLE.rule())]
    pub start_from: String,
}

fn beginning() -> String {
    "Beginning".to_owned()
}

/// Whether the group is created where it is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GroupCreation {
    /// It is created.
    #[default]
    IfMissing,
    /// It is waited for.
    Never,
}

/// How entries are handed to handlers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::RECLAIM_WITHIN_VISIBILITY.rule())]
pub struct DeliverySpec {
    /// How long a worker may be silent before another takes over its entries; 2s to 24h, no default. It does not limit the
    /// handler: a live worker renews its hold at a third of it.
    #[x_kube(validation = rules::VISIBILITY_TIMEOUT.rule())]
    pub visibility_timeout: DurationText,
    /// How long one run of the handler may take; then it is cancelled and counts as an error. Default: 10m; 100ms to 24h.
    #[serde(default = "minutes::<10>")]
    #[x_kube(validation = rules::HANDLER_TIMEOUT.rule())]
    pub handler_timeout: DurationText,
    /// How often a worker looks for entries of silent ones. Absent: 15s, or half of `visibilityTimeout` where that is less, which
    /// it may not exceed; 500ms to 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DurationText")]
    #[x_kube(validation = rules::RECLAIM_INTERVAL.rule())]
    pub reclaim_interval: Option<DurationText>,
    /// How many starts of one entry may end in nothing (the handler's process or the worker died) before it is taken for poison
    /// and becomes a dead letter. Default: 5; 1 to 1000. Errors count elsewhere: `retry.maxAttempts`.
    #[serde(default = "number::<5>")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_deliveries: i32,
    /// How many entries one worker gives to the handler at once. Default: 4; 1 to 1024.
    #[serde(default = "number::<4>")]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: i32,
    /// How long one read waits on an empty stream. Absent: 2s, or a quarter of `visibilityTimeout` where that is less; 100ms to
    /// 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DurationText")]
    #[x_kube(validation = rules::BLOCK_TIMEOUT.rule())]
    pub block_timeout: Option<DurationText>,
}

/// Which entries are the same work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::LEDGER_NEEDS_KEYS.rule())]
pub struct IdempotencySpec {
    /// The fields of an entry that make its idempotency key: name what the work depends on, never an id of the delivery. Default:
    /// none, then the key is made of the entry's id. At most 16.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub key_fields: Vec<String>,
    /// Whether committed keys are remembered, so that a second entry with the same key is skipped. Absent: AtCommit where
    /// `keyFields` are named, else Off. Write "Off" in quotes: without them YAML reads it as false, which is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LedgerMode")]
    pub ledger: Option<LedgerMode>,
    /// How long a committed key is remembered. Default: 24h; 1m to 9999h.
    #[serde(default = "hours::<24>")]
    #[x_kube(validation = rules::WINDOW.rule())]
    pub window: DurationText,
}

impl Default for IdempotencySpec {
    fn default() -> Self {
        Self {
            key_fields: Vec::new(),
            ledger: None,
            window: hours::<24>(),
        }
    }
}

/// Whether committed keys are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LedgerMode {
    /// Recorded in the commit.
    AtCommit,
    /// Not at all.
    Off,
}
