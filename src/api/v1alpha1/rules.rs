//! Every CEL rule: its expression and its words.
//!
//! The schema carries both, `Stage::parse` refuses with the same words, and a table in `tests/it/manifests.rs` holds a spec that
//! breaks each. Style: "must" and "may not", words instead of symbols, field names in backticks; the rule names its own remedy.

use kube::core::{Reason, Rule};

use crate::api::Violation;

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CelRule {
    /// True where all is well.
    pub cel: &'static str,
    /// What is said otherwise.
    pub message: &'static str,
    /// The field at fault, below the place that carries the rule; empty = that place itself.
    pub field: &'static str,
}

/// The least and the most that a duration may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationRule {
    /// The least.
    pub min: &'static str,
    /// The most.
    pub max: &'static str,
    /// The rule that says so.
    pub rule: CelRule,
}

impl CelRule {
    const fn new(cel: &'static str, message: &'static str) -> Self {
        Self::at("", cel, message)
    }

    const fn at(field: &'static str, cel: &'static str, message: &'static str) -> Self {
        Self {
            cel,
            message,
            field,
        }
    }

    pub(super) fn rule(self) -> Rule {
        let rule = Rule::new(self.cel).message(self.message);
        match self.field {
            "" => rule,
            field => rule.field_path(field).reason(Reason::FieldValueInvalid),
        }
    }
}

impl DurationRule {
    pub(super) fn rule(self) -> Rule {
        self.rule.rule()
    }
}

macro_rules! between {
    ($min:literal, $max:literal) => {
        DurationRule {
            min: $min,
            max: $max,
            rule: CelRule::new(
                concat!(
                    "duration(self) >= duration('",
                    $min,
                    "') && duration(self) <= duration('",
                    $max,
                    "')"
                ),
                concat!("must be between ", $min, " and ", $max),
            ),
        }
    };
}

/// `metadata.name`. It sits at the root, where a rule can not point at a field.
pub const NAME: CelRule = CelRule::new(
    "self.metadata.name.size() <= 52",
    "`metadata.name` must be at most 52 characters long, as the names of pods and consumers begin with it",
);

/// `redis.addresses`.
pub const ADDRESSES_STANDALONE: CelRule = CelRule::at(
    ".addresses",
    "self.topology != 'Standalone' || size(self.addresses) == 1",
    "must hold exactly one address while `topology` is Standalone",
);
/// `redis.addresses`.
pub const ADDRESS: CelRule = CelRule::new(
    "self.all(address, address.matches('^([0-9A-Za-z][0-9A-Za-z._-]*|\\\\[[0-9A-Fa-f:.]+\\\\]):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$'))",
    "must be written as host:port, such as `redis-master.shop.svc:6379`",
);
/// `redis.connectTimeout`.
pub const CONNECT_TIMEOUT: DurationRule = between!("100ms", "60s");
/// `redis.commandTimeout`.
pub const COMMAND_TIMEOUT: DurationRule = between!("100ms", "8h");
/// `redis.commandTimeout` against `delivery.visibilityTimeout`.
pub const COMMAND_WITHIN_VISIBILITY: CelRule = CelRule::at(
    ".redis.commandTimeout",
    "!has(self.redis.commandTimeout) || duration(self.redis.commandTimeout) + duration(self.redis.commandTimeout) + duration(self.redis.commandTimeout) <= duration(self.delivery.visibilityTimeout)",
    "may not exceed a third of `delivery.visibilityTimeout`",
);

/// `source.stream`, `source.consumerGroup`, `source.startFrom`.
pub const IMMUTABLE: CelRule = CelRule::new(
    "self == oldSelf",
    "may not be changed: create another stage instead",
);
/// `source.stream`.
pub const STREAM_BRACES: CelRule = CelRule::new(
    "self.matches('(?s)^([^}]*|[^{]*[{][^}]+[}].*)$') && !self.matches('(?s)^[^{]*[{][}]')",
    "may hold a `}` only to close a hash tag that is not empty, as in `{tag}name`",
);
/// `source.startFrom`.
pub const START_FROM: CelRule = CelRule::new(
    "self.matches('^(Beginning|End|[0-9]{1,20}(-[0-9]{1,20})?)$')",
    "must be `Beginning`, `End` or an entry id such as `1700000000000-0`",
);

/// `delivery.visibilityTimeout`.
pub const VISIBILITY_TIMEOUT: DurationRule = between!("2s", "24h");
/// `delivery.handlerTimeout`.
pub const HANDLER_TIMEOUT: DurationRule = between!("100ms", "24h");
/// `delivery.reclaimInterval`.
pub const RECLAIM_INTERVAL: DurationRule = between!("500ms", "1h");
/// `delivery.reclaimInterval` against `delivery.visibilityTimeout`.
pub const RECLAIM_WITHIN_VISIBILITY: CelRule = CelRule::at(
    ".reclaimInterval",
    "!has(self.reclaimInterval) || duration(self.reclaimInterval) <= duration(self.visibilityTimeout)",
    "may not exceed `visibilityTimeout`",
);
/// `delivery.blockTimeout`.
pub const BLOCK_TIMEOUT: DurationRule = between!("100ms", "30s");

/// `idempotency.keyFields` against `idempotency.ledger`.
pub const LEDGER_NEEDS_KEYS: CelRule = CelRule::at(
    ".keyFields",
    "!has(self.ledger) || self.ledger != 'AtCommit' || size(self.keyFields) > 0",
    "must name at least one field while `ledger` is AtCommit",
);
/// `idempotency.window`.
pub const WINDOW: DurationRule = between!("1m", "9999h");

/// `retry.initialDelay`.
pub const INITIAL_DELAY: DurationRule = between!("100ms", "1h");
/// `retry.maxDelay`.
pub const MAX_DELAY: DurationRule = between!("100ms", "168h");
/// `retry.initialDelay` against `retry.maxDelay`. The API server judges the default `{}` before it fills in the leaves.
pub const DELAYS_IN_ORDER: CelRule = CelRule::at(
    ".initialDelay",
    "!has(self.initialDelay) || !has(self.maxDelay) || duration(self.initialDelay) <= duration(self.maxDelay)",
    "may not exceed `maxDelay`",
);

/// Binds `p` to the prefix of the stage's own keys, as `Keys::derive` makes it: CEL has no other way to name a value.
macro_rules! with_prefix {
    ($body:literal) => {
        concat!(
            "[self.source.stream.indexOf('{')].all(o, ",
            "[o < 0 ? -1 : self.source.stream.indexOf('}', o)].all(c, ",
            "[(c > o + 1 ? '{' + self.source.stream.substring(o + 1, c) + '}:' + self.source.stream ",
            ": '{' + self.source.stream + '}') ",
            "+ ':' + self.source.consumerGroup.replace('%', '%25').replace(':', '%3A')].all(p, ",
            $body,
            ")))"
        )
    };
}

/// `output.stream` against `source.stream`.
pub const OUTPUT_NOT_SOURCE: CelRule = CelRule::at(
    ".output.stream",
    "!has(self.output) || self.output.stream != self.source.stream",
    "must be different from `source.stream`: the stage would read its own outputs",
);
/// `output.stream` against `deadLetter.stream`.
pub const OUTPUT_NOT_DEAD: CelRule = CelRule::at(
    ".output.stream",
    with_prefix!(
        "!has(self.output) || self.output.stream != (has(self.deadLetter.stream) ? self.deadLetter.stream : p + ':dead')"
    ),
    "must be different from the dead-letter stream: name another stream",
);
/// `output.stream` against the stage's own keys.
pub const OUTPUT_NOT_DERIVED: CelRule = CelRule::at(
    ".output.stream",
    with_prefix!(
        "!has(self.output) || !(self.output.stream in [p + ':retry', p + ':delayed', p + ':workers', p + ':cursor'] || self.output.stream.startsWith(p + ':done:'))"
    ),
    "must be different from the keys that the stage keeps for itself: name another stream",
);
/// `deadLetter.stream` against `source.stream`.
pub const DEAD_NOT_SOURCE: CelRule = CelRule::at(
    ".deadLetter.stream",
    "!has(self.deadLetter.stream) || self.deadLetter.stream != self.source.stream",
    "must be different from `source.stream`: the stage would read its own dead letters",
);
/// `deadLetter.stream` against the stage's own keys.
pub const DEAD_NOT_DERIVED: CelRule = CelRule::at(
    ".deadLetter.stream",
    with_prefix!(
        "!has(self.deadLetter.stream) || !(self.deadLetter.stream in [p + ':retry', p + ':delayed', p + ':workers', p + ':cursor'] || self.deadLetter.stream.startsWith(p + ':done:'))"
    ),
    "must be different from the keys that the stage keeps for itself: name another stream",
);

/// `handler` against its type.
pub const HANDLER_BLOCK: CelRule = CelRule::new(
    "(self.type == 'HTTP') == has(self.http) && (self.type == 'Exec') == has(self.exec)",
    "must hold the block of its `type` and no other: `http` for HTTP, `exec` for Exec",
);
/// `handler.http.port`.
pub const HANDLER_PORT: CelRule = CelRule::new(
    "self != 9300",
    "may not be 9300, the engine's own port in the pod: let the handler listen on another",
);
/// `handler.http.path`.
pub const HANDLER_PATH: CelRule = CelRule::new(
    "self.matches('^/[!\"$-~]*$')",
    "must start with `/` and hold visible ASCII characters only, without `#`: percent-encode others",
);
/// `handler.exec.command`.
pub const HANDLER_COMMAND: CelRule = CelRule::new(
    "size(self) == 0 || size(self[0]) > 0",
    "must begin with the program to start: its first item may not be empty",
);

/// `template.metadata.labels`.
pub const TEMPLATE_LABELS: CelRule = CelRule::new(
    "self.all(key, !key.startsWith('streamstage.io/') && !key.startsWith('app.kubernetes.io/'))",
    "may not use the prefixes `streamstage.io/` and `app.kubernetes.io/`, which the operator sets: use another",
);
/// `template.metadata.annotations`.
pub const TEMPLATE_ANNOTATIONS: CelRule = CelRule::new(
    "self.all(key, !key.startsWith('streamstage.io/'))",
    "may not use the prefix `streamstage.io/`, which the operator sets: use another",
);

/// `drain.timeout`.
pub const DRAIN_TIMEOUT: DurationRule = between!("0s", "1h");

/// `template.spec.containers`; beyond what CEL can see.
pub const CONTAINERS: &str =
    "must list at least one container: the handler's, named `handler` or standing first";
/// A container of the template; beyond what CEL can see.
pub const CONTAINER_NAME: &str = "must be a text that names the container";
/// The image of a container of the template; beyond what CEL can see.
pub const CONTAINER_IMAGE: &str = "must be a text that names the container's image";
/// A key of a label or annotation. Not in CEL: no schema bounds a key's length, so a pattern over them may cost more than the API
/// server grants.
pub const METADATA_KEY: &str = "must be at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at each end, and before it at most a domain and `/`";
/// The handler's container in an Exec stage; beyond what CEL can see.
pub const EXEC_CONTAINER: &str = "may not be set on the handler's container of an Exec stage: the engine starts there, and runs `handler.exec.command`";
/// `metadata.name`; the API server checks it by itself.
pub const METADATA_NAME: &str =
    "must be lower case letters, digits, `-` and `.`, with a letter or digit at each end";
/// `metadata.namespace`; the API server checks it by itself.
pub const METADATA_NAMESPACE: &str =
    "must be at most 63 lower case letters, digits and `-`, with a letter or digit at each end";

/// `metadata.name` is missing.
pub fn name_absent() -> Violation {
    Violation {
        field: "metadata.name".to_owned(),
        value: "absent".to_owned(),
        message: "must be set: it names the stage".to_owned(),
    }
}
