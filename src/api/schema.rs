//! The generated schema, read back: what a spec may hold, and within which bounds.
//!
//! The API server checks the same schema, so there is no second list of bounds to keep in step. What it cannot say is in
//! `v1alpha1/rules.rs`. Read next: `stage/parse.rs`. Pure.

use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::{Map, Number, Value};

use super::duration::{self, DurationText, NotADuration};
use super::v1alpha1::StreamStage;

mod forms;
mod names;

pub(crate) use forms::{LABEL_VALUE, QUANTITY, is_word};
pub(crate) use names::nearest;

/// The longest part of a value that is shown.
const SHOWN_CHARS: usize = 100;

/// One thing that is wrong with a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, such as `spec.delivery.visibilityTimeout`.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// The rule, and with it what to do.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.field, self.value, self.message)
    }
}

/// The schema of `spec`.
pub(super) static SPEC: LazyLock<JSONSchemaProps> = LazyLock::new(|| {
    let versions = StreamStage::crd().spec.versions.into_iter();
    let schemas = versions.filter_map(|version| version.schema?.open_api_v3_schema);
    let mut schemas = schemas.filter_map(|schema| schema.properties);
    schemas
        .find_map(|mut fields| fields.remove("spec"))
        .unwrap_or_default()
});

/// Whatever is unknown, missing, of a wrong type or out of bounds in `spec`. Rules between fields are not judged here.
pub fn check(spec: &Value) -> Vec<Violation> {
    let mut walk = Walk { found: Vec::new() };
    walk.value(&SPEC, "spec", spec);
    walk.found
}

/// A value as JSON in a schema.
pub(super) fn json(value: Value) -> JSON {
    JSON(value)
}

/// How a value is shown: never a map or list whole, never what may be a secret.
pub fn shown(field: &str, value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::String(_) if names::is_secret(field) => "(not shown)".to_owned(),
        Value::String(text) => shown_text(field, text),
    }
}

fn shown_text(field: &str, text: &str) -> String {
    // An address may have been written as a URL with a password.
    let text = match text.rsplit_once('@') {
        Some((_, host)) if field.starts_with("spec.redis") => format!("(not shown)@{host}"),
        _ => text.to_owned(),
    };
    match text.char_indices().nth(SHOWN_CHARS) {
        _ if text.is_empty() => "\"\"".to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default())
            .escape_debug()
            .to_string(),
        None => text.escape_debug().to_string(),
    }
}

struct Walk {
    found: Vec<Violation>,
}

impl Walk {
    fn refuse(&mut self, field: &str, value: &Value, message: impl Into<String>) {
        self.found.push(Violation {
            field: field.to_owned(),
            value: shown(field, value),
            message: message.into(),
        });
    }

    fn value(&mut self, schema: &JSONSchemaProps, field: &str, value: &Value) {
        let kind = schema.type_.as_deref().unwrap_or_default();
        match (kind, value) {
            ("object", Value::Object(map)) => self.object(schema, field, map),
            ("array", Value::Array(list)) => self.list(schema, field, list),
            // Only int-or-string comes without a type.
            ("string" | "", Value::String(text)) => self.text(schema, field, text),
            ("integer" | "", Value::Number(number)) if number.is_i64() || number.is_u64() => {
                self.number(schema, field, number);
            }
            ("boolean", Value::Bool(_)) => {}
            _ => self.refuse(field, value, expected(schema, value)),
        }
    }

    fn object(&mut self, schema: &JSONSchemaProps, field: &str, map: &Map<String, Value>) {
        let known = schema.properties.as_ref();
        let extra = match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(schema.as_ref()),
            Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
        };
        let is_open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
        for (name, value) in map {
            match (known.and_then(|known| known.get(name)), extra) {
                (Some(schema), _) => self.value(schema, &format!("{field}.{name}"), value),
                (None, Some(schema)) => {
                    self.value(schema, &format!("{field}[{}]", name.escape_debug()), value);
                }
                (None, None) if is_open => {}
                (None, None) => {
                    let advice = names::advice(schema, field, name);
                    self.refuse(&format!("{field}.{}", name.escape_debug()), value, advice);
                }
            }
        }
        for name in schema
            .required
            .iter()
            .flatten()
            .filter(|name| !map.contains_key(*name))
        {
            let purpose = known.and_then(|known| known.get(name)).map(purpose);
            self.found.push(Violation {
                field: format!("{field}.{name}"),
                value: "absent".to_owned(),
                message: format!("must be set: {}", purpose.unwrap_or_default()),
            });
        }
        self.count(field, map.len(), None, schema.max_properties, "entries");
    }

    fn list(&mut self, schema: &JSONSchemaProps, field: &str, list: &[Value]) {
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            for (index, value) in list.iter().enumerate() {
                self.value(items, &format!("{field}[{index}]"), value);
            }
        }
        if schema.x_kubernetes_list_type.as_deref() == Some("set") {
            for (index, value) in list.iter().enumerate() {
                if list.iter().take(index).any(|earlier| earlier == value) {
                    let field = format!("{field}[{index}]");
                    self.refuse(&field, value, "may not be listed twice: remove one of them");
                }
            }
        }
        self.count(
            field,
            list.len(),
            schema.min_items,
            schema.max_items,
            "items",
        );
    }

    fn count(&mut self, field: &str, count: usize, min: Option<i64>, max: Option<i64>, what: &str) {
        let size = i64::try_from(count).unwrap_or(i64::MAX);
        let message = match (min, max) {
            (Some(min), _) if size < min => format!("must hold at least {min} of them"),
            (_, Some(max)) if size > max => format!("must hold at most {max} of them"),
            _ => return,
        };
        self.found.push(Violation {
            field: field.to_owned(),
            value: format!("{count} {what}"),
            message,
        });
    }

    fn text(&mut self, schema: &JSONSchemaProps, field: &str, text: &str) {
        let value = Value::from(text);
        if let Some(allowed) = &schema.enum_ {
            if !allowed.iter().any(|JSON(allowed)| allowed == &value) {
                self.refuse(field, &value, choices(allowed));
            }
        } else if is_duration(schema) {
            if let Err(error) = DurationText::new(text).parse() {
                self.refuse(field, &value, error.to_string());
            }
        } else {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if schema.max_length.is_some_and(|max| length > max) {
                let max = schema.max_length.unwrap_or_default();
                self.refuse(
                    field,
                    &value,
                    format!("must be at most {max} characters long"),
                );
            }
            if schema.min_length.is_some_and(|min| length < min) {
                self.refuse(
                    field,
                    &value,
                    format!("may not be empty: {}", purpose(schema)),
                );
            }
            let pattern = schema.pattern.as_deref().unwrap_or_default();
            if let Some(message) = forms::broken(pattern, text) {
                self.refuse(field, &value, message);
            }
        }
    }

    fn number(&mut self, schema: &JSONSchemaProps, field: &str, number: &Number) {
        let value = number.as_f64().unwrap_or(f64::MAX);
        let below = schema.minimum.is_some_and(|min| value < min);
        let above = schema.maximum.is_some_and(|max| value > max);
        if below || above {
            let message = match (schema.minimum, schema.maximum) {
                (Some(min), Some(max)) => format!("must be between {min} and {max}"),
                (Some(min), None) => format!("must be at least {min}"),
                (None, max) => format!("must be at most {}", max.unwrap_or(f64::MAX)),
            };
            self.refuse(field, &Value::Number(number.clone()), message);
        }
    }
}

/// What a value of another type should have been.
fn expected(schema: &JSONSchemaProps, value: &Value) -> String {
    let is_scalar = matches!(value, Value::Number(_) | Value::Bool(_));
    match schema.type_.as_deref().unwrap_or_default() {
        "string" if is_duration(schema) => NotADuration.to_string(),
        "string" if schema.enum_.is_some() => {
            let allowed = schema.enum_.as_deref().unwrap_or_default();
            format!("{}{}", choices(allowed), unquoted(allowed, value))
        }
        "string" if is_scalar => "must be a text: put it in quotes".to_owned(),
        "string" => "must be a text".to_owned(),
        "integer" if value.is_string() => {
            "must be a whole number: write it without quotes".to_owned()
        }
        "integer" => "must be a whole number".to_owned(),
        "boolean" => "must be `true` or `false`".to_owned(),
        "array" => "must be a list: begin each item with `- `".to_owned(),
        "object" => "must be a map of fields".to_owned(),
        _ => "must be a whole number, or a text in quotes".to_owned(),
    }
}

fn choices(allowed: &[JSON]) -> String {
    let words: Vec<_> = words(allowed).map(|word| format!("`{word}`")).collect();
    format!("must be {}", words.join(" or "))
}

fn words(allowed: &[JSON]) -> impl Iterator<Item = &str> {
    allowed.iter().filter_map(|JSON(word)| word.as_str())
}

/// What to do about a word that YAML took for a boolean; nothing where it is something else.
fn unquoted(allowed: &[JSON], value: &Value) -> String {
    let read_as: &[&str] = match value.as_bool() {
        Some(false) => &["off", "no", "false"],
        Some(true) => &["on", "yes", "true"],
        None => &[],
    };
    let meant = words(allowed).find(|word| read_as.contains(&word.to_lowercase().as_str()));
    meant.map_or_else(String::new, |word| {
        format!(": put it in quotes (\"{word}\"), YAML reads it as {value}")
    })
}

fn is_duration(schema: &JSONSchemaProps) -> bool {
    schema.pattern.as_deref() == Some(duration::PATTERN)
}

/// The first sentence of a field's manual.
fn purpose(schema: &JSONSchemaProps) -> String {
    let text = schema.description.as_deref().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = text.split(". ").next().unwrap_or_default();
    let mut letters = sentence.trim_end_matches('.').chars();
    // It follows a colon; no manual begins with a name.
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(letters).collect()
}

#[cfg(test)]
mod tests;
