//! The stage that the engine's unit tests run.

use crate::worker_config::WorkerConfig;

pub(crate) fn config() -> WorkerConfig {
    WorkerConfig::parse(
        r#"{"v":1,"namespace":"shop","stage":"mail",
            "redis":{"address":"r:6379","database":0,"credentials":"None","connectTimeout":1000,"commandTimeout":1000},
            "source":{"stream":"orders","group":"mail","groupCreation":"IfMissing","startFrom":"Beginning"},
            "delivery":{"visibilityTimeout":9000,"handlerTimeout":600000,"reclaimInterval":4000,
                        "maxDeliveries":3,"concurrency":4,"blockTimeout":2000},
            "idempotency":{"keyFields":["k"],"ledger":"AtCommit","window":86400000},
            "retry":{"maxAttempts":3,"initialDelay":5000,"maxDelay":900000,"multiplierPercent":200,
                     "jitterPercent":0,"nonRetryableErrors":["Malformed"]},
            "deadLetter":{"stream":"{orders}:mail:dead","maxLength":0,"maxErrorBytes":1000,"maxTraceBytes":4000},
            "handler":{"Exec":{"command":["true"]}},"drainTimeout":30000}"#,
    )
    .unwrap()
}
