//! STUB, to be replaced at the merge: just enough of a manifest's text to work on its dead letters.

use std::time::Duration;

use crate::stage::*;
use crate::streams::{GroupName, Keys, StreamKey};

/// The manifest is not a valid stage.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(pub String);

/// Reads a manifest.
pub fn parse(text: &str) -> Result<Stage, ManifestError> {
    let raw: serde_json::Value =
        serde_saphyr::from_str(text).map_err(|error| ManifestError(error.to_string()))?;
    let text = |pointer: &str| {
        raw.pointer(pointer)
            .and_then(serde_json::Value::as_str)
            .map(str::to_owned)
            .ok_or_else(|| ManifestError(format!("{pointer} is missing")))
    };
    let auth = text("/spec/redis/auth/passwordSecretRef/name").ok();
    let stream = StreamKey::new(text("/spec/source/stream")?);
    let group = GroupName::new(text("/spec/source/consumerGroup")?);
    let dead = text("/spec/deadLetter/stream").ok().map(StreamKey::new);
    let keys = Keys::derive(stream.clone(), group.clone(), dead)
        .map_err(|error| ManifestError(error.to_string()))?;
    Ok(Stage {
        name: text("/metadata/name")?,
        namespace: text("/metadata/namespace").unwrap_or_else(|_| "default".to_owned()),
        redis: RedisTarget {
            addresses: vec![text("/spec/redis/addresses/0")?],
            database: 0,
            auth: auth.map(|name| Auth {
                username: None,
                password: SecretKey {
                    name,
                    key: "password".to_owned(),
                },
            }),
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(5),
        },
        source: Source {
            stream,
            group,
            group_creation: GroupCreation::IfMissing,
            start_from: StartFrom::Beginning,
        },
        delivery: Delivery {
            visibility_timeout: Duration::from_secs(3),
            handler_timeout: Duration::from_secs(600),
            reclaim_interval: Duration::from_secs(1),
            max_deliveries: 5,
            concurrency: 4,
            block_timeout: Duration::from_secs(1),
        },
        idempotency: Idempotency {
            key_fields: vec![],
            ledger: Ledger::Off,
            window: Duration::from_secs(86_400),
        },
        output: None,
        retry: RetryPolicy {
            max_attempts: 8,
            initial_delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(900),
            multiplier_percent: 200,
            jitter_percent: 20,
            non_retryable_errors: vec![],
        },
        dead_letter: DeadLetterPolicy {
            stream: keys.dead,
            max_length: 0,
            max_error_bytes: 1_000,
            max_trace_bytes: 4_000,
        },
        handler: HandlerSpec::Exec { command: vec![] },
        drain_timeout: Duration::from_secs(60),
        replicas: 1,
        suspend: false,
        engine_image: None,
        engine_resources: serde_json::Value::Null,
        template: serde_json::Value::Null,
    })
}
