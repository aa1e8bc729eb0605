//! Every CEL rule, with a spec that breaks it: refused by the generated schema and by `Stage::parse`, in the same words.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use proptest::prelude::*;
use serde_json::{Value, json};
use streamstage::api;
use streamstage::api::v1alpha1::StreamStage;
use streamstage::api::v1alpha1::rules::{self, CelRule};
use streamstage::stage::Stage;

/// A StreamStage that breaks nothing, with every optional field set.
fn valid() -> Value {
    json!({
        "apiVersion": "streamstage.io/v1alpha1",
        "kind": "StreamStage",
        "metadata": {"name": "mail", "namespace": "shop"},
        "spec": {
            "redis": {"addresses": ["redis:6379"], "commandTimeout": "5s"},
            "source": {"stream": "orders", "consumerGroup": "mail"},
            "delivery": {"visibilityTimeout": "30s", "reclaimInterval": "15s", "blockTimeout": "2s"},
            "idempotency": {"keyFields": ["id"], "ledger": "AtCommit"},
            "output": {"stream": "mailed"},
            "deadLetter": {"stream": "dead"},
            "handler": {"type": "HTTP", "http": {"port": 8080}},
            "template": {
                "metadata": {"labels": {"team": "shop"}, "annotations": {"note": "x"}},
                "spec": {"containers": [{"name": "handler", "image": "shop/mail"}]},
            },
        },
    })
}

/// Sets fields given by pointer; `null` removes one.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut stage = valid();
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = stage.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(field);
        } else {
            parent.insert(field.to_owned(), value.clone());
        }
    }
    stage
}

fn typed(stage: &Value) -> StreamStage {
    serde_json::from_value(stage.clone()).unwrap()
}

fn schema() -> Value {
    let crd = serde_json::to_value(api::crd()).unwrap();
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    crd.pointer(schema).unwrap().clone()
}

static COMPILED: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&schema()));

/// What the schema's rules say of a stage: (field, message).
fn schema_says(stage: &StreamStage, old: Option<&StreamStage>) -> BTreeSet<(String, String)> {
    let object = serde_json::to_value(stage).unwrap();
    let old = old.map(|old| serde_json::to_value(old).unwrap());
    match Validator::new().validate_compiled(&COMPILED, &object, old.as_ref()) {
        Ok(()) => BTreeSet::new(),
        Err(errors) => errors
            .into_vec()
            .into_iter()
            .map(|e| (place(&e.field_path), e.message))
            .collect(),
    }
}

/// Where a rule reports; the one at the root can not point at its field, and names it.
fn place(path: &str) -> String {
    match path.trim_start_matches('.') {
        "" => "metadata.name".to_owned(),
        path => path.to_owned(),
    }
}

/// What `Stage::parse` says of it.
fn parse_says(stage: &StreamStage) -> BTreeSet<(String, String)> {
    match Stage::parse(stage) {
        Ok(_) => BTreeSet::new(),
        Err(violations) => violations
            .into_iter()
            .map(|v| (v.field, v.message))
            .collect(),
    }
}

/// A rule where it is reported, and a change that breaks it alone.
type Row = (
    &'static str,
    CelRule,
    &'static [(&'static str, &'static str)],
);

/// Values are JSON.
const ROWS: &[Row] = &[
    (
        "metadata.name",
        rules::NAME,
        &[(
            "/metadata/name",
            r#""a1234567890123456789012345678901234567890123456789012""#,
        )],
    ),
    (
        "spec.redis.addresses",
        rules::ADDRESSES_STANDALONE,
        &[("/spec/redis/addresses", r#"["a:1", "b:2"]"#)],
    ),
    (
        "spec.redis.addresses",
        rules::ADDRESS,
        &[("/spec/redis/addresses", r#"["redis"]"#)],
    ),
    (
        "spec.redis.connectTimeout",
        rules::CONNECT_TIMEOUT.rule,
        &[("/spec/redis/connectTimeout", r#""99ms""#)],
    ),
    (
        "spec.redis.connectTimeout",
        rules::CONNECT_TIMEOUT.rule,
        &[("/spec/redis/connectTimeout", r#""1m1s""#)],
    ),
    (
        "spec.redis.commandTimeout",
        rules::COMMAND_TIMEOUT.rule,
        &[("/spec/redis/commandTimeout", r#""99ms""#)],
    ),
    (
        "spec.redis.commandTimeout",
        rules::COMMAND_WITHIN_VISIBILITY,
        &[("/spec/redis/commandTimeout", r#""10001ms""#)],
    ),
    (
        "spec.source.stream",
        rules::STREAM_BRACES,
        &[("/spec/source/stream", r#""a}b""#)],
    ),
    (
        "spec.source.stream",
        rules::STREAM_BRACES,
        &[("/spec/source/stream", r#""{}a""#)],
    ),
    (
        "spec.source.startFrom",
        rules::START_FROM,
        &[("/spec/source/startFrom", r#""beginning""#)],
    ),
    (
        "spec.delivery.visibilityTimeout",
        rules::VISIBILITY_TIMEOUT.rule,
        &[
            ("/spec/delivery/visibilityTimeout", r#""1999ms""#),
            ("/spec/delivery/reclaimInterval", "null"),
            ("/spec/redis/commandTimeout", "null"),
        ],
    ),
    (
        "spec.delivery.visibilityTimeout",
        rules::VISIBILITY_TIMEOUT.rule,
        &[("/spec/delivery/visibilityTimeout", r#""24h1ms""#)],
    ),
    (
        "spec.delivery.handlerTimeout",
        rules::HANDLER_TIMEOUT.rule,
        &[("/spec/delivery/handlerTimeout", r#""25h""#)],
    ),
    (
        "spec.delivery.reclaimInterval",
        rules::RECLAIM_INTERVAL.rule,
        &[("/spec/delivery/reclaimInterval", r#""499ms""#)],
    ),
    (
        "spec.delivery.reclaimInterval",
        rules::RECLAIM_WITHIN_VISIBILITY,
        &[("/spec/delivery/reclaimInterval", r#""31s""#)],
    ),
    (
        "spec.delivery.blockTimeout",
        rules::BLOCK_TIMEOUT.rule,
        &[("/spec/delivery/blockTimeout", r#""31s""#)],
    ),
    (
        "spec.idempotency.keyFields",
        rules::LEDGER_NEEDS_KEYS,
        &[("/spec/idempotency/keyFields", "[]")],
    ),
    (
        "spec.idempotency.window",
        rules::WINDOW.rule,
        &[("/spec/idempotency/window", r#""59s""#)],
    ),
    (
        "spec.output.stream",
        rules::OUTPUT_NOT_SOURCE,
        &[("/spec/output/stream", r#""orders""#)],
    ),
    (
        "spec.output.stream",
        rules::OUTPUT_NOT_DEAD,
        &[("/spec/output/stream", r#""dead""#)],
    ),
    (
        "spec.output.stream",
        rules::OUTPUT_NOT_DEAD,
        &[
            ("/spec/output/stream", r#""{orders}:mail:dead""#),
            ("/spec/deadLetter", "{}"),
        ],
    ),
    (
        "spec.output.stream",
        rules::OUTPUT_NOT_DERIVED,
        &[("/spec/output/stream", r#""{orders}:mail:retry""#)],
    ),
    (
        "spec.output.stream",
        rules::OUTPUT_NOT_DERIVED,
        &[
            ("/spec/source/stream", r#""a{b}c""#),
            ("/spec/source/consumerGroup", r#""x:y%""#),
            ("/spec/output/stream", r#""{b}:a{b}c:x%3Ay%25:done:z""#),
        ],
    ),
    (
        "spec.deadLetter.stream",
        rules::DEAD_NOT_SOURCE,
        &[("/spec/deadLetter/stream", r#""orders""#)],
    ),
    (
        "spec.deadLetter.stream",
        rules::DEAD_NOT_DERIVED,
        &[("/spec/deadLetter/stream", r#""{orders}:mail:cursor""#)],
    ),
    (
        "spec.retry.initialDelay",
        rules::INITIAL_DELAY.rule,
        &[("/spec/retry", r#"{"initialDelay": "99ms"}"#)],
    ),
    (
        "spec.retry.maxDelay",
        rules::MAX_DELAY.rule,
        &[("/spec/retry", r#"{"maxDelay": "169h"}"#)],
    ),
    (
        "spec.retry.initialDelay",
        rules::DELAYS_IN_ORDER,
        &[("/spec/retry", r#"{"initialDelay": "2m", "maxDelay": "1m"}"#)],
    ),
    (
        "spec.handler",
        rules::HANDLER_BLOCK,
        &[("/spec/handler/exec", r#"{"command": ["x"]}"#)],
    ),
    (
        "spec.handler",
        rules::HANDLER_BLOCK,
        &[("/spec/handler/http", "null")],
    ),
    (
        "spec.handler",
        rules::HANDLER_BLOCK,
        &[("/spec/handler/type", r#""Exec""#)],
    ),
    (
        "spec.handler.http.port",
        rules::HANDLER_PORT,
        &[("/spec/handler/http/port", "9300")],
    ),
    (
        "spec.handler.http.path",
        rules::HANDLER_PATH,
        &[("/spec/handler/http/path", r#""orders""#)],
    ),
    (
        "spec.handler.http.path",
        rules::HANDLER_PATH,
        &[("/spec/handler/http/path", r#""/a b""#)],
    ),
    (
        "spec.handler.http.path",
        rules::HANDLER_PATH,
        &[("/spec/handler/http/path", r#""/a#b""#)],
    ),
    (
        "spec.handler.exec.command",
        rules::HANDLER_COMMAND,
        &[(
            "/spec/handler",
            r#"{"type": "Exec", "exec": {"command": [""]}}"#,
        )],
    ),
    (
        "spec.template.metadata.labels",
        rules::TEMPLATE_LABELS,
        &[(
            "/spec/template/metadata/labels",
            r#"{"streamstage.io/stage": "x"}"#,
        )],
    ),
    (
        "spec.template.metadata.labels",
        rules::TEMPLATE_LABELS,
        &[(
            "/spec/template/metadata/labels",
            r#"{"app.kubernetes.io/name": "x"}"#,
        )],
    ),
    (
        "spec.template.metadata.annotations",
        rules::TEMPLATE_ANNOTATIONS,
        &[(
            "/spec/template/metadata/annotations",
            r#"{"streamstage.io/x": "x"}"#,
        )],
    ),
    (
        "spec.drain.timeout",
        rules::DRAIN_TIMEOUT.rule,
        &[("/spec/drain", r#"{"timeout": "61m"}"#)],
    ),
];

/// What may not change once a stage exists.
const IMMUTABLE: [(&str, &str); 3] = [
    ("spec.source.stream", "/spec/source/stream"),
    ("spec.source.consumerGroup", "/spec/source/consumerGroup"),
    ("spec.source.startFrom", "/spec/source/startFrom"),
];

fn broken(changes: &[(&str, &str)]) -> StreamStage {
    let changes: Vec<_> = changes
        .iter()
        .map(|(pointer, value)| (*pointer, serde_json::from_str(value).unwrap()))
        .collect();
    typed(&with(&changes))
}

#[test]
fn each_rule_is_broken_alone_and_named_alike_by_schema_and_parse() {
    for (field, rule, changes) in ROWS {
        let stage = broken(changes);
        let expected = BTreeSet::from([((*field).to_owned(), rule.message.to_owned())]);
        assert_eq!(schema_says(&stage, None), expected, "schema: {changes:?}");
        assert_eq!(parse_says(&stage), expected, "parse: {changes:?}");
    }
}

#[test]
fn what_may_not_change_is_refused_on_update_only() {
    let old = typed(&valid());
    for (field, pointer) in IMMUTABLE {
        let new = typed(&with(&[(pointer, json!("End"))]));
        let expected = BTreeSet::from([(field.to_owned(), rules::IMMUTABLE.message.to_owned())]);
        assert_eq!(schema_says(&new, Some(&old)), expected, "{field}");
        assert_eq!(schema_says(&new, None), BTreeSet::new(), "{field}");
    }
    assert_eq!(schema_says(&old, Some(&old)), BTreeSet::new());
}

/// Every rule of the schema as (where it is reported, message).
fn collect(schema: &Value, path: &str, into: &mut BTreeSet<(String, String)>) {
    for rule in schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let below = rule
            .get("fieldPath")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let field = format!("{path}{below}");
        into.insert((place(&field), rule["message"].as_str().unwrap().to_owned()));
    }
    for (name, child) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        collect(child, &format!("{path}.{name}"), into);
    }
    for child in ["items", "additionalProperties"]
        .iter()
        .filter_map(|key| schema.get(*key))
    {
        collect(child, &format!("{path}[]"), into);
    }
}

#[test]
fn the_table_has_a_row_for_every_rule_of_the_schema() {
    let mut in_schema = BTreeSet::new();
    collect(&schema(), "", &mut in_schema);
    let mut in_table: BTreeSet<_> = ROWS
        .iter()
        .map(|(field, rule, _)| ((*field).to_owned(), rule.message.to_owned()))
        .collect();
    for (field, _) in IMMUTABLE {
        in_table.insert((field.to_owned(), rules::IMMUTABLE.message.to_owned()));
    }
    assert_eq!(in_schema, in_table);
}

#[test]
fn every_rule_compiles_and_its_words_follow_the_style() {
    assert!(
        !COMPILED.has_errors(),
        "{:?}",
        COMPILED.compilation_errors()
    );
    for (_, rule, _) in ROWS {
        let words = rule.message.trim_start_matches("`metadata.name` ");
        assert!(
            words.starts_with("must ") || words.starts_with("may "),
            "{words}"
        );
        assert!(!words.contains(['<', '>', '=']), "{words}");
    }
}

/// Every schema that defaults to an empty object.
fn parents(schema: &Value, found: &mut Vec<Value>) {
    if schema.get("default") == Some(&json!({})) {
        found.push(schema.clone());
    }
    for child in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        parents(child.1, found);
    }
}

#[test]
fn defaults_break_no_rule_before_their_leaves_are_filled_in() {
    // The API server judges them so when it admits the definition, and refuses it otherwise.
    let mut found = Vec::new();
    parents(&schema(), &mut found);
    assert!(found.len() >= 6, "only {} parents", found.len());
    for schema in found {
        let judged = Validator::new().validate(&schema, &json!({}), None);
        assert!(judged.is_ok(), "{:?}", judged.unwrap_err());
    }
}

#[test]
fn what_is_valid_breaks_no_rule() {
    for stage in [
        valid(),
        with(&[
            ("/spec/output", Value::Null),
            ("/spec/deadLetter", Value::Null),
        ]),
        with(&[
            ("/spec/redis/addresses", json!(["[::1]:6379"])),
            ("/spec/redis/commandTimeout", json!("10s")),
        ]),
        with(&[
            ("/spec/idempotency", json!({"ledger": "Off"})),
            ("/spec/drain", json!({"timeout": "0s"})),
        ]),
        with(&[(
            "/spec/handler",
            json!({"type": "Exec", "exec": {"command": ["cat", ""]}}),
        )]),
        with(&[
            ("/spec/source/stream", json!("a{b}c")),
            ("/spec/source/startFrom", json!("1-2")),
        ]),
    ] {
        let stage = typed(&stage);
        assert_eq!(schema_says(&stage, None), BTreeSet::new());
        assert_eq!(parse_says(&stage), BTreeSet::new());
    }
}

prop_compose! {
    /// Names that are likely to touch each other and the keys derived from them.
    fn names()(
        source in "[a{}]{1,4}",
        group in "[g:%]{1,2}",
        output in proptest::option::of("[a{}]{1,4}"),
        dead in proptest::option::of("[a{}]{1,4}"),
        suffix in prop_oneof![Just(""), Just(":dead"), Just(":retry"), Just(":done:x"), Just(":delay")],
        is_derived in any::<bool>(),
    ) -> Vec<(&'static str, Value)> {
        use streamstage::streams::{GroupName, Keys, StreamKey};
        let keys = Keys::derive(StreamKey::new(&source), GroupName::new(&group), None);
        let derived = keys.ok().map(|keys| keys.dead.as_str().replace(":dead", suffix));
        let output = if is_derived { derived.or(output) } else { output };
        let stream = |name: Option<String>| name.map_or(Value::Null, |name| json!({"stream": name}));
        vec![
            ("/spec/source/stream", json!(source)),
            ("/spec/source/consumerGroup", json!(group)),
            ("/spec/output", stream(output)),
            ("/spec/deadLetter", stream(dead)),
        ]
    }
}

prop_compose! {
    fn times()(
        millis in proptest::array::uniform6(prop_oneof![0_u32..3000, 0_u32..90_000]),
        address in r"[a1\[\]:.#-]{0,6}(:[0-9]{0,6})?",
        path in "/?[a# \"~]{0,3}",
        start_from in "(End|Beginning|[0-9]{0,3}-?[0-9]{0,3})",
    ) -> Vec<(&'static str, Value)> {
        let time = millis.map(|millis| json!(format!("{}s{}ms", millis / 1000, millis % 1000)));
        let [visibility, command, reclaim, block, initial, max] = time;
        vec![
            ("/spec/delivery/visibilityTimeout", visibility),
            ("/spec/redis/commandTimeout", command),
            ("/spec/delivery/reclaimInterval", reclaim),
            ("/spec/delivery/blockTimeout", block),
            ("/spec/retry", json!({"initialDelay": initial, "maxDelay": max})),
            ("/spec/redis/addresses", json!([address])),
            ("/spec/handler/http/path", json!(path)),
            ("/spec/source/startFrom", json!(start_from)),
        ]
    }
}

/// What the API server says by bounds, not by rules.
fn without_bounds(said: BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    said.into_iter()
        .filter(|(_, message)| !message.starts_with("may not be empty"))
        .collect()
}

proptest! {
    #[test]
    fn schema_and_parse_judge_names_alike(changes in names()) {
        let stage = typed(&with(&changes));
        let parsed = parse_says(&stage);
        let mut schema = schema_says(&stage, None);
        if schema.iter().any(|(field, _)| field == "spec.source.stream") {
            // Without a prefix there are no derived keys to compare with.
            schema.retain(|(field, _)| field == "spec.source.stream");
        }
        prop_assert_eq!(schema, parsed);
    }

    #[test]
    fn schema_and_parse_judge_times_and_forms_alike(changes in times()) {
        let stage = typed(&with(&changes));
        prop_assert_eq!(schema_says(&stage, None), without_bounds(parse_says(&stage)));
    }
}
