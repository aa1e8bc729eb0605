//! ls, groups, show, export: all of a stage's letters, and only those.

use serde_json::{Value, json};
use streamstage::streams::Letter;

use super::{add, letter, letters};
use crate::support::{Bench, figures};

fn lines(output: &str) -> Vec<Value> {
    let parse = |line: &str| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?} is not JSON: {error}"))
    };
    output.lines().map(parse).collect()
}

#[tokio::test]
async fn every_page_of_a_large_stream_is_listed_counted_replayed_and_purged() {
    const EACH: u32 = 12_500;
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let dead = stage.key("dead");
    let mut ids = add(&bench, &dead, &letters(&stage, "poison", EACH, "Poison")).await;
    ids.extend(
        add(
            &bench,
            &dead,
            &letters(&stage, "tired", EACH, "AttemptsExhausted"),
        )
        .await,
    );

    let (code, output) = bench.dlq(&stage, "ls", &["-o", "json"]);
    assert_eq!(code, 0);
    let listed: Vec<Value> = lines(&output)
        .iter()
        .map(|line| line["id"].clone())
        .collect();
    assert_eq!(listed, ids, "each once, oldest first");

    let (code, output) = bench.dlq(&stage, "groups", &["-o", "json"]);
    assert_eq!(code, 0);
    let counts: Vec<Value> = lines(&output)
        .iter()
        .map(|line| line["count"].clone())
        .collect();
    assert_eq!(counts, [json!(EACH), json!(EACH)]);

    let (code, output) = bench.dlq(
        &stage,
        "purge",
        &["--reason", "Poison", "--yes", "-o", "json"],
    );
    assert_eq!((code, &lines(&output)[0]["done"]), (0, &json!(EACH)));
    let (code, output) = bench.dlq(&stage, "replay", &["--all"]);
    assert_eq!(code, 0);
    assert!(output.contains("12500 dead letters replayed"), "{output}");
    assert_eq!(bench.db().size(&dead).await, 0);
    assert_eq!(bench.db().size(&stage.key("retry")).await, u64::from(EACH));
    figures(&format!(
        "dead letters: {} listed, grouped, {EACH} purged, {EACH} replayed",
        2 * EACH
    ));
}

#[tokio::test]
async fn stage_sees_only_its_own_letters_of_a_shared_stream() {
    let bench = Bench::new().await;
    let ours = bench.scripted("ok").set("deadLetter.stream", "shared");
    let theirs = ours.clone().named("biller", "invoices");
    let mut both = letters(&ours, "ours", 3, "Poison");
    both.extend(letters(&theirs, "theirs", 4, "Poison"));
    let ids = add(&bench, "shared", &both).await;
    let stranger = [vec![("key".to_owned(), "stranger".to_owned())]];
    bench.db().add_all("shared", &stranger).await;

    let (_, output) = bench.dlq(&ours, "ls", &[]);
    assert_eq!(output.matches("ours-").count(), 3, "{output}");
    assert!(!output.contains("theirs-"), "{output}");
    assert!(output.contains("left alone entries=1"), "{output}");
    let (code, _) = bench.dlq(&ours, "show", &[&ids[6]]);
    assert_eq!(
        code, 3,
        "a letter of another stage does not match, even by its id"
    );
    let (code, _) = bench.dlq(&ours, "purge", &["--all", "--yes"]);
    assert_eq!(code, 0);
    let (_, output) = bench.dlq(&theirs, "ls", &[]);
    assert_eq!(output.matches("theirs-").count(), 4, "{output}");
    assert_eq!(bench.db().size("shared").await, 5);
}

#[tokio::test]
async fn filters_and_the_limit_narrow_what_is_listed() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let mut all = letters(&stage, "poison", 3, "Poison");
    all.extend(letters(&stage, "tired", 3, "AttemptsExhausted"));
    let ids = add(&bench, &stage.key("dead"), &all).await;
    for (id, key) in [("1-1", "older"), ("1-2", "old")] {
        let mut command = redis::cmd("XADD");
        // Redis takes ids in rising order only, so the old ones go to a stream of their own.
        command
            .arg("long-ago")
            .arg(id)
            .arg(letter(&stage, key, "Poison").render());
        let mut connection = bench.db().connection().await.expect("connects");
        let _id: String = command.query_async(&mut connection).await.expect("added");
    }
    let count = |arguments: &[&str]| {
        let (_, output) = bench.dlq(&stage, "ls", &[&["-o", "json"], arguments].concat());
        output.lines().filter(|line| line.starts_with('{')).count()
    };
    assert_eq!(count(&["--reason", "Poison"]), 3);
    assert_eq!(count(&["--error-type", "Timeout"]), 6);
    assert_eq!(count(&["--error-type", "Other"]), 0);
    assert_eq!(count(&["--reason", "Poison", "--limit", "2"]), 2);
    assert_eq!(count(&[&ids[0], &ids[4], "9-9"]), 2);
    assert_eq!(count(&[&ids[0], &ids[4], "--reason", "Poison"]), 1);
    assert_eq!(count(&["--newer-than", "1h"]), 6);
    assert_eq!(count(&["--older-than", "1h"]), 0);

    let long_ago = stage.clone().set("deadLetter.stream", "long-ago");
    let (code, _) = bench.dlq(&long_ago, "ls", &["--older-than", "30d"]);
    assert_eq!(code, 0);
    let (code, _) = bench.dlq(&long_ago, "ls", &["--newer-than", "30d"]);
    assert_eq!(code, 3);
}

#[tokio::test]
async fn what_others_wrote_acts_on_no_terminal_and_breaks_no_json() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let attack = "\u{1b}[2J\u{1b}]52;c;cHduZWQ=\u{7}\r\nINFO all is well \u{202e}\u{9b}31m";
    let mut hostile = letter(&stage, attack, "Poison");
    for (_, value) in hostile
        .context
        .iter_mut()
        .filter(|(name, _)| name.starts_with("error"))
    {
        *value = attack.to_owned();
    }
    hostile.context.push((
        "traceback".to_owned(),
        format!("at {attack}\n  entry_id  forged"),
    ));
    hostile
        .fields
        .push((attack.as_bytes().to_vec(), vec![0x1b, 0xff]));
    let ids = add(&bench, &stage.key("dead"), &[hostile]).await;

    for (verb, arguments) in [
        ("ls", &[][..]),
        ("groups", &[]),
        ("show", &[ids[0].as_str()]),
    ] {
        let (code, output) = bench.dlq(&stage, verb, arguments);
        assert_eq!(code, 0, "{verb}");
        let raw = |character: char| {
            character != '\n' && (character.is_control() || character == '\u{202e}')
        };
        assert!(!output.contains(raw), "{verb}: {output:?}");
        assert!(
            !output
                .lines()
                .any(|line| line.trim_start().starts_with("INFO")),
            "{output}"
        );
        assert!(output.contains("\\u{1b}[2J"), "{verb}: {output}");
    }
    for (verb, arguments) in [
        ("ls", &["-o", "json"][..]),
        ("groups", &["-o", "json"]),
        ("show", &[ids[0].as_str(), "-o", "json"]),
        ("export", &[]),
    ] {
        let (_, output) = bench.dlq(&stage, verb, arguments);
        assert_eq!(lines(&output).len(), 1, "{verb}");
    }
}

#[tokio::test]
async fn an_export_loses_no_order_no_repetition_and_no_byte() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let original = Letter {
        fields: vec![
            (b"z".to_vec(), b"last first".to_vec()),
            (b"reason".to_vec(), vec![0xff, 0x00]),
            (b"z".to_vec(), vec![]),
            (vec![0xfe], "\u{e9}".into()),
        ],
        ..letter(&stage, "any", "Rejected")
    };
    let ids = add(&bench, &stage.key("dead"), std::slice::from_ref(&original)).await;
    let (code, output) = bench.dlq(&stage, "export", &[]);
    assert_eq!(code, 0);
    let exported = &lines(&output)[0];
    assert_eq!(exported["id"], ids[0].as_str());
    assert_eq!(exported["context"]["reason"], "Rejected");
    assert_eq!(
        exported["fields"],
        json!([
            ["z", "last first"],
            ["reason", {"base64": "/wA="}],
            ["z", ""],
            [{"base64": "/g=="}, "\u{e9}"],
        ])
    );
    let at = |name: &str| output.find(&format!("\"{name}\":"));
    assert!(
        at("failed_at") < at("attempts") && at("attempts") < at("stage"),
        "{output}"
    );
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_failure() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    add(
        &bench,
        &stage.key("dead"),
        &letters(&stage, "many", 5_000, "Poison"),
    )
    .await;
    let program = env!("CARGO_BIN_EXE_streamstage");
    let (url, manifest) = (bench.redis.url(), stage.write());
    let script = format!(
        "set -o pipefail; {program} dlq export --redis {url} -f {} | head -n 1",
        manifest.display()
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("bash");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), complaint.as_ref()), (Some(0), ""));
}
