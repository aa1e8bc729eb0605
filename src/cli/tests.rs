use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::deadletters::request::{Purge, Replay, Selection, Verb};
use crate::streams::EntryId;

fn read(words: &str, environment: &[(&str, &str)]) -> Result<Command, clap::Error> {
    let words = ["streamstage"].into_iter().chain(words.split_whitespace());
    let variable = |name: &str| {
        let pair = environment.iter().find(|(known, _)| *known == name);
        pair.map(|(_, value)| OsString::from(value))
    };
    parse(words.map(OsString::from), variable).map(|invocation| invocation.command)
}

fn verb(words: &str) -> Result<Verb, clap::Error> {
    match read(words, &[])? {
        Command::Dlq(request) => Ok(request.verb),
        other @ (Command::Crd | Command::Dev(_)) => panic!("{other:?}"),
    }
}

fn dev(words: &str, environment: &[(&str, &str)]) -> Result<DevArgs, clap::Error> {
    match read(words, environment)? {
        Command::Dev(args) => Ok(args),
        other @ (Command::Crd | Command::Dlq(_)) => panic!("{other:?}"),
    }
}

#[test]
fn flags_and_help_are_consistent() {
    Flags::command().debug_assert();
}

#[test]
fn a_local_run_has_its_own_redis_unless_told_otherwise() {
    let args = dev("dev -f s.yaml", &[("REDIS_PASSWORD", "unused")]).unwrap();
    assert_eq!(args.redis, DevRedis::Ephemeral);
    assert_eq!(
        (args.input, args.listen, args.until_idle),
        (None, None, false)
    );

    let all =
        "dev -f s.yaml --redis redis://h/1 --input - --until-idle --listen 127.0.0.1:0 -o json";
    let args = dev(all, &[]).unwrap();
    assert!(matches!(args.redis, DevRedis::Url(url) if url.address == "h:6379"));
    assert_eq!(args.input, Some(Input::Stdin));
    assert_eq!(args.output, Output::Json);
    assert!(args.until_idle && args.listen.is_some());

    let file = dev("dev -f s.yaml --input e.ndjson", &[]).unwrap().input;
    assert_eq!(file, Some(Input::File("e.ndjson".into())));
}

#[test]
fn the_manifests_redis_takes_credentials_from_the_environment() {
    let spec = |environment| dev("dev -f s.yaml --redis spec", environment);
    let inline = |username: Option<&str>| {
        DevRedis::Manifest(Credentials::Inline {
            username: username.map(str::to_owned),
            password: "pw".to_owned(),
        })
    };
    let redis = |environment| spec(environment).unwrap().redis;
    assert_eq!(redis(&[]), DevRedis::Manifest(Credentials::None));
    assert_eq!(redis(&[("REDIS_PASSWORD", "pw")]), inline(None));
    assert_eq!(
        redis(&[("REDIS_PASSWORD", "pw"), ("REDIS_USERNAME", "")]),
        inline(None)
    );
    let both = [("REDIS_PASSWORD", "pw"), ("REDIS_USERNAME", "u")];
    assert_eq!(redis(&both), inline(Some("u")));
    let error = spec(&[("REDIS_USERNAME", "u")]).unwrap_err();
    assert!(error.to_string().contains("REDIS_PASSWORD"), "{error}");
}

#[test]
fn a_bad_url_is_refused_without_repeating_its_password() {
    for words in [
        "dev -f s.yaml --redis redis://:s3cret@h:port",
        "dlq ls -f s.yaml --redis rediss://:s3cret@h",
    ] {
        let error = read(words, &[]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--redis"), "{error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

#[test]
fn a_verb_that_changes_something_needs_to_be_told_what() {
    for words in [
        "dlq replay -f s.yaml",
        "dlq purge -f s.yaml --yes",
        "dlq replay -f s.yaml --limit 3",
        "dlq purge -f s.yaml --all --reason Poison",
        "dlq replay -f s.yaml --all 1-0",
        "dlq show -f s.yaml",
        "dlq replay -f s.yaml --all --rate 0",
        "dlq ls -f s.yaml --reason Nonsense",
        "dlq ls",
        "dlq",
        "",
    ] {
        assert_eq!(read(words, &[]).unwrap_err().exit_code(), 2, "{words}");
    }
}

#[test]
fn filters_and_ids_become_a_selection() {
    let selection = Selection {
        ids: BTreeSet::from([EntryId::new(1, 0), EntryId::new(2, 3)]),
        reason: Some("Poison".to_owned()),
        error_type: Some("Timeout".to_owned()),
        older_than: Some(Duration::from_secs(2 * 86_400)),
        newer_than: Some(Duration::from_secs(90)),
        limit: Some(7),
    };
    let words = "dlq ls -f s.yaml 2-3 1 --reason Poison --error-type Timeout \
        --older-than 2d --newer-than 90s --limit 7 -o json";
    let output = Output::Json;
    assert_eq!(verb(words).unwrap(), Verb::List { selection, output });
}

#[test]
fn ages_are_whole_numbers_with_a_unit() {
    for (text, seconds) in [("1s", Some(1)), ("15m", Some(900)), ("12h", Some(43_200))] {
        let verb = verb(&format!("dlq ls -f s.yaml --older-than {text}")).unwrap();
        let Verb::List { selection, .. } = verb else {
            panic!("{verb:?}");
        };
        assert_eq!(selection.older_than, seconds.map(Duration::from_secs));
    }
    for text in [
        "5",
        "s",
        "1.5h",
        "+1h",
        "1w",
        "1é",
        "99999999999999999999s",
        "9999999999999999999d",
    ] {
        let error = verb(&format!("dlq ls -f s.yaml --older-than {text}")).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{text}");
    }
}

#[test]
fn a_purge_asks_unless_ids_are_named_or_yes_is_said() {
    let purge = |words: &str| {
        let Verb::Purge { purge, .. } = verb(&format!("dlq purge -f s.yaml {words}")).unwrap()
        else {
            panic!("{words}");
        };
        purge
    };
    let confirmed = |confirmed, dry_run| Purge { confirmed, dry_run };
    assert_eq!(purge("--all"), confirmed(false, false));
    assert_eq!(purge("--all --yes"), confirmed(true, false));
    assert_eq!(purge("5-1"), confirmed(true, false));
    assert_eq!(purge("--reason Poison --dry-run"), confirmed(false, true));
}

#[test]
fn a_replay_knows_force_rate_and_dry_run() {
    let words = "dlq replay -f s.yaml --all --force --dry-run --rate 50";
    let Verb::Replay {
        replay, selection, ..
    } = verb(words).unwrap()
    else {
        panic!("{words}");
    };
    assert_eq!(selection, Selection::default());
    let rate = std::num::NonZeroU32::new(50);
    assert_eq!(
        replay,
        Replay {
            force: true,
            dry_run: true,
            rate
        }
    );
}

#[test]
fn a_wrong_use_shows_the_usage_of_its_own_subcommand() {
    for (words, usage) in [
        ("dlq replay -f s.yaml", "streamstage dlq replay"),
        ("dlq purge -f s.yaml --all 1-0", "streamstage dlq purge"),
        ("dlq ls -f s.yaml --redis x", "streamstage dlq ls"),
        ("dev -f s.yaml --redis x", "streamstage dev"),
        ("dlq ls -f s.yaml --limit x", "streamstage dlq ls"),
    ] {
        let error = read(words, &[]).unwrap_err().to_string();
        let told = error.contains(&format!("Usage: {usage} ")) || error.contains("'--help'");
        assert!(told && !error.contains("<COMMAND>"), "{words}: {error}");
    }
    let error = read("dlq replay -f s.yaml", &[]).unwrap_err().to_string();
    assert!(error.contains("Usage: streamstage dlq replay"), "{error}");
}

#[test]
fn a_bad_value_is_refused_with_the_remedy() {
    for (words, remedy) in [
        ("dev -f s.yaml --listen localhost:9301", "127.0.0.1:9301"),
        ("dev -f s.yaml --listen 9302", "127.0.0.1:9302"),
        ("dev -f s.yaml --listen here", "127.0.0.1:9300"),
        ("dlq replay -f s.yaml --all --rate 0", "leave --rate out"),
        ("dlq ls -f s.yaml --limit 0", "leave --limit out"),
        ("dlq ls -f s.yaml --limit x", "leave --limit out"),
        ("dev -f - --input -", "only one of them"),
        ("dlq purge -f - --all", "--yes"),
    ] {
        let error = read(words, &[]).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{words}");
        assert!(error.to_string().contains(remedy), "{words}: {error}");
    }
}

#[test]
fn dead_letters_are_at_the_manifests_redis_with_spec_and_without_a_word() {
    let server = |words: &str| match read(words, &[("REDIS_PASSWORD", "pw")]).unwrap() {
        Command::Dlq(request) => request.server,
        other @ (Command::Crd | Command::Dev(_)) => panic!("{other:?}"),
    };
    let spec = server("dlq ls -f s.yaml --redis spec");
    assert!(matches!(spec, Server::Manifest(Credentials::Inline { .. })));
    assert_eq!(spec, server("dlq ls -f s.yaml"));
}
