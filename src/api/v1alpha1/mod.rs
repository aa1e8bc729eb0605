//! `StreamStage` in version v1alpha1: spec, status, and where each CEL rule sits.
//!
//! The doc comments of the fields are what `kubectl explain streamstage.spec` prints. Defaults stand on the leaves, their parents
//! default to `{}`, so that a stored object shows everything in effect. What defaults depend on other fields is left absent here
//! and settled in `stage/parse.rs`, the next to read. The rules' words are in [`rules`].

#![allow(
    unreachable_pub,
    reason = "the derive of KubeSchema puts a copy of each struct into a function"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod handler;
mod policy;
mod reading;
pub mod rules;

pub use handler::{
    EngineSpec, ExecSpec, HandlerSpec, HandlerType, HttpSpec, ResourcesSpec, TemplateMetadata,
    TemplateSpec,
};
pub use policy::{DeadLetterSpec, DrainSpec, OutputSpec, RetrySpec};
pub use reading::{
    AuthSpec, DeliverySpec, GroupCreation, IdempotencySpec, LedgerMode, RedisSpec, SecretKeyRef,
    SourceSpec, Topology,
};

/// What `kubectl explain streamstage` says first.
pub(super) const DESCRIPTION: &str = "A stage of work on a Redis stream: workers read the entries of one consumer group and hand each to your handler; \
what fails is retried later, what can never succeed becomes a dead letter, and what a dead worker held is run by another.";

/// What a stage should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "streamstage.io",
    version = "v1alpha1",
    kind = "StreamStage",
    plural = "streamstages",
    singular = "streamstage",
    shortname = "sst",
    category = "streamstage",
    namespaced,
    status = "StreamStageStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Workers",
        type_ = "integer",
        json_path = ".status.readyReplicas"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Stream",
        type_ = "string",
        json_path = ".spec.source.stream",
        priority = 1
    ),
    printcolumn(
        name = "Group",
        type_ = "string",
        json_path = ".spec.source.consumerGroup",
        priority = 1
    ),
    selectable = ".spec.source.stream",
    selectable = ".spec.source.consumerGroup",
    selectable = ".spec.suspend",
    validation = rules::NAME.rule()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::COMMAND_WITHIN_VISIBILITY.rule(),
    validation = rules::OUTPUT_NOT_SOURCE.rule(),
    validation = rules::OUTPUT_NOT_DEAD.rule(),
    validation = rules::OUTPUT_NOT_DERIVED.rule(),
    validation = rules::DEAD_NOT_SOURCE.rule(),
    validation = rules::DEAD_NOT_DERIVED.rule()
)]
pub struct StreamStageSpec {
    /// Scales the workers to zero and keeps everything else. Running handlers drain first. Default: false. Changing it restarts
    /// nothing but the workers it starts or stops.
    #[serde(default)]
    pub suspend: bool,
    /// How many workers run. Default: 1; 0 to 1000. Changing it starts or drains workers; those that stay are not restarted.
    #[serde(default = "number::<1>")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// The Redis server. Changing any of it rolls the workers.
    pub redis: RedisSpec,
    /// The stream and the consumer group to read.
    pub source: SourceSpec,
    /// When another worker may take over entries, and how they are handed to handlers. Changing any of it rolls the workers.
    pub delivery: DeliverySpec,
    /// Which entries are the same work, so that it is committed once. Changing any of it rolls the workers.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub idempotency: IdempotencySpec,
    /// Where the handler's outputs go. Absent: the handler may have none. Changing it rolls the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OutputSpec")]
    pub output: Option<OutputSpec>,
    /// How errors are tried again. Changing any of it rolls the workers; entries that already wait keep their time.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub retry: RetrySpec,
    /// Where entries go that can not succeed, and how much of the error goes with them. Changing any of it rolls the workers.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub dead_letter: DeadLetterSpec,
    /// How the engine reaches your code. Changing any of it rolls the workers.
    pub handler: HandlerSpec,
    /// The engine's own container. Changing any of it rolls the workers.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub engine: EngineSpec,
    /// The pod that runs your handler. Changing any of it rolls the workers.
    pub template: TemplateSpec,
    /// How workers stop. Changing it rolls the workers.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub drain: DrainSpec,
}

/// What the operator last saw of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamStageStatus {
    /// The generation of the spec that this status is about; -1 before the first look.
    #[serde(default = "unobserved")]
    pub observed_generation: i64,
    /// Workers that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Workers that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The label selector of the workers, as text: autoscalers read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 512))]
    pub selector: Option<String>,
    /// What is so, one entry for each type.
    #[serde(default)]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

/// Before the first look no generation was observed.
fn unobserved() -> i64 {
    -1
}

/// A default that is a number.
fn number<const N: i32>() -> i32 {
    N
}

/// A default of whole seconds.
fn seconds<const N: u32>() -> super::duration::DurationText {
    super::duration::DurationText::new(format!("{N}s"))
}

/// A default of whole minutes.
fn minutes<const N: u32>() -> super::duration::DurationText {
    super::duration::DurationText::new(format!("{N}m"))
}

/// A default of whole hours.
fn hours<const N: u32>() -> super::duration::DurationText {
    super::duration::DurationText::new(format!("{N}h"))
}
