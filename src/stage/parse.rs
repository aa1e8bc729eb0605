//! [`Stage::parse`](super::Stage::parse): the schema's bounds, the rules between fields, and the defaults that depend on others.
//!
//! Every rule of `api/v1alpha1/rules.rs` is judged here too, in the same words: the definition in a cluster may be older than this
//! code. What is malformed gets a stand-in while the rest is checked, so that one pass names everything.

use std::time::Duration;

use serde_json::Value;

use super::checks::{Checks, count, is_address, is_label};
use super::{
    Auth, DeadLetterPolicy, Delivery, Idempotency, Ledger, Output, RedisTarget, RetryPolicy,
    SecretKey, Source, Stage, Violation,
};
use crate::api::schema;
use crate::api::v1alpha1::rules;
use crate::api::v1alpha1::{
    self as api, GroupCreation, LedgerMode, StreamStage, StreamStageSpec, Topology,
};
use crate::streams::{self, GroupName, Keys, StartFrom, StreamKey};

/// Absent intervals are at most these, and at most this part of the visibility timeout.
const RECLAIM_INTERVAL: (Duration, u32) = (Duration::from_secs(15), 2);
const COMMAND_TIMEOUT: (Duration, u32) = (Duration::from_secs(5), 3);
const BLOCK_TIMEOUT: (Duration, u32) = (Duration::from_secs(2), 4);

pub(super) fn parse(stage: &StreamStage) -> Result<Stage, Vec<Violation>> {
    let mut checks = Checks::default();
    let spec = &stage.spec;
    let name = checks.name(stage);
    let namespace = checks.namespace(stage);
    // A spec that cannot be written as JSON is refused as no map at all.
    checks.found.extend(schema::check(
        &serde_json::to_value(spec).unwrap_or_default(),
    ));
    let visibility = checks.duration(
        "spec.delivery.visibilityTimeout",
        &spec.delivery.visibility_timeout,
        rules::VISIBILITY_TIMEOUT,
    );
    let redis = checks.redis(&spec.redis, visibility);
    let source = checks.source(&spec.source);
    let keys = checks.keys(spec, &source);
    let delivery = checks.delivery(&spec.delivery, visibility);
    let idempotency = checks.idempotency(&spec.idempotency);
    let retry = checks.retry(&spec.retry);
    let handler = checks.handler(&spec.handler);
    checks.template(spec);
    let drain_timeout = checks.time(
        "spec.drain.timeout",
        &spec.drain.timeout,
        rules::DRAIN_TIMEOUT,
    );
    match keys {
        Some(keys) if checks.found.is_empty() => Ok(Stage {
            name,
            namespace,
            redis,
            source,
            delivery,
            idempotency,
            output: spec.output.as_ref().map(output),
            retry,
            dead_letter: dead_letter(&spec.dead_letter, &keys),
            handler,
            drain_timeout,
            replicas: count(spec.replicas),
            suspend: spec.suspend,
            engine_image: spec.engine.image.clone(),
            engine_resources: serde_json::to_value(&spec.engine.resources).unwrap_or_default(),
            template: serde_json::to_value(&spec.template).unwrap_or_default(),
            keys,
        }),
        _ => Err(checks.found),
    }
}

impl Checks {
    fn name(&mut self, stage: &StreamStage) -> String {
        let name = stage.metadata.name.clone().unwrap_or_default();
        let length = name.chars().count();
        self.hold(length <= 52, "metadata.name", &name, rules::NAME);
        let value = Value::from(name.as_str());
        if name.is_empty() {
            self.found.push(rules::name_absent());
        } else if !name.split('.').all(is_label) {
            self.refuse("metadata.name", &value, rules::METADATA_NAME);
        }
        name
    }

    fn namespace(&mut self, stage: &StreamStage) -> String {
        let namespace = stage.metadata.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        if !is_label(&namespace) {
            let value = Value::from(namespace.as_str());
            self.refuse("metadata.namespace", &value, rules::METADATA_NAMESPACE);
        }
        namespace
    }

    fn redis(&mut self, spec: &api::RedisSpec, visibility: Option<Duration>) -> RedisTarget {
        let exactly_one = match spec.topology {
            // No address at all is told by the schema.
            Topology::Standalone => spec.addresses.len() <= 1,
        };
        let addresses = spec.addresses.join(", ");
        self.hold(
            exactly_one,
            "spec.redis",
            &addresses,
            rules::ADDRESSES_STANDALONE,
        );
        let well_formed = spec.addresses.iter().all(|address| is_address(address));
        self.hold(
            well_formed,
            "spec.redis.addresses",
            &addresses,
            rules::ADDRESS,
        );
        let connect = &spec.connect_timeout;
        let connect = self.time("spec.redis.connectTimeout", connect, rules::CONNECT_TIMEOUT);
        let command = spec.command_timeout.as_ref().and_then(|text| {
            let time = self.duration("spec.redis.commandTimeout", text, rules::COMMAND_TIMEOUT)?;
            let holds = visibility.is_none_or(|visibility| time.saturating_mul(3) <= visibility);
            self.hold(
                holds,
                "spec",
                text.as_str(),
                rules::COMMAND_WITHIN_VISIBILITY,
            );
            Some(time)
        });
        RedisTarget {
            addresses: spec.addresses.clone(),
            database: count(spec.database),
            auth: spec.auth.as_ref().map(auth),
            connect_timeout: connect,
            command_timeout: command.unwrap_or_else(|| part(visibility, COMMAND_TIMEOUT)),
        }
    }

    fn source(&mut self, spec: &api::SourceSpec) -> Source {
        let start_from = match spec.start_from.as_str() {
            "Beginning" => Some(StartFrom::Beginning),
            "End" => Some(StartFrom::End),
            id => id.parse().ok().map(StartFrom::After),
        };
        let field = "spec.source.startFrom";
        self.hold(
            start_from.is_some(),
            field,
            &spec.start_from,
            rules::START_FROM,
        );
        Source {
            stream: StreamKey::new(&spec.stream),
            group: GroupName::new(&spec.consumer_group),
            group_creation: match spec.group_creation {
                GroupCreation::IfMissing => streams::GroupCreation::IfMissing,
                GroupCreation::Never => streams::GroupCreation::Never,
            },
            start_from: start_from.unwrap_or(StartFrom::Beginning),
        }
    }

    /// The stage's keys, if there is a prefix for them; source, output, dead letters and the rest must all differ.
    fn keys(&mut self, spec: &StreamStageSpec, source: &Source) -> Option<Keys> {
        let named = spec.dead_letter.stream.as_deref();
        let dead = named.map(StreamKey::new);
        let keys = Keys::derive(source.stream.clone(), source.group.clone(), dead);
        let field = "spec.source.stream";
        self.hold(keys.is_ok(), field, &source.stream, rules::STREAM_BRACES);
        let keys = keys.ok()?;
        if let Some(dead) = named {
            let is_source = dead == source.stream.as_str();
            self.hold(!is_source, "spec", dead, rules::DEAD_NOT_SOURCE);
            self.hold(
                !keys.is_derived(dead),
                "spec",
                dead,
                rules::DEAD_NOT_DERIVED,
            );
        }
        if let Some(output) = spec.output.as_ref().map(|output| output.stream.as_str()) {
            let is_source = output == source.stream.as_str();
            self.hold(!is_source, "spec", output, rules::OUTPUT_NOT_SOURCE);
            let is_dead = output == keys.dead.as_str();
            self.hold(!is_dead, "spec", output, rules::OUTPUT_NOT_DEAD);
            self.hold(
                !keys.is_derived(output),
                "spec",
                output,
                rules::OUTPUT_NOT_DERIVED,
            );
        }
        Some(keys)
    }

    fn delivery(&mut self, spec: &api::DeliverySpec, visibility: Option<Duration>) -> Delivery {
        let handler = &spec.handler_timeout;
        let handler = self.time(
            "spec.delivery.handlerTimeout",
            handler,
            rules::HANDLER_TIMEOUT,
        );
        let reclaim = spec.reclaim_interval.as_ref().and_then(|text| {
            let field = "spec.delivery.reclaimInterval";
            let time = self.duration(field, text, rules::RECLAIM_INTERVAL)?;
            let holds = visibility.is_none_or(|visibility| time <= visibility);
            self.hold(
                holds,
                "spec.delivery",
                text.as_str(),
                rules::RECLAIM_WITHIN_VISIBILITY,
            );
            Some(time)
        });
        let block = spec.block_timeout.as_ref().and_then(|text| {
            self.duration("spec.delivery.blockTimeout", text, rules::BLOCK_TIMEOUT)
        });
        Delivery {
            visibility_timeout: visibility.unwrap_or_default(),
            handler_timeout: handler,
            reclaim_interval: reclaim.unwrap_or_else(|| part(visibility, RECLAIM_INTERVAL)),
            max_deliveries: count(spec.max_deliveries),
            concurrency: count(spec.concurrency),
            block_timeout: block.unwrap_or_else(|| part(visibility, BLOCK_TIMEOUT)),
        }
    }

    fn idempotency(&mut self, spec: &api::IdempotencySpec) -> Idempotency {
        let has_keys = !spec.key_fields.is_empty();
        let ledger = match spec.ledger {
            Some(LedgerMode::AtCommit) => Ledger::AtCommit,
            None if has_keys => Ledger::AtCommit,
            Some(LedgerMode::Off) | None => Ledger::Off,
        };
        let holds = ledger == Ledger::Off || has_keys;
        self.hold(
            holds,
            "spec.idempotency",
            "0 items",
            rules::LEDGER_NEEDS_KEYS,
        );
        Idempotency {
            key_fields: spec.key_fields.clone(),
            ledger,
            window: self.time("spec.idempotency.window", &spec.window, rules::WINDOW),
        }
    }

    fn retry(&mut self, spec: &api::RetrySpec) -> RetryPolicy {
        let initial = &spec.initial_delay;
        let initial = self.duration("spec.retry.initialDelay", initial, rules::INITIAL_DELAY);
        let max = self.duration("spec.retry.maxDelay", &spec.max_delay, rules::MAX_DELAY);
        let in_order = initial.zip(max).is_none_or(|(initial, max)| initial <= max);
        let value = spec.initial_delay.as_str();
        self.hold(in_order, "spec.retry", value, rules::DELAYS_IN_ORDER);
        RetryPolicy {
            max_attempts: count(spec.max_attempts),
            initial_delay: initial.unwrap_or_default(),
            max_delay: max.unwrap_or_default(),
            multiplier_percent: count(spec.multiplier_percent),
            jitter_percent: count(spec.jitter_percent),
            non_retryable_errors: spec.non_retryable_errors.clone(),
        }
    }
}

fn auth(spec: &api::AuthSpec) -> Auth {
    let key = |from: &api::SecretKeyRef| SecretKey {
        name: from.name.clone(),
        key: from.key.clone(),
    };
    Auth {
        username: spec.username_secret_ref.as_ref().map(key),
        password: key(&spec.password_secret_ref),
    }
}

fn output(spec: &api::OutputSpec) -> Output {
    Output {
        stream: StreamKey::new(&spec.stream),
        max_length: count(spec.max_length),
    }
}

fn dead_letter(spec: &api::DeadLetterSpec, keys: &Keys) -> DeadLetterPolicy {
    DeadLetterPolicy {
        stream: keys.dead.clone(),
        max_length: count(spec.max_length),
        max_error_bytes: count(spec.max_error_bytes),
        max_trace_bytes: count(spec.max_trace_bytes),
    }
}

/// The default that is a part of the visibility timeout, up to a most.
fn part(visibility: Option<Duration>, (most, divisor): (Duration, u32)) -> Duration {
    let part = visibility.unwrap_or_default().checked_div(divisor);
    // Whole milliseconds: that is what every form of a duration can hold.
    let part = part.unwrap_or_default().as_millis();
    most.min(Duration::from_millis(
        u64::try_from(part).unwrap_or(u64::MAX),
    ))
}

#[cfg(test)]
mod tests;
