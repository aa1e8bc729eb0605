//! Exit codes and words where something is wrong.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{add, letters};
use crate::support::{Bench, Redis, StageFile, free_port};

/// Runs `streamstage` with these words: exit code and everything printed.
fn run(words: &[&str], environment: &[(&str, &str)], input: &str) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_streamstage"))
        .args(words)
        .env_remove("REDIS_USERNAME")
        .env_remove("REDIS_PASSWORD")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("streamstage starts");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

fn path(stage: &StageFile) -> String {
    stage.write().to_string_lossy().into_owned()
}

#[tokio::test]
async fn nothing_matched_is_3() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    for (verb, arguments) in [
        ("ls", &[][..]),
        ("groups", &[]),
        ("export", &[]),
        ("show", &["1-1"]),
        ("replay", &["--all"]),
        ("purge", &["--all"]),
        ("purge", &["--reason", "Poison", "--yes"]),
    ] {
        let (code, output) = bench.dlq(&stage, verb, arguments);
        assert_eq!(code, 3, "{verb}: {output}");
        let dead = stage.key("dead");
        let told = match verb {
            "replay" | "purge" => "0 dead letters ".to_owned(),
            _ => format!("no dead letter matches (stage shop/mailer, stream {dead} at 127.0.0.1:"),
        };
        assert!(output.contains(&told), "{verb}: {output}");
    }
}

#[tokio::test]
async fn ids_that_are_not_there_are_named_by_every_verb() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let dead = stage.key("dead");
    let ids = add(&bench, &dead, &letters(&stage, "entry", 2, "Poison")).await;
    let later = "99999999999999-0";
    for (verb, arguments) in [
        ("ls", &[][..]),
        ("groups", &[]),
        ("export", &[]),
        ("show", &[]),
        ("replay", &["--dry-run"]),
        ("purge", &["--dry-run"]),
    ] {
        let named = [&ids[0], "1-1", later];
        let (code, output) = bench.dlq(&stage, verb, &[&named, arguments].concat());
        assert_eq!(code, 0, "{verb}: {output}");
        for id in ["1-1", later] {
            let told = format!("no such dead letter of this stage id={id}\n");
            assert_eq!(output.matches(&told).count(), 1, "{verb}: {output}");
        }
        let told = output.matches("no such dead letter").count();
        assert_eq!(told, 2, "{verb}: {output}");
    }
    let (_, output) = bench.dlq(&stage, "ls", &[&ids[0], "--reason", "Rejected"]);
    assert!(!output.contains("no such dead letter"), "{output}");
}

#[tokio::test]
async fn bad_manifest_is_2_and_named() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("delivery.visibilityTimeout", "1s");
    let (code, output) = bench.dlq(&stage, "ls", &[]);
    assert_eq!(code, 2, "{output}");
    assert!(output.contains("visibilityTimeout"), "{output}");
    let (code, output) = run(&["dlq", "ls", "-f", "/nowhere/stage.yaml"], &[], "");
    assert_eq!(code, 2, "{output}");
    assert!(output.contains("/nowhere/stage.yaml"), "{output}");
}

#[tokio::test]
async fn server_that_is_not_there_is_1_and_named() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let url = format!("redis://127.0.0.1:{}", free_port());
    let (code, output) = run(
        &["dlq", "ls", "-f", &path(&stage), "--redis", &url],
        &[],
        "",
    );
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("connection refused"), "{output}");
}

#[tokio::test]
async fn passwords_come_from_the_environment_or_the_url_and_are_never_printed() {
    let bench = Bench::on(Redis::start().await);
    let address = format!("127.0.0.1:{}", bench.redis.port());
    let stage = bench
        .scripted("ok")
        .set("redis.addresses", serde_json::json!([address]))
        .set(
            "redis.auth.passwordSecretRef",
            serde_json::json!({"name": "redis", "key": "password"}),
        );
    add(
        &bench,
        &stage.key("dead"),
        &letters(&stage, "entry", 2, "Poison"),
    )
    .await;
    let _ok: String = bench
        .db()
        .call(&["CONFIG", "SET", "requirepass", "s3cret"])
        .await;
    let manifest = path(&stage);
    let ls = ["dlq", "ls", "-f", &manifest];

    let (code, output) = run(&ls, &[], "");
    assert_eq!(code, 2, "{output}");
    assert!(output.contains("REDIS_PASSWORD"), "{output}");
    let (code, output) = run(&ls, &[("REDIS_PASSWORD", "s3cret")], "");
    assert_eq!((code, output.matches("entry-").count()), (0, 2), "{output}");
    let url = format!("redis://:s3cret@{address}");
    let (code, _) = run(&[&ls[..], &["--redis", &url]].concat(), &[], "");
    assert_eq!(code, 0);

    let wrong = [("REDIS_PASSWORD", "wr0ng"), ("STREAMSTAGE_LOG", "trace")];
    let (code, output) = run(&ls, &wrong, "");
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("refused the user or the password"),
        "{output}"
    );
    assert!(!output.contains("wr0ng"), "{output}");
}

#[tokio::test]
async fn key_of_another_type_is_1_and_named() {
    let bench = Bench::new().await;
    let stage = bench
        .scripted("ok")
        .set("deadLetter.stream", "not-a-stream");
    let _ok: String = bench.db().call(&["SET", "not-a-stream", "x"]).await;
    let (code, output) = bench.dlq(&stage, "ls", &[]);
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("not-a-stream"), "{output}");
}

#[tokio::test]
async fn full_server_refuses_a_replay_and_the_letter_stays() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let dead = stage.key("dead");
    add(&bench, &dead, &letters(&stage, "entry", 3, "Poison")).await;
    let _ok: String = bench.db().call(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let (code, output) = bench.dlq(&stage, "replay", &["--all"]);
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("out of memory"), "{output}");
    assert!(output.contains("0 dead letters replayed"), "{output}");
    assert_eq!(bench.db().size(&dead).await, 3);
    assert_eq!(bench.db().size(&stage.key("retry")).await, 0);
}

#[tokio::test]
async fn purge_asks_for_the_stages_name() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let dead = stage.key("dead");
    add(&bench, &dead, &letters(&stage, "entry", 3, "Poison")).await;
    let (manifest, url) = (path(&stage), bench.redis.url());
    let purge = ["dlq", "purge", "-f", &manifest, "--redis", &url, "--all"];
    for refusal in ["", "yes\n", "mail\n"] {
        let (code, output) = run(&purge, &[], refusal);
        assert_eq!(code, 2, "{output}");
        let server = format!("127.0.0.1:{}/0", bench.redis.port());
        let asked = format!("3 dead letters of shop/mailer at {server} will be");
        assert!(output.contains(&asked), "{output}");
        assert_eq!(bench.db().size(&dead).await, 3);
    }
    let (code, output) = run(&purge, &[], "mailer\n");
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("3 dead letters deleted"), "{output}");
    assert_eq!(bench.db().size(&dead).await, 0);
}
