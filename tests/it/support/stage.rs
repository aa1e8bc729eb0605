//! A manifest, built up field by field.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::scratch::Scratch;

/// The stream and group of every stage here, unless a test names others: each test has a Redis of its own.
const STREAM: &str = "orders";
const GROUP: &str = "mail";

#[derive(Clone)]
pub(crate) struct StageFile {
    manifest: Value,
    directory: PathBuf,
}

impl StageFile {
    /// A small valid stage whose handler is `handler` (the value of `spec.handler`).
    pub(crate) fn new(directory: &Scratch, handler: &Value) -> Self {
        let manifest = json!({
            "apiVersion": "streamstage.io/v1alpha1",
            "kind": "StreamStage",
            "metadata": {"name": "mailer", "namespace": "shop"},
            "spec": {
                "redis": {"addresses": ["redis.example:6379"]},
                "source": {"stream": STREAM, "consumerGroup": GROUP},
                "delivery": {"visibilityTimeout": "3s"},
                "handler": handler,
                "template": {"spec": {"containers": [{"name": "handler", "image": "mailer:1"}]}},
            },
        });
        Self {
            manifest,
            directory: directory.path().to_owned(),
        }
    }

    /// Sets one field of the spec: `delivery.concurrency`, with the blocks around it where they are missing.
    pub(crate) fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        let mut at = &mut self.manifest["spec"];
        for name in field.split('.') {
            at = &mut at[name];
        }
        *at = value.into();
        self
    }

    /// A stage of another name, on another stream.
    pub(crate) fn named(mut self, name: &str, stream: &str) -> Self {
        self.manifest["metadata"]["name"] = name.into();
        self.set("source.stream", stream)
    }

    pub(crate) fn name(&self) -> &str {
        self.manifest["metadata"]["name"].as_str().expect("a name")
    }

    pub(crate) fn stream(&self) -> &str {
        self.text("/spec/source/stream")
    }

    pub(crate) fn group(&self) -> &str {
        self.text("/spec/source/consumerGroup")
    }

    /// A key derived for the stage: `retry`, `delayed`, `dead`, `workers`, `cursor`.
    pub(crate) fn key(&self, suffix: &str) -> String {
        let (stream, group) = (self.stream(), self.group());
        match stream.find('{').zip(stream.find('}')) {
            Some((open, close)) => {
                format!("{}:{stream}:{group}:{suffix}", &stream[open..=close])
            }
            None => format!("{{{stream}}}:{group}:{suffix}"),
        }
    }

    /// Writes the manifest (JSON is YAML) and gives its path; a worker that is just reading it sees all of it or the old one.
    pub(crate) fn write(&self) -> PathBuf {
        let path = self.directory.join(format!("{}.yaml", self.name()));
        let text = serde_json::to_string_pretty(&self.manifest).expect("a manifest");
        let draft = path.with_extension("draft");
        std::fs::write(&draft, text).expect("the manifest is written");
        std::fs::rename(&draft, &path).expect("the manifest is in its place");
        path
    }

    fn text(&self, pointer: &str) -> &str {
        let value = self.manifest.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_else(|| panic!("{pointer} is a text"))
    }
}
