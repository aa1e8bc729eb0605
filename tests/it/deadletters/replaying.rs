//! replay and purge: each letter in exactly one place, whatever happens in between.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use streamstage::streams::{Letter, Meta};

use super::{SOON, add, begin, keys, letter, letters};
use crate::support::{Bench, StageFile, eventually, figures};

/// Waits until this many entries are in the stage's retry stream.
async fn replayed(bench: &Bench, stage: &StageFile, count: u64) {
    let retry = stage.key("retry");
    eventually("letters have been replayed", SOON, async || {
        (bench.db().size(&retry).await >= count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn replay_killed_half_way_leaves_every_letter_in_exactly_one_place() {
    const ALL: u32 = 10_000;
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let (dead, retry) = (stage.key("dead"), stage.key("retry"));
    add(&bench, &dead, &letters(&stage, "entry", ALL, "Poison")).await;
    let everything = keys(&bench, &dead).await;

    let mut replay = begin(&bench, &stage, "replay", &["--all"]);
    replayed(&bench, &stage, 500).await;
    replay.kill().await;
    let (left, moved) = (keys(&bench, &dead).await, keys(&bench, &retry).await);
    assert!(!left.is_empty(), "it was killed half-way");
    assert_eq!(left.intersection(&moved).count(), 0);
    assert_eq!(
        left.union(&moved).cloned().collect::<BTreeSet<_>>(),
        everything
    );

    let (code, output) = bench.dlq(&stage, "replay", &["--all"]);
    assert_eq!(code, 0, "{output}");
    assert_eq!(keys(&bench, &retry).await, everything);
    assert_eq!(bench.db().size(&dead).await, 0);
    figures(&format!(
        "replay killed after {} of {ALL}: each in one place",
        moved.len()
    ));
}

#[tokio::test]
async fn replay_that_loses_its_connection_says_how_far_it_came() {
    let mut bench = Bench::new().await;
    let stage = bench.scripted("ok");
    add(
        &bench,
        &stage.key("dead"),
        &letters(&stage, "entry", 10_000, "Poison"),
    )
    .await;
    let mut replay = begin(&bench, &stage, "replay", &["--all"]);
    replayed(&bench, &stage, 100).await;
    bench.redis.kill().await;
    assert_eq!(replay.exit(SOON).await, 1);
    assert!(
        replay.output().contains(" dead letters replayed"),
        "{}",
        replay.output()
    );
    assert!(replay.log().contains("connection"), "{}", replay.log());
}

#[tokio::test]
async fn replay_interrupted_by_a_signal_stops_between_letters_and_says_how_far_it_came() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    add(
        &bench,
        &stage.key("dead"),
        &letters(&stage, "entry", 1_000, "Poison"),
    )
    .await;
    let mut replay = begin(
        &bench,
        &stage,
        "replay",
        &["--all", "--rate", "50", "-o", "json"],
    );
    replayed(&bench, &stage, 5).await;
    replay.signal(Signal::INT);
    assert_eq!(replay.exit(SOON).await, 1);
    let told: Value = serde_json::from_str(&replay.output()).expect("a summary");
    let moved = bench.db().size(&stage.key("retry")).await;
    assert_eq!(
        (told["done"].as_u64(), &told["interrupted"]),
        (Some(moved), &Value::Bool(true))
    );
    assert_eq!(moved + bench.db().size(&stage.key("dead")).await, 1_000);
}

#[tokio::test]
async fn letters_added_during_a_replay_survive_it() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let dead = stage.key("dead");
    add(&bench, &dead, &letters(&stage, "old", 100, "Poison")).await;
    let mut replay = begin(&bench, &stage, "replay", &["--all", "--rate", "100"]);
    replayed(&bench, &stage, 10).await;
    let new = letters(&stage, "new", 50, "Poison");
    add(&bench, &dead, &new).await;
    assert!(replay.is_running(), "the letters came while it ran");
    assert_eq!(replay.exit(SOON).await, 0);
    let left = keys(&bench, &dead).await;
    assert_eq!(left.len(), 50);
    assert!(left.iter().all(|key| key.starts_with("new-")), "{left:?}");
    assert_eq!(bench.db().size(&stage.key("retry")).await, 100);
}

#[tokio::test]
async fn rate_bounds_how_fast_letters_go() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    add(
        &bench,
        &stage.key("dead"),
        &letters(&stage, "entry", 41, "Poison"),
    )
    .await;
    let watch = crate::support::Stopwatch::start();
    let (code, _) = bench.dlq(&stage, "replay", &["--all", "--rate", "20"]);
    assert_eq!(code, 0);
    assert!(
        watch.elapsed() >= Duration::from_millis(1_900),
        "{:?}",
        watch.elapsed()
    );
}

#[tokio::test]
async fn replayed_entry_has_the_original_bytes_behind_a_fresh_meta() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let fields = vec![
        (b"fields".to_vec(), b"9".to_vec()),
        (b"streamstage.meta".to_vec(), b"the producer's own".to_vec()),
        (b"fields".to_vec(), vec![0xff, 0x00]),
        (vec![], vec![]),
    ];
    let mut original = Letter {
        fields: fields.clone(),
        ..letter(&stage, "any", "Rejected")
    };
    original.context.push((
        "first_enqueued_at".to_owned(),
        "2026-12-01T09:59:00Z".to_owned(),
    ));
    for (_, value) in original
        .context
        .iter_mut()
        .filter(|(name, _)| name == "replays")
    {
        *value = "2".to_owned();
    }
    add(&bench, &stage.key("dead"), &[original]).await;
    let (code, output) = bench.dlq(&stage, "replay", &["--all", "--force"]);
    assert_eq!(code, 0, "{output}");

    let mut connection = bench.db().connection().await.expect("connects");
    let mut read = redis::cmd("XRANGE");
    read.arg(stage.key("retry")).arg("-").arg("+");
    let entries: Vec<(String, Vec<Vec<u8>>)> =
        read.query_async(&mut connection).await.expect("read");
    let values = &entries[0].1;
    assert_eq!(values[0], b"streamstage.meta");
    let meta = Meta::parse(&values[1]).expect("a meta");
    assert_eq!(meta.origin.to_string(), "1764583200000-7");
    assert_eq!(meta.first_enqueued_at, 1_796_119_140_000);
    assert_eq!(
        (meta.attempts, meta.crashes, meta.replays, meta.force),
        (0, 0, 3, true)
    );
    let own: Vec<&Vec<u8>> = fields
        .iter()
        .flat_map(|(name, value)| [name, value])
        .collect();
    assert_eq!(values.iter().skip(2).collect::<Vec<_>>(), own);
}

#[tokio::test]
async fn dry_run_counts_and_changes_nothing() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    add(
        &bench,
        &stage.key("dead"),
        &letters(&stage, "entry", 12, "Poison"),
    )
    .await;
    let server = format!("127.0.0.1:{}/0", bench.redis.port());
    let (code, output) = bench.dlq(&stage, "replay", &["--all", "--dry-run"]);
    assert_eq!(
        (code, output),
        (0, format!("{server}: 12 dead letters would be replayed\n"))
    );
    let (code, output) = bench.dlq(&stage, "purge", &["--all", "--dry-run"]);
    assert_eq!(
        (code, output),
        (0, format!("{server}: 12 dead letters would be deleted\n"))
    );
    assert_eq!(bench.db().size(&stage.key("dead")).await, 12);
}

#[tokio::test]
async fn letter_that_cannot_be_an_entry_again_stays_and_is_named() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let wide = Letter {
        fields: vec![(b"f".to_vec(), b"v".to_vec()); 3_500],
        ..letter(&stage, "wide", "EntryTooLarge")
    };
    let widest = Letter {
        fields: vec![(b"f".to_vec(), b"v".to_vec()); 3_499],
        ..letter(&stage, "widest", "Poison")
    };
    let all = [
        letter(&stage, "raw", "Undecodable"),
        wide,
        widest,
        letter(&stage, "fine", "Poison"),
    ];
    let ids = add(&bench, &stage.key("dead"), &all).await;
    let (code, output) = bench.dlq(&stage, "replay", &["--all"]);
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("2 dead letters replayed, 2 cannot be and stay"),
        "{output}"
    );
    assert!(
        output.contains(&ids[0]) && output.contains(&ids[1]),
        "{output}"
    );
    assert_eq!(bench.db().size(&stage.key("dead")).await, 2);
}

#[tokio::test]
async fn two_replays_at_once_give_back_each_letter_once() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    add(
        &bench,
        &stage.key("dead"),
        &letters(&stage, "entry", 2_000, "Poison"),
    )
    .await;
    let mut one = begin(&bench, &stage, "replay", &["--all"]);
    let (code, output) = bench.dlq(&stage, "replay", &["--all"]);
    // The second may find nothing left at all.
    assert!(code == 0 || code == 3, "{output}");
    let code = one.exit(SOON).await;
    assert!(code == 0 || code == 3, "{}", one.log());
    assert_eq!(keys(&bench, &stage.key("retry")).await.len(), 2_000);
    assert_eq!(bench.db().size(&stage.key("dead")).await, 0);
}
