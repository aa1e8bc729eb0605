use proptest::prelude::*;

use super::*;
use crate::streams::{EntryId, GroupName, StreamKey};

prop_compose! {
    fn redis()(
        host in "[a-z]{1,12}",
        database in 0_u32..1024,
        credentials in prop_oneof![
            Just(Credentials::None),
            (proptest::option::of("/[ -~]{1,20}"), "/[ -~]{1,20}").prop_map(|(username, password)| {
                Credentials::Files { username: username.map(Into::into), password: password.into() }
            }),
        ],
        connect in 1_u64..100_000,
        command in 1_u64..100_000,
    ) -> RedisConfig {
        RedisConfig {
            address: format!("{host}:6379"),
            database,
            credentials,
            connect_timeout: Duration::from_millis(connect),
            command_timeout: Duration::from_millis(command),
        }
    }
}

prop_compose! {
    fn source()(
        stream in "[^{}]{1,20}",
        group in ".{1,20}",
        is_created in any::<bool>(),
        start_from in prop_oneof![
            Just(StartFrom::Beginning),
            Just(StartFrom::End),
            (any::<u64>(), any::<u64>()).prop_map(|(a, b)| StartFrom::After(EntryId::new(a, b))),
        ],
    ) -> Source {
        Source {
            stream: StreamKey::new(stream),
            group: GroupName::new(group),
            group_creation: if is_created { GroupCreation::IfMissing } else { GroupCreation::Never },
            start_from,
        }
    }
}

prop_compose! {
    fn policies()(
        times in proptest::array::uniform8(1_u64..1_000_000_000),
        counts in proptest::array::uniform8(1_u32..1_000_000),
        words in proptest::collection::vec(".{0,12}", 0..4),
        output in proptest::option::of(".{1,20}"),
        handler in prop_oneof![
            (any::<u16>(), "/[ -~]{0,20}").prop_map(|(port, path)| HandlerSpec::Http { port, path }),
            proptest::collection::vec(".{0,12}", 1..4).prop_map(|command| HandlerSpec::Exec { command }),
        ],
        redis in redis(),
        source in source(),
    ) -> WorkerConfig {
        let time = times.map(Duration::from_millis);
        WorkerConfig {
            v: VERSION,
            namespace: "shop".to_owned(),
            stage: "mail".to_owned(),
            redis,
            source,
            delivery: Delivery {
                visibility_timeout: time[0],
                handler_timeout: time[1],
                reclaim_interval: time[2],
                max_deliveries: counts[0],
                concurrency: counts[1] as usize,
                block_timeout: time[3],
            },
            idempotency: Idempotency {
                key_fields: words.clone(),
                ledger: if counts[2].is_multiple_of(2) { Ledger::AtCommit } else { Ledger::Off },
                window: time[4],
            },
            output: output.map(|name| Output {
                stream: StreamKey::new(name),
                max_length: u64::from(counts[3]),
            }),
            retry: RetryPolicy {
                max_attempts: counts[4],
                initial_delay: time[5],
                max_delay: time[6],
                multiplier_percent: counts[5],
                jitter_percent: counts[6],
                non_retryable_errors: words,
            },
            dead_letter: DeadLetterPolicy {
                stream: StreamKey::new("dead"),
                max_length: times[7],
                max_error_bytes: counts[7] as usize,
                max_trace_bytes: counts[0] as usize,
            },
            handler,
            drain_timeout: time[7],
        }
    }
}

proptest! {
    #[test]
    fn render_and_parse_are_inverses(config in policies()) {
        let line = config.render();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(WorkerConfig::parse(&line), Ok(config));
    }
}

fn valid() -> Value {
    let fields = serde_json::json!({
        "v": 1, "namespace": "shop", "stage": "mail",
        "redis": {"address": "redis:6379", "database": 0, "credentials": "None", "connectTimeout": 5000, "commandTimeout": 5000},
        "source": {"stream": "orders", "group": "mail", "groupCreation": "IfMissing", "startFrom": "Beginning"},
        "delivery": {"visibilityTimeout": 30000, "handlerTimeout": 600_000, "reclaimInterval": 15000, "maxDeliveries": 5, "concurrency": 4, "blockTimeout": 2000},
        "idempotency": {"keyFields": [], "ledger": "Off", "window": 1000},
        "retry": {"maxAttempts": 8, "initialDelay": 5000, "maxDelay": 900_000, "multiplierPercent": 200, "jitterPercent": 20, "nonRetryableErrors": []},
        "deadLetter": {"stream": "{orders}:mail:dead", "maxLength": 0, "maxErrorBytes": 1000, "maxTraceBytes": 4000},
        "handler": {"Http": {"port": 8080, "path": "/"}},
        "drainTimeout": 60000
    });
    assert!(WorkerConfig::parse(&fields.to_string()).is_ok());
    fields
}

#[test]
fn what_is_wrong_is_named() {
    let absent = Value::Null;
    let cases: [(&str, Value, &str); 9] = [
        (
            "/v",
            2.into(),
            "the worker's config has version 2; this build reads 1 to 1: give worker and operator versions that are at most one apart",
        ),
        (
            "/v",
            "1".into(),
            "the worker's config has version \"1\"; this build reads 1 to 1: give worker and operator versions that are at most one apart",
        ),
        (
            "/delivery/concurrency",
            "4".into(),
            "the worker's config is wrong in `delivery.concurrency`: invalid type: string \"4\", expected usize",
        ),
        (
            "/delivery/concurrency",
            0.into(),
            "the worker's config is wrong in `delivery.concurrency`: may be neither empty nor zero",
        ),
        (
            "/delivery/handlerTimeout",
            (-1).into(),
            "the worker's config is wrong in `delivery.handlerTimeout`: invalid value: integer `-1`, expected u64",
        ),
        (
            "/source/stream",
            "a}b".into(),
            "the worker's config is wrong in `source.stream`: a `}` in the name must close a hash tag, as in {tag}name",
        ),
        (
            "/idempotency/ledger",
            "Maybe".into(),
            "the worker's config is wrong in `idempotency.ledger`: unknown variant `Maybe`, expected `AtCommit` or `Off`",
        ),
        (
            "/handler",
            absent.clone(),
            "the worker's config is wrong in `handler`: invalid type: null, expected string or map",
        ),
        (
            "/drainTimeout",
            absent,
            "the worker's config is wrong in `config`: invalid type: null, expected u64",
        ),
    ];
    for (pointer, value, message) in cases {
        let mut config = valid();
        *config.pointer_mut(pointer).unwrap() = value;
        let error = WorkerConfig::parse(&config.to_string()).unwrap_err();
        assert_eq!(error.to_string(), message, "{pointer}");
    }
}

#[test]
fn missing_and_unknown_fields_are_named() {
    let mut config = valid();
    config["delivery"]
        .as_object_mut()
        .unwrap()
        .remove("blockTimeout");
    let error = WorkerConfig::parse(&config.to_string())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the worker's config is wrong in `delivery`: missing field `blockTimeout`"
    );
    let mut config = valid();
    config["retry"]["maxTries"] = 3.into();
    let error = WorkerConfig::parse(&config.to_string())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("the worker's config is wrong in `retry.maxTries`: unknown field"),
        "{error}"
    );
    let error = WorkerConfig::parse("").unwrap_err().to_string();
    assert!(
        error.starts_with("the worker's config is not a JSON object: EOF"),
        "{error}"
    );
}

#[test]
fn inline_credentials_never_travel() {
    let mut config = WorkerConfig::parse(&valid().to_string()).unwrap();
    config.redis.credentials = Credentials::Inline {
        username: None,
        password: "hunter2".to_owned(),
    };
    assert!(!config.render().contains("hunter2"));
    assert_eq!(
        WorkerConfig::parse(&config.render())
            .unwrap()
            .redis
            .credentials,
        Credentials::None
    );
}
