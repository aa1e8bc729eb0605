//! `WorkerConfig`: everything a worker must know, and the only thing operator and engine share beside Redis.
//!
//! It travels as one JSON object. [`WorkerConfig::render`] and [`WorkerConfig::parse`] are inverses; what a worker does not
//! read (replicas, template, ...) is left out, so that changing it restarts nothing. Pure.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use crate::stage::{
    DeadLetterPolicy, Delivery, GroupCreation, HandlerSpec, Idempotency, Ledger, Output,
    RetryPolicy, Source, StartFrom,
};
use crate::stage::{Stage, millis};
pub use crate::streams::Credentials;
use crate::streams::Keys;
use crate::streams::names::NoPrefix;

/// The version this build writes.
const VERSION: u32 = 1;
/// The oldest version it reads: the one before its own, as soon as there is one.
const OLDEST: u32 = 1;

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

    /// The config as one line of JSON. Credentials that are [`Credentials::Inline`] are left out: they never travel.
    pub fn render(&self) -> String {
        let mut portable = self.clone();
        if matches!(portable.redis.credentials, Credentials::Inline { .. }) {
            portable.redis.credentials = Credentials::None;
        }
        // Only a path that is no text cannot be written; the empty line that stands for it is refused by every reader.
        serde_json::to_string(&portable).unwrap_or_default()
    }

    /// Reads what [`WorkerConfig::render`] wrote, in this version or the one before.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, and never what a credential holds.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let not_json = |error: serde_json::Error| ConfigError::NotJson(error.to_string());
        let object: Map<String, Value> = serde_json::from_str(text).map_err(not_json)?;
        check_version(&object)?;
        let config = Self::deserialize(Value::Object(object.clone()))
            .map_err(|error| culprit(&object, &error))?;
        config.check()
    }

    /// Every key of the stage.
    ///
    /// # Errors
    /// [`NoPrefix`] where `source.stream` leaves none; never for a config that was parsed, or made of a [`Stage`].
    pub fn keys(&self) -> Result<Keys, NoPrefix> {
        let dead = self.dead_letter.stream.clone();
        let (source, group) = (self.source.stream.clone(), self.source.group.clone());
        Keys::derive(source, group, Some(dead))
    }

    /// What a worker could not run with.
    fn check(self) -> Result<Self, ConfigError> {
        if let Err(error) = self.keys() {
            return Err(wrong("source.stream", &error));
        }
        let delivery = &self.delivery;
        for (field, is_empty) in [
            ("redis.address", self.redis.address.is_empty()),
            ("redis.commandTimeout", self.redis.command_timeout.is_zero()),
            ("redis.connectTimeout", self.redis.connect_timeout.is_zero()),
            (
                "delivery.visibilityTimeout",
                delivery.visibility_timeout.is_zero(),
            ),
            (
                "delivery.reclaimInterval",
                delivery.reclaim_interval.is_zero(),
            ),
            ("delivery.blockTimeout", delivery.block_timeout.is_zero()),
            ("delivery.concurrency", delivery.concurrency == 0),
        ] {
            if is_empty {
                return Err(wrong(field, &"may be neither empty nor zero"));
            }
        }
        Ok(self)
    }
}

fn check_version(object: &Map<String, Value>) -> Result<(), ConfigError> {
    let found = object.get("v");
    let is_known = |version: &u64| (u64::from(OLDEST)..=u64::from(VERSION)).contains(version);
    match found.and_then(Value::as_u64).filter(is_known) {
        Some(_) => Ok(()),
        None => Err(ConfigError::Version {
            found: found.map_or_else(|| "absent".to_owned(), Value::to_string),
        }),
    }
}

/// How one part of the config is read by itself.
type Reader = fn(&Value) -> Result<(), serde_json::Error>;

fn reads<T: DeserializeOwned>(value: &Value) -> Result<(), serde_json::Error> {
    T::deserialize(value).map(drop)
}

/// Every part of the config.
const PARTS: [(&str, Reader); 8] = [
    ("redis", reads::<RedisConfig>),
    ("source", reads::<Source>),
    ("delivery", reads::<Delivery>),
    ("idempotency", reads::<Idempotency>),
    ("output", reads::<Option<Output>>),
    ("retry", reads::<RetryPolicy>),
    ("deadLetter", reads::<DeadLetterPolicy>),
    ("handler", reads::<HandlerSpec>),
];

/// The field that made reading fail, found by reading the parts one by one.
fn culprit(object: &Map<String, Value>, error: &serde_json::Error) -> ConfigError {
    let failing = PARTS.iter().find_map(|(name, read)| {
        let part = object.get(*name)?;
        read(part).err().map(|error| (*name, part, read, error))
    });
    let Some((name, part, read, error)) = failing else {
        return wrong("config", error);
    };
    let is_missing = error.to_string().starts_with("missing field");
    match part.as_object().and_then(|fields| blamed(fields, *read)) {
        Some(field) if !is_missing => wrong(&format!("{name}.{field}"), &error),
        _ => wrong(name, &error),
    }
}

/// The field without which a part fails for no other reason than that it is missing, or not at all.
fn blamed(fields: &Map<String, Value>, read: Reader) -> Option<&str> {
    fields.keys().map(String::as_str).find(|field| {
        let mut without = fields.clone();
        without.remove(*field);
        match read(&Value::Object(without)) {
            Ok(()) => true,
            Err(error) => error.to_string() == format!("missing field `{field}`"),
        }
    })
}

fn wrong(field: &str, problem: &dyn std::fmt::Display) -> ConfigError {
    ConfigError::Field {
        field: field.to_owned(),
        problem: problem.to_string(),
    }
}

/// Why a text is no config of a worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is not one JSON object.
    #[error("the worker's config is not a JSON object: {0}")]
    NotJson(String),
    /// It has a version that this build does not read.
    #[error(
        "the worker's config has version {found}; this build reads {OLDEST} to {VERSION}: give worker and operator versions that are at most one apart"
    )]
    Version {
        /// What `v` holds; `absent` where there is none.
        found: String,
    },
    /// A field is missing, unknown, or of a wrong form.
    #[error("the worker's config is wrong in `{field}`: {problem}")]
    Field {
        /// Where, such as `delivery`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

#[cfg(test)]
mod tests;
