//! The user's code, the engine beside it, and the pod that holds both.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::rules;
use crate::api::schema::{LABEL_VALUE, QUANTITY};

/// How the engine reaches the user's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::HANDLER_BLOCK.rule())]
pub struct HandlerSpec {
    /// What the handler is: HTTP, a server in the pod, or Exec, a program that reads lines and writes lines.
    #[serde(rename = "type")]
    pub kind: HandlerType,
    /// The server; exactly where `type` is HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HttpSpec")]
    pub http: Option<HttpSpec>,
    /// The program; exactly where `type` is Exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ExecSpec")]
    pub exec: Option<ExecSpec>,
}

/// What the handler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HandlerType {
    /// A server in the pod: one POST per entry.
    #[serde(rename = "HTTP")]
    Http,
    /// A program that reads a line and writes a line per entry.
    Exec,
}

/// A server in the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpSpec {
    /// The port it listens on; 1 to 65535, no default.
    #[schemars(range(min = 1, max = 65_535))]
    #[x_kube(validation = rules::HANDLER_PORT.rule())]
    pub port: i32,
    /// The path of the POST. Default: `/`.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::HANDLER_PATH.rule())]
    pub path: String,
}

fn root() -> String {
    "/".to_owned()
}

/// A program that reads a line and writes a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecSpec {
    /// The program and its arguments; no shell reads them. The engine starts as many as `delivery.concurrency`.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = rules::HANDLER_COMMAND.rule())]
    pub command: Vec<String>,
}

/// The engine's own container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineSpec {
    /// The image of the engine. Absent: the operator's own, so that an upgrade of the operator rolls the workers; name one to
    /// decide that yourself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 512))]
    pub image: Option<String>,
    /// What the engine's container asks for and may use.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub resources: ResourcesSpec,
}

/// What a container asks for and may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesSpec {
    /// What is set aside for it, such as `cpu: 100m`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What it may not exceed, such as `memory: 128Mi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// The pod that runs the handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSpec {
    /// Labels and annotations of the pod.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub metadata: TemplateMetadata,
    /// A pod spec. The container named `handler`, or else the first, is the handler; it needs an image that holds your code. In an
    /// Exec stage it may set neither `command` nor `args`: the engine runs `handler.exec.command` in it.
    #[schemars(schema_with = "anything")]
    pub spec: serde_json::Value,
}

/// Labels and annotations of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels of the pod. The prefixes `streamstage.io/` and `app.kubernetes.io/` are the operator's.
    #[serde(default)]
    #[schemars(schema_with = "label_values")]
    #[x_kube(validation = rules::TEMPLATE_LABELS.rule())]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod. The prefix `streamstage.io/` is the operator's.
    #[serde(default)]
    #[schemars(schema_with = "texts")]
    #[x_kube(validation = rules::TEMPLATE_ANNOTATIONS.rule())]
    pub annotations: BTreeMap<String, String>,
}

/// An object whose fields are somebody else's to check.
fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A bounded map of texts.
fn texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 4096}
    })
}

/// A bounded map of what labels may be set to.
fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE}
    })
}

/// A bounded map of quantities.
fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maximum": i32::MAX,
            "pattern": QUANTITY
        }
    })
}
