//! A bad manifest or command line ends at once, with exit code 2 and what to do about it.

use serde_json::{Value, json};

use crate::engine::SOON;
use crate::support::{Bench, StageFile};

/// Starts a worker with a broken stage: its exit code is 2, and it names all of `words`.
async fn refuses(bench: &Bench, stage: StageFile, words: &[&str]) {
    let mut worker = bench.worker(&stage);
    let code = worker.exit(SOON).await;
    let log = worker.log();
    assert_eq!(code, 2, "{words:?}: {log}");
    for word in words {
        assert!(log.contains(word), "{word:?} is not in: {log}");
    }
    assert_eq!(
        worker.output(),
        "",
        "nothing but the summary goes to standard output"
    );
}

#[tokio::test]
async fn bad_manifest_exits_2_and_names_field_value_and_remedy() {
    let bench = Bench::new().await;
    let cases: [(&str, Value, &[&str]); 8] = [
        (
            "delivery.visibilityTimeout",
            json!("1s"),
            &["visibilityTimeout", "1s", "2s"],
        ),
        (
            "delivery.visibilityTimeout",
            json!("soon"),
            &["visibilityTimeout", "soon"],
        ),
        (
            "delivery.visibiltyTimeout",
            json!("3s"),
            &["visibiltyTimeout"],
        ),
        ("delivery.concurrency", json!(0), &["concurrency", "0", "1"]),
        (
            "delivery.reclaimInterval",
            json!("30s"),
            &["reclaimInterval", "30s", "visibilityTimeout"],
        ),
        (
            "output.stream",
            json!("orders"),
            &["output", "orders", "different"],
        ),
        ("source.stream", json!("{}orders"), &["stream", "{}orders"]),
        ("handler.http", json!({"port": 8080}), &["handler", "http"]),
    ];
    for (field, value, words) in cases {
        println!("{field} = {value}");
        let stage = bench.scripted("ok").set(field, value);
        refuses(&bench, stage, words).await;
    }
}

#[tokio::test]
async fn missing_file_and_unknown_flag_exit_2() {
    let bench = Bench::new().await;
    let mut worker = bench.worker_with(&bench.scripted("ok"), &["--no-such-flag"]);
    assert_eq!(worker.exit(SOON).await, 2);
    assert!(worker.log().contains("--no-such-flag"));

    let output = std::process::Command::new(env!("CARGO_BIN_EXE_streamstage"))
        .args(["dev", "-f", "no-such-file.yaml"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file.yaml"));
}
