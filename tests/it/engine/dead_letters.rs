//! Dead letters: why, with what context, and back again.

use crate::engine::SOON;
use crate::support::Bench;

#[tokio::test]
async fn exhausted_entry_is_dead_lettered_with_its_context() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("retry.initialDelay", "100ms")
        .set("retry.maxAttempts", 2);
    bench.add(&stage, "hopeless", "error:Down").await;
    let origin = bench.db().entries(stage.stream()).await[0].0.clone();
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!(
        (summary.done, summary.retried, summary.dead_lettered),
        (0, 1, 1)
    );

    let dead = bench.dead_letters(&stage).await;
    let letter = &dead[0];
    for (name, value) in [
        ("attempts", "2"),
        ("stage", "mailer"),
        ("namespace", "shop"),
        ("error_type", "Down"),
        ("error", "as the entry asked"),
        ("reason", "AttemptsExhausted"),
        ("crashes", "0"),
        ("replays", "0"),
        ("entry_id", &origin),
        ("stream", "orders"),
        ("group", "mail"),
    ] {
        assert_eq!(letter.says(name), value, "{name} of {letter:?}");
    }
    for name in [
        "failed_at",
        "consumer",
        "first_enqueued_at",
        "idempotency_key",
        "deliveries",
    ] {
        assert!(!letter.says(name).is_empty(), "{name} of {letter:?}");
    }
    assert_eq!(letter.key(), "hopeless");
}

#[tokio::test]
async fn entry_that_the_handler_rejects_is_dead_lettered_at_its_first_start() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set(
        "retry.nonRetryableErrors",
        serde_json::json!(["MalformedDocument"]),
    );
    bench.add(&stage, "refused", "reject:TooOld").await;
    bench.add(&stage, "listed", "error:MalformedDocument").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.retried, summary.dead_lettered), (0, 2));
    assert_eq!(bench.journal().starts(), 2);
    for letter in bench.dead_letters(&stage).await {
        assert_eq!(
            (letter.says("reason"), letter.says("attempts")),
            ("Rejected", "1")
        );
    }
}

#[tokio::test]
async fn handler_that_prints_junk_has_crashed_and_its_entry_is_poison() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("retry.initialDelay", "100ms")
        .set("delivery.maxDeliveries", 2);
    bench.add(&stage, "confusing", "junk").await;
    bench.add_many(&stage, "plain", 10, "ok").await;
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.dead_lettered), (10, 1));
    let dead = bench.dead_letters(&stage).await;
    assert_eq!(dead[0].key(), "confusing");
    assert_eq!(
        (
            dead[0].says("reason"),
            dead[0].says("error_type"),
            dead[0].says("crashes")
        ),
        ("Poison", "ProtocolViolation", "2")
    );
}

#[tokio::test]
async fn bytes_order_and_repeated_fields_survive_the_retry_and_the_dead_letter() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("error:Down")
        .set("retry.initialDelay", "100ms")
        .set("retry.maxAttempts", 2);
    let pairs: [(&[u8], &[u8]); 5] = [
        (b"z", b"last first"),
        (b"raw", b"\xff\x00\x1b[31m\r\n"),
        (b"fields", b"9"),
        (b"error", b"mine"),
        (b"z", b""),
    ];
    let mut connection = bench.db().connection().await.expect("connects");
    let mut add = redis::cmd("XADD");
    add.arg(stage.stream()).arg("*");
    for (name, value) in pairs {
        add.arg(name).arg(value);
    }
    let _id: String = add.query_async(&mut connection).await.expect("added");
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.retried, summary.dead_lettered), (1, 1));

    let dead: Vec<(String, Vec<Vec<u8>>)> = redis::cmd("XRANGE")
        .arg(stage.key("dead"))
        .arg(&["-", "+"])
        .query_async(&mut connection)
        .await
        .expect("read");
    let words = &dead[0].1;
    let expected: Vec<&[u8]> = pairs
        .iter()
        .flat_map(|(name, value)| [*name, *value])
        .collect();
    let tail = &words[words.len() - expected.len()..];
    assert_eq!(tail, expected);
    assert_eq!(
        words[words.len() - expected.len() - 2..][..2],
        [b"fields".to_vec(), b"5".to_vec()]
    );
}

#[tokio::test]
async fn replayed_dead_letter_runs_as_the_original_with_fresh_attempts() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("idempotency.keyFields", serde_json::json!(["key"]))
        .set("retry.maxAttempts", 1);
    bench.add(&stage, "fixable", "skip:fixed;error:Bug").await;
    bench.add(&stage, "other", "reject:Wrong").await;
    bench.run_dry(&stage, SOON).await;
    let (code, output) = bench.dlq(&stage, "replay", &["--error-type", "Bug"]);
    assert_eq!(code, 0, "{output}");
    assert_eq!(
        bench.dead_letters(&stage).await.len(),
        1,
        "only what was chosen is replayed"
    );

    bench.open("fixed");
    let summary = bench.run_dry(&stage, SOON).await;
    assert_eq!((summary.done, summary.skipped), (1, 0));
    let journal = bench.journal();
    let starts = journal.starts_of("fixable");
    assert_eq!(
        (starts.len(), starts[1].attempt, starts[1].deliveries),
        (2, 1, 1)
    );
    assert_eq!(starts[0].id, starts[1].id, "the origin id stays");
}

#[tokio::test]
async fn replays_are_counted_in_the_next_dead_letter() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("retry.maxAttempts", 1);
    bench.add(&stage, "hopeless", "error:Bug").await;
    for replays in 0..3 {
        bench.run_dry(&stage, SOON).await;
        let dead = bench.dead_letters(&stage).await;
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].says("replays"), replays.to_string());
        assert_eq!(dead[0].key(), "hopeless");
        let (code, output) = bench.dlq(&stage, "replay", &[&dead[0].id]);
        assert_eq!(code, 0, "{output}");
    }
    let (code, _) = bench.dlq(&stage, "replay", &["--reason", "Poison"]);
    assert_eq!(code, 3, "nothing matched");
}
