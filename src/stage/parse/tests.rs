use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn spec() -> Value {
    json!({
        "redis": {"addresses": ["redis:6379"]},
        "source": {"stream": "orders", "consumerGroup": "mail"},
        "delivery": {"visibilityTimeout": "60s"},
        "handler": {"type": "Exec", "exec": {"command": ["cat"]}},
        "template": {"spec": {"containers": [{"name": "handler", "image": "shop/mail"}]}},
    })
}

fn stage(spec: Value) -> Result<Stage, Vec<Violation>> {
    let spec = serde_json::from_value(spec).unwrap();
    let mut stage = StreamStage::new("mail", spec);
    stage.metadata.namespace = Some("shop".to_owned());
    Stage::parse(&stage)
}

fn with_visibility(text: &str) -> Stage {
    let mut spec = spec();
    spec["delivery"]["visibilityTimeout"] = text.into();
    stage(spec).unwrap()
}

#[test]
fn absent_intervals_follow_the_visibility_timeout() {
    for (visibility, reclaim, command, block) in [
        ("2s", 1000, 666, 500),
        ("10s", 5000, 3333, 2000),
        ("60s", 15_000, 5000, 2000),
        ("24h", 15_000, 5000, 2000),
    ] {
        let stage = with_visibility(visibility);
        assert_eq!(
            stage.delivery.reclaim_interval.as_millis(),
            reclaim,
            "{visibility}"
        );
        assert_eq!(
            stage.redis.command_timeout.as_millis(),
            command,
            "{visibility}"
        );
        assert_eq!(
            stage.delivery.block_timeout.as_millis(),
            block,
            "{visibility}"
        );
    }
}

#[test]
fn the_ledger_is_kept_exactly_where_key_fields_are_named_unless_told_otherwise() {
    let ledger = |fields: &[&str], ledger: Option<&str>| {
        let mut spec = spec();
        spec["idempotency"] = json!({"keyFields": fields});
        if let Some(ledger) = ledger {
            spec["idempotency"]["ledger"] = ledger.into();
        }
        stage(spec).map(|stage| stage.idempotency.ledger).ok()
    };
    assert_eq!(ledger(&[], None), Some(Ledger::Off));
    assert_eq!(ledger(&["id"], None), Some(Ledger::AtCommit));
    assert_eq!(ledger(&["id"], Some("Off")), Some(Ledger::Off));
    assert_eq!(ledger(&["id"], Some("AtCommit")), Some(Ledger::AtCommit));
    assert_eq!(ledger(&[], Some("AtCommit")), None);
}

#[test]
fn everything_written_arrives() {
    let mut spec = spec();
    spec["redis"]["auth"] = json!({"usernameSecretRef": {"name": "a", "key": "u"}, "passwordSecretRef": {"name": "a", "key": "p"}});
    spec["source"]["startFrom"] = "5-1".into();
    spec["source"]["groupCreation"] = "Never".into();
    spec["output"] = json!({"stream": "out", "maxLength": 7});
    spec["deadLetter"] = json!({"stream": "bin", "maxErrorBytes": 0});
    spec["engine"] = json!({"image": "x", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}});
    spec["suspend"] = true.into();
    let stage = stage(spec).unwrap();
    assert_eq!(stage.redis.auth.as_ref().unwrap().password.key, "p");
    assert_eq!(
        stage.source.start_from,
        StartFrom::After(streams::EntryId::new(5, 1))
    );
    assert_eq!(stage.source.group_creation, streams::GroupCreation::Never);
    assert_eq!(stage.output.as_ref().unwrap().max_length, 7);
    assert_eq!(stage.dead_letter.stream.as_str(), "bin");
    assert_eq!(stage.keys().dead.as_str(), "bin");
    assert_eq!(
        stage.engine_resources,
        json!({"limits": {"cpu": 1, "memory": "1Gi"}})
    );
    assert_eq!(stage.template["spec"]["containers"][0]["name"], "handler");
    assert_eq!((stage.namespace.as_str(), stage.suspend), ("shop", true));
}

#[test]
fn rust_defaults_are_the_schemas() {
    let nothing = json!({});
    assert_eq!(
        serde_json::from_value::<api::RetrySpec>(nothing.clone()).unwrap(),
        api::RetrySpec::default()
    );
    assert_eq!(
        serde_json::from_value::<api::DrainSpec>(nothing.clone()).unwrap(),
        api::DrainSpec::default()
    );
    assert_eq!(
        serde_json::from_value::<api::DeadLetterSpec>(nothing.clone()).unwrap(),
        api::DeadLetterSpec::default()
    );
    assert_eq!(
        serde_json::from_value::<api::IdempotencySpec>(nothing.clone()).unwrap(),
        api::IdempotencySpec::default()
    );
    assert_eq!(
        serde_json::from_value::<api::EngineSpec>(nothing).unwrap(),
        api::EngineSpec::default()
    );
}

#[test]
fn bounds_of_the_schema_hold_without_an_api_server() {
    let mut spec = spec();
    spec["delivery"]["concurrency"] = 1025.into();
    spec["redis"]["database"] = (-1).into();
    spec["idempotency"] = json!({"keyFields": ["a", "a"]});
    let found = stage(spec).unwrap_err();
    let lines: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "spec.delivery.concurrency: 1025: must be between 1 and 1024",
            "spec.idempotency.keyFields[1]: a: may not be listed twice: remove one of them",
            "spec.redis.database: -1: must be between 0 and 1023",
        ]
    );
}

#[test]
fn an_id_beyond_what_redis_counts_is_refused() {
    let mut spec = spec();
    spec["source"]["startFrom"] = "99999999999999999999".into();
    assert_eq!(
        stage(spec).unwrap_err()[0].message,
        rules::START_FROM.message
    );
}

/// Times near every bound, and texts that are none.
fn time() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0_u32..4000).prop_map(|millis| json!(format!("{millis}ms"))),
        (0_u32..120).prop_map(|seconds| json!(format!("{seconds}s"))),
        (0_u32..200).prop_map(|hours| json!(format!("{hours}h"))),
        Just(json!("soon")),
    ]
}

prop_compose! {
    fn any_spec()(
        times in proptest::array::uniform9(time()),
        counts in proptest::array::uniform4(-1_i32..1100),
        source in "[a{}]{0,4}",
        dead in proptest::option::of("[a{}]{1,3}"),
        fields in proptest::collection::vec("[ab]", 0..3),
        ledger in prop_oneof![Just(Value::Null), Just(json!("AtCommit")), Just(json!("Off"))],
        given in proptest::collection::vec(any::<bool>(), 8),
    ) -> Value {
        let mut spec = spec();
        let targets = [
            ("redis", "connectTimeout"), ("redis", "commandTimeout"), ("delivery", "handlerTimeout"),
            ("delivery", "reclaimInterval"), ("delivery", "blockTimeout"), ("retry", "initialDelay"),
            ("retry", "maxDelay"), ("drain", "timeout"),
        ];
        spec["delivery"]["visibilityTimeout"] = times[8].clone();
        for (((block, field), time), _) in targets.iter().zip(&times).zip(&given).filter(|(_, given)| **given) {
            spec[block][field] = time.clone();
        }
        spec["replicas"] = counts[0].into();
        spec["delivery"]["concurrency"] = counts[1].into();
        spec["delivery"]["maxDeliveries"] = counts[2].into();
        spec["retry"]["multiplierPercent"] = counts[3].into();
        spec["source"]["stream"] = source.into();
        spec["idempotency"] = json!({"keyFields": fields, "ledger": ledger});
        if let Some(dead) = dead {
            spec["deadLetter"] = json!({"stream": dead});
        }
        spec
    }
}

/// What every reader of a stage may rely on.
fn consistent(stage: &Stage) -> bool {
    let (redis, delivery, retry) = (&stage.redis, &stage.delivery, &stage.retry);
    let keys = stage.keys();
    let streams = BTreeSet::from([&keys.source, &keys.retry, &keys.dead]);
    redis.command_timeout * 3 <= delivery.visibility_timeout
        && !redis.command_timeout.is_zero()
        && !redis.connect_timeout.is_zero()
        && delivery.reclaim_interval <= delivery.visibility_timeout
        && delivery.reclaim_interval >= Duration::from_millis(500)
        && delivery.block_timeout >= Duration::from_millis(100)
        && delivery.handler_timeout >= Duration::from_millis(100)
        && delivery.concurrency >= 1
        && delivery.max_deliveries >= 1
        && retry.initial_delay <= retry.max_delay
        && retry.multiplier_percent >= 100
        && (stage.idempotency.ledger == Ledger::Off || !stage.idempotency.key_fields.is_empty())
        && stage.replicas <= 1000
        && streams.len() == 3
        && stage.dead_letter.stream == keys.dead
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_parses_is_consistent(spec in any_spec()) {
        match stage(spec) {
            Ok(stage) => prop_assert!(consistent(&stage), "{:?}", stage),
            Err(found) => prop_assert!(!found.is_empty()),
        }
    }
}
