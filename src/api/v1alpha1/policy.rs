//! What becomes of an entry: outputs, retries, dead letters, and the end of a worker.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{minutes, number, rules, seconds};
use crate::api::duration::DurationText;

/// Where the handler's outputs go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputSpec {
    /// The stream they are appended to, in the same step that settles the entry. For exactly-once appends in a Redis Cluster
    /// give it the hash tag of `source.stream`.
    #[schemars(length(min = 1, max = 512))]
    pub stream: String,
    /// Trims the stream (approximately) to this many entries. Default: 0, never. Trimming drops what its readers have not read.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub max_length: i64,
}

/// How errors are tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::DELAYS_IN_ORDER.rule())]
pub struct RetrySpec {
    /// How many starts of one entry may end in an error; then it becomes a dead letter. Default: 8; 1 to 100.
    #[serde(default = "number::<8>")]
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: i32,
    /// The wait after the first error. Default: 5s; 100ms to 1h.
    #[serde(default = "seconds::<5>")]
    #[x_kube(validation = rules::INITIAL_DELAY.rule())]
    pub initial_delay: DurationText,
    /// The longest wait. Default: 15m; 100ms to 168h.
    #[serde(default = "minutes::<15>")]
    #[x_kube(validation = rules::MAX_DELAY.rule())]
    pub max_delay: DurationText,
    /// How the wait grows with each error, in percent of the one before. Default: 200, twice; 100 to 1000.
    #[serde(default = "number::<200>")]
    #[schemars(range(min = 100, max = 1000))]
    pub multiplier_percent: i32,
    /// How far a wait is spread at random, in percent either way. Default: 20; 0 to 100.
    #[serde(default = "number::<20>")]
    #[schemars(range(min = 0, max = 100))]
    pub jitter_percent: i32,
    /// Error types of the handler that are never tried again: their entry becomes a dead letter at once. Default: none; at most 64.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub non_retryable_errors: Vec<String>,
}

impl Default for RetrySpec {
    fn default() -> Self {
        Self {
            max_attempts: 8,
            initial_delay: seconds::<5>(),
            max_delay: minutes::<15>(),
            multiplier_percent: 200,
            jitter_percent: 20,
            non_retryable_errors: Vec::new(),
        }
    }
}

/// Where entries go that can not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterSpec {
    /// The stream of the dead letters. Absent: `{stream}:group:dead` (`{tag}:stream:group:dead` where the stream's name holds a
    /// hash tag), which lies in the same cluster slot as the source. Stages may share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 512))]
    pub stream: Option<String>,
    /// Trims the stream (approximately) to this many entries. Default: 0, never.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub max_length: i64,
    /// How much of the error's text is kept, in bytes. Default: 1000; 0 to 65536.
    #[serde(default = "number::<1000>")]
    #[schemars(range(min = 0, max = 65_536))]
    pub max_error_bytes: i32,
    /// How much of the traceback is kept, in bytes. Default: 4000; 0 to 262144.
    #[serde(default = "number::<4000>")]
    #[schemars(range(min = 0, max = 262_144))]
    pub max_trace_bytes: i32,
}

impl Default for DeadLetterSpec {
    fn default() -> Self {
        Self {
            stream: None,
            max_length: 0,
            max_error_bytes: 1000,
            max_trace_bytes: 4000,
        }
    }
}

/// How workers stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// How long running handlers may go on after the order to stop; what has not started is released at once. The pod's grace
    /// period is this and 15s. Default: 60s; 0s to 1h.
    #[serde(default = "seconds::<60>")]
    #[x_kube(validation = rules::DRAIN_TIMEOUT.rule())]
    pub timeout: DurationText,
}

impl Default for DrainSpec {
    fn default() -> Self {
        Self {
            timeout: seconds::<60>(),
        }
    }
}
