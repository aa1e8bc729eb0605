//! The checks of the pod: the handler, and the template that CEL cannot look into. Pure.

use serde_json::Value;

use super::HandlerSpec;
use super::checks::{Checks, count, is_metadata_key, is_path};
use crate::api::v1alpha1::{self as api, HandlerType, StreamStageSpec, rules};
use crate::api::{ADMIN_PORT, HANDLER_CONTAINER, PREFIX, PREFIX_RECOMMENDED};

impl Checks {
    pub(super) fn handler(&mut self, spec: &api::HandlerSpec) -> HandlerSpec {
        if let Some(http) = &spec.http {
            let free = http.port != i32::from(ADMIN_PORT);
            self.hold(
                free,
                "spec.handler.http.port",
                http.port,
                rules::HANDLER_PORT,
            );
            let field = "spec.handler.http.path";
            self.hold(is_path(&http.path), field, &http.path, rules::HANDLER_PATH);
        }
        if let Some(exec) = &spec.exec {
            let holds = exec
                .command
                .first()
                .is_none_or(|program| !program.is_empty());
            self.hold(
                holds,
                "spec.handler.exec.command",
                "",
                rules::HANDLER_COMMAND,
            );
        }
        let (kind, handler) = match (spec.kind, &spec.http, &spec.exec) {
            (HandlerType::Http, Some(http), None) => {
                let (port, path) = (count(http.port), http.path.clone());
                return HandlerSpec::Http { port, path };
            }
            (HandlerType::Exec, None, Some(exec)) => {
                let command = exec.command.clone();
                return HandlerSpec::Exec { command };
            }
            (HandlerType::Http, _, _) => (
                "HTTP",
                HandlerSpec::Exec {
                    command: Vec::new(),
                },
            ),
            (HandlerType::Exec, _, _) => (
                "Exec",
                HandlerSpec::Exec {
                    command: Vec::new(),
                },
            ),
        };
        self.hold(false, "spec.handler", kind, rules::HANDLER_BLOCK);
        handler
    }

    pub(super) fn template(&mut self, spec: &StreamStageSpec) {
        let metadata = &spec.template.metadata;
        let ours = |key: &str| key.starts_with(PREFIX);
        let taken = |key: &str| ours(key) || key.starts_with(PREFIX_RECOMMENDED);
        if let Some(key) = metadata.labels.keys().find(|key| taken(key)) {
            let field = "spec.template.metadata.labels";
            self.hold(false, field, key, rules::TEMPLATE_LABELS);
        }
        if let Some(key) = metadata.annotations.keys().find(|key| ours(key)) {
            let field = "spec.template.metadata.annotations";
            self.hold(false, field, key, rules::TEMPLATE_ANNOTATIONS);
        }
        let labels = ("labels", &metadata.labels);
        for (part, map) in [labels, ("annotations", &metadata.annotations)] {
            for key in map.keys().filter(|key| !is_metadata_key(key)) {
                let field = format!("spec.template.metadata.{part}");
                self.refuse(field, &Value::from(key.as_str()), rules::METADATA_KEY);
            }
        }
        let containers = spec.template.spec.get("containers").unwrap_or(&Value::Null);
        match containers.as_array().map(Vec::as_slice) {
            None | Some([]) => {
                self.refuse(
                    "spec.template.spec.containers",
                    containers,
                    rules::CONTAINERS,
                );
            }
            Some(containers) => self.containers(containers, spec.handler.kind),
        }
    }

    fn containers(&mut self, containers: &[Value], kind: HandlerType) {
        let name = |container: &Value| container.get("name")?.as_str().map(str::to_owned);
        let field =
            |index: usize, name: &str| format!("spec.template.spec.containers[{index}].{name}");
        let needed = [
            ("name", rules::CONTAINER_NAME),
            ("image", rules::CONTAINER_IMAGE),
        ];
        for (index, container) in containers.iter().enumerate() {
            for (part, message) in needed {
                let value = container.get(part).unwrap_or(&Value::Null);
                if value.as_str().is_none_or(str::is_empty) {
                    self.refuse(field(index, part), value, message);
                }
            }
        }
        let is_handler = |container: &Value| name(container).as_deref() == Some(HANDLER_CONTAINER);
        let index = containers.iter().position(is_handler).unwrap_or_default();
        for part in ["command", "args"] {
            let value = containers.get(index).and_then(|handler| handler.get(part));
            if let (HandlerType::Exec, Some(value)) = (kind, value.filter(|value| !value.is_null()))
            {
                self.refuse(field(index, part), value, rules::EXEC_CONTAINER);
            }
        }
    }
}
