//! A manifest's text into a [`Stage`].
//!
//! Stricter than the API server where that helps: unknown fields and duplicate keys are refused, with the field that was meant. The
//! schema's defaults come from the types of `api/v1alpha1/`, its bounds from `api/schema.rs`, its rules from `stage/parse.rs`. Never
//! reads a file and never follows a reference. Pure.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::api::schema::{self, nearest};
use crate::api::v1alpha1::{StreamStage, rules};
use crate::api::{API_VERSION, GROUP, KIND, Violation};
use crate::stage::Stage;

/// The most bytes of a manifest. The API server takes nothing near this; what expands inside it is bounded by the reader.
pub const MAX_BYTES: usize = 1 << 20;
/// What an object of Kubernetes has beside its spec.
const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
/// What `metadata` may hold; an object read back from a cluster holds most of it.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Why a text is no manifest of one stage. Its display has one line for each problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestError {
    /// It is too large to be one.
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is not YAML.
    Yaml {
        /// Line and column, from 1.
        at: Option<(u64, u64)>,
        /// What the reader says.
        problem: String,
    },
    /// It holds no StreamStage.
    NoStage {
        /// The kinds it holds.
        kinds: Vec<String>,
    },
    /// It holds more than one StreamStage.
    SeveralStages {
        /// Their names.
        names: Vec<String>,
    },
    /// The StreamStage is wrong.
    Invalid(Vec<Violation>),
}

impl std::error::Error for ManifestError {}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => write!(
                f,
                "manifest: {bytes} bytes: must be at most {MAX_BYTES} bytes: keep one stage in the file"
            ),
            Self::Yaml { at, problem } => match at {
                Some((line, column)) => {
                    write!(f, "line {line}, column {column}: {problem}")
                }
                None => f.write_str(problem),
            },
            Self::NoStage { kinds } => {
                let kinds = match kinds.as_slice() {
                    [] => "absent".to_owned(),
                    kinds => kinds.join(", "),
                };
                write!(
                    f,
                    "kind: {kinds}: the manifest must hold one document with `kind: {KIND}` and `apiVersion: {API_VERSION}`"
                )
            }
            Self::SeveralStages { names } => write!(
                f,
                "metadata.name: {}: the manifest must hold one {KIND} only: keep each in a file of its own",
                names.join(", ")
            ),
            Self::Invalid(violations) => {
                let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

/// The one stage that a YAML text describes, with every default settled. Other kinds and empty documents are passed over.
///
/// # Errors
/// Everything that is wrong with it, as far as it can be read.
pub fn parse(text: &str) -> Result<Stage, ManifestError> {
    if text.len() > MAX_BYTES {
        return Err(ManifestError::TooLarge { bytes: text.len() });
    }
    if let Some(error) = not_text(text) {
        return Err(error);
    }
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| not_yaml(&error))?;
    let mut stages: Vec<&Value> = documents
        .iter()
        .filter(|document| is_stage(document))
        .collect();
    match (stages.pop(), stages.as_slice()) {
        (Some(stage), []) => one(stage),
        (Some(_), _) => Err(ManifestError::SeveralStages {
            names: documents
                .iter()
                .filter(|document| is_stage(document))
                .map(name)
                .collect(),
        }),
        (None, _) => Err(ManifestError::NoStage {
            kinds: documents
                .iter()
                .filter(|document| !document.is_null())
                .map(kind)
                .collect(),
        }),
    }
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the reader has dozens of errors, and words of its own for each"
)]
fn not_yaml(error: &serde_saphyr::Error) -> ManifestError {
    use serde_saphyr::Error;
    let place = |error: &Error| error.location().map(|at| (at.line(), at.column()));
    let at = place(error);
    let mut error = error;
    // What is wrong in an alias is shown where the alias stands.
    while let Error::WithSnippet { error: inner, .. } | Error::AliasError { error: inner, .. } =
        error
    {
        error = inner;
    }
    let problem = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!(
            "{}: the field is given twice: remove one of them",
            key.escape_debug()
        ),
        Error::Budget { .. } => {
            "the file holds more than is read, counting what its aliases repeat: shorten it"
                .to_owned()
        }
        _ => {
            let text = error.to_string();
            let text = match place(error) {
                Some((line, column)) => {
                    text.trim_end_matches(&format!(" at line {line}, column {column}"))
                }
                None => &text,
            };
            format!("not readable as YAML: {text}: correct it there")
        }
    };
    ManifestError::Yaml { at, problem }
}

/// Refuses what no text file holds, before the reader finds stranger words for it.
fn not_text(text: &str) -> Option<ManifestError> {
    let is_odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let before = text.split(is_odd).next().unwrap_or_default();
    let odd = text.get(before.len()..)?.chars().next()?;
    let line = before.split('\n').count();
    let odd = u32::from(odd);
    Some(ManifestError::Yaml {
        at: None,
        problem: format!(
            "manifest: U+{odd:04X} in line {line}: must be a text without control characters: is it the right file?"
        ),
    })
}

/// Whether a document is, or is meant to be, a StreamStage.
fn is_stage(document: &Value) -> bool {
    let text = |field: &str| {
        document
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let group = text("apiVersion").split('/').next().unwrap_or_default();
    group == GROUP || nearest([KIND].into_iter(), text("kind")).is_some()
}

fn kind(document: &Value) -> String {
    let kind = document.get("kind").and_then(Value::as_str);
    let kind = kind.map(|kind| kind.escape_debug().to_string());
    kind.unwrap_or_else(|| "a document without a kind".to_owned())
}

fn name(stage: &Value) -> String {
    let name = stage.pointer("/metadata/name").and_then(Value::as_str);
    name.map_or_else(
        || "absent".to_owned(),
        |name| name.escape_debug().to_string(),
    )
}

/// The stage of one document.
fn one(document: &Value) -> Result<Stage, ManifestError> {
    let mut document = document.clone();
    drop_nulls(&mut document);
    let empty = Map::new();
    let fields = document.as_object().unwrap_or(&empty);
    let mut found = Vec::new();
    header(fields, &mut found);
    metadata(fields.get("metadata"), &mut found);
    match fields.get("spec") {
        Some(spec) => found.extend(schema::check(spec)),
        None => found.push(violation(
            "spec",
            "absent",
            "must be set: what the stage should be",
        )),
    }
    let stage = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": document.pointer("/metadata/name"),
            "namespace": document.pointer("/metadata/namespace"),
        },
        "spec": fields.get("spec"),
    });
    let error = match serde_json::from_value::<StreamStage>(stage) {
        Ok(stage) => match Stage::parse(&stage) {
            Ok(stage) if found.is_empty() => return Ok(stage),
            Ok(_) => None,
            Err(violations) => {
                found.extend(violations);
                None
            }
        },
        Err(error) => Some(error),
    };
    if let (Some(error), true) = (error, found.is_empty()) {
        found.push(violation("spec", "a map", &error.to_string()));
    }
    Err(ManifestError::Invalid(without_repeats(found)))
}

/// The API server takes a field without a value for one that is absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `apiVersion`, `kind`, and what else stands at the top.
fn header(fields: &Map<String, Value>, found: &mut Vec<Violation>) {
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let value = fields.get(field);
        if value.and_then(Value::as_str) != Some(wanted) {
            let value =
                value.map_or_else(|| "absent".to_owned(), |value| schema::shown(field, value));
            found.push(violation(field, &value, &format!("must be `{wanted}`")));
        }
    }
    unknown("", fields, &TOP, found);
}

fn metadata(metadata: Option<&Value>, found: &mut Vec<Violation>) {
    let fields = match metadata {
        Some(Value::Object(fields)) => fields,
        Some(other) => {
            let value = schema::shown("metadata", other);
            found.push(violation("metadata", &value, "must be a map of fields"));
            return;
        }
        None => {
            found.push(rules::name_absent());
            return;
        }
    };
    unknown("metadata.", fields, &METADATA, found);
    if !fields.contains_key("name") {
        found.push(rules::name_absent());
    }
    for field in ["name", "namespace"] {
        if let Some(value) = fields.get(field).filter(|value| !value.is_string()) {
            let value = schema::shown(field, value);
            let field = format!("metadata.{field}");
            found.push(violation(
                &field,
                &value,
                "must be a text: put it in quotes",
            ));
        }
    }
}

fn unknown(at: &str, fields: &Map<String, Value>, known: &[&str], found: &mut Vec<Violation>) {
    for (name, value) in fields
        .iter()
        .filter(|(name, _)| !known.contains(&name.as_str()))
    {
        let field = format!("{at}{}", name.escape_debug());
        let message = match nearest(known.iter().copied(), name) {
            Some(meant) => format!("there is no such field: did you mean `{at}{meant}`?"),
            None => "there is no such field: remove it".to_owned(),
        };
        let value = schema::shown(&field, value);
        found.push(violation(&field, &value, &message));
    }
}

fn violation(field: &str, value: &str, message: &str) -> Violation {
    Violation {
        field: field.to_owned(),
        value: value.to_owned(),
        message: message.to_owned(),
    }
}

/// The schema's bounds are judged on the text and again on the stage: each is told once.
fn without_repeats(found: Vec<Violation>) -> Vec<Violation> {
    let mut told = Vec::with_capacity(found.len());
    for violation in found {
        if !told.contains(&violation) {
            told.push(violation);
        }
    }
    told
}

#[cfg(test)]
mod tests;
