//! `streamstage dlq` on a real Redis: nothing is lost, nothing is passed over, nothing acts on the terminal.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use streamstage::streams::Letter;

use crate::support::{Bench, StageFile, Worker};

mod reading;
mod refusals;
mod replaying;

/// Longer than any of these commands takes on a busy machine, shorter than a test may.
const SOON: Duration = Duration::from_secs(60);
/// Letters added in one round trip.
const BATCH: usize = 500;

/// A letter of the stage whose entry is `key`.
fn letter(stage: &StageFile, key: &str, reason: &str) -> Letter {
    let context = [
        ("failed_at", "2026-12-01T10:00:00.000Z"),
        ("attempts", "8"),
        ("stage", stage.name()),
        ("error_type", "Timeout"),
        ("error", &format!("{key} timed out after 5s")),
        ("reason", reason),
        ("namespace", "shop"),
        ("deliveries", "8"),
        ("crashes", "0"),
        ("replays", "0"),
        ("entry_id", "1764583200000-7"),
        ("stream", stage.stream()),
        ("group", stage.group()),
    ];
    Letter {
        context: context
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        fields: vec![(b"key".to_vec(), key.as_bytes().to_vec())],
    }
}

/// Adds letters in order: their ids.
async fn add(bench: &Bench, stream: &str, letters: &[Letter]) -> Vec<String> {
    let mut connection = bench.db().connection().await.expect("connects");
    let mut ids = Vec::new();
    for batch in letters.chunks(BATCH) {
        let mut pipe = redis::pipe();
        for letter in batch {
            pipe.cmd("XADD").arg(stream).arg("*").arg(letter.render());
        }
        let added: Vec<String> = pipe.query_async(&mut connection).await.expect("added");
        ids.extend(added);
    }
    ids
}

/// `count` letters of `reason` with the keys `<prefix>-0` and on.
fn letters(stage: &StageFile, prefix: &str, count: u32, reason: &str) -> Vec<Letter> {
    let key = |number| format!("{prefix}-{number}");
    (0..count)
        .map(|number| letter(stage, &key(number), reason))
        .collect()
}

/// Starts `streamstage dlq` and leaves it running.
fn begin(bench: &Bench, stage: &StageFile, verb: &str, arguments: &[&str]) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamstage"));
    command
        .args(["dlq", verb, "--redis", &bench.redis.url(), "-f"])
        .arg(stage.write())
        .args(arguments)
        .stdin(Stdio::null());
    Worker::start(&mut command, &bench.file(verb))
}

/// The keys of the entries in a stream, each with how often it is there.
async fn keys(bench: &Bench, stream: &str) -> BTreeSet<String> {
    let counts = bench.db().count_by_key(stream).await;
    for (key, count) in &counts {
        assert_eq!(*count, 1, "{key} in {stream}");
    }
    counts.into_keys().collect()
}
