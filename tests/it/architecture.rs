//! The module table: who may import whom, what is pure, and how large a file may be.

use std::collections::{BTreeMap, BTreeSet};

mod source;

use source::Source;

/// Every module at the top, and those of ours that it may import. Some are yet to be written.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("lib", &[]),
    (
        "main",
        &[
            "api",
            "cli",
            "deadletters",
            "dev",
            "engine",
            "operator",
            "printable",
            "shutdown",
            "telemetry",
        ],
    ),
    ("cli", &["deadletters", "redis_url", "streams"]),
    (
        "dev",
        &[
            "api",
            "cli",
            "clock",
            "deadletters",
            "engine",
            "manifest",
            "manifest_file",
            "metrics",
            "printable",
            "redis_url",
            "serve",
            "shutdown",
            "stage",
            "streams",
            "telemetry",
            "worker_config",
        ],
    ),
    (
        "operator",
        &[
            "api",
            "clock",
            "metrics",
            "printable",
            "serve",
            "shutdown",
            "stage",
            "streams",
            "worker_config",
        ],
    ),
    (
        "engine",
        &[
            "clock",
            "metrics",
            "printable",
            "serve",
            "shutdown",
            "streams",
            "worker_config",
        ],
    ),
    (
        "deadletters",
        &[
            "cli",
            "clock",
            "manifest",
            "manifest_file",
            "printable",
            "redis_url",
            "shutdown",
            "stage",
            "streams",
        ],
    ),
    ("manifest", &["api", "stage"]),
    ("worker_config", &["stage", "streams"]),
    ("stage", &["api", "streams"]),
    ("redis_url", &["streams"]),
    ("telemetry", &["printable"]),
    ("api", &[]),
    ("clock", &[]),
    ("manifest_file", &["manifest"]),
    ("metrics", &[]),
    ("printable", &[]),
    ("serve", &[]),
    ("shutdown", &[]),
    ("streams", &[]),
];

/// Modules, each with everything below it, that have no async, no clock and no client, and import only each other.
const PURE: &[&str] = &[
    "api",
    "cli",
    "deadletters::request",
    "engine::breaker",
    "engine::core",
    "engine::holdings",
    "engine::key",
    "engine::letter_context",
    "engine::outcome",
    "engine::report",
    "engine::session",
    "engine::settle",
    "manifest",
    "operator::autoscale",
    "operator::desired",
    "operator::plan",
    "operator::status",
    "printable",
    "redis_url",
    "stage",
    "streams::entry",
    "streams::letter",
    "streams::names",
    "streams::recovery",
    "streams::settings",
    "streams::settlement",
    "worker_config",
];

/// What `streams` itself holds that is more than data: pure code may name the rest.
const STREAMS_NOT_PURE: [&str; 4] = ["Broker", "BacklogProbe", "memory", "redis"];

/// What may not stand in pure code.
const NOT_PURE: &[&str] = &[
    "async ",
    ".await",
    "tokio",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "std::fs",
    "TcpListener",
    "TcpStream",
    "std::process",
    "kube::Api",
    "kube::Client",
    "kube::api",
    "kube::client",
    "kube::runtime",
];

/// Where variables of the environment are known, beside flags.
const READS_ENVIRONMENT: &str = "cli";

/// Lines of a file without its tests.
const MAX_LINES: usize = 400;

fn within(module: &str, parent: &str) -> bool {
    module
        .strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn is_pure(module: &str) -> bool {
    PURE.iter().any(|pure| within(module, pure))
}

/// Whether pure code may name a path.
fn may_be_named(path: &str) -> bool {
    match path.strip_prefix("streams::") {
        Some(item) => !STREAMS_NOT_PURE.iter().any(|other| within(item, other)),
        None => is_pure(path) || path == "streams",
    }
}

fn imports() -> BTreeMap<&'static str, &'static [&'static str]> {
    MAY_IMPORT.iter().copied().collect()
}

/// Paths that leave the module at the top where they stand.
fn outward(source: &Source) -> BTreeSet<String> {
    let tops = imports();
    let is_ours = |path: &String| {
        let top = path.split("::").next().unwrap_or_default();
        top != source.top() && tops.contains_key(top)
    };
    source.paths().into_iter().filter(is_ours).collect()
}

#[test]
fn every_module_is_in_the_table_and_imports_only_what_it_may() {
    let table = imports();
    let mut wrong = Vec::new();
    for source in source::all() {
        let Some(allowed) = table.get(source.top()) else {
            wrong.push(format!(
                "{}: `{}` is not in the table",
                source.file,
                source.top()
            ));
            continue;
        };
        for path in outward(&source) {
            let top = path.split("::").next().unwrap_or_default();
            if !allowed.contains(&top) {
                wrong.push(format!("{}: may not import `{path}`", source.file));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn operator_and_engine_never_meet() {
    let table = imports();
    assert!(!table["operator"].contains(&"engine") && !table["engine"].contains(&"operator"));
}

#[test]
fn the_table_has_no_circle() {
    let table = imports();
    // `deadletters` and `cli` share the words of a request, which is pure and imports neither.
    let below = |top: &str| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = table[top].to_vec();
        while let Some(module) = next.pop() {
            let is_request = matches!((top, module), ("cli", "deadletters"));
            if !is_request && seen.insert(module) {
                next.extend(
                    table[module]
                        .iter()
                        .filter(|to| (module, **to) != ("cli", "deadletters")),
                );
            }
        }
        seen
    };
    for (top, _) in MAY_IMPORT {
        assert!(
            !below(top).contains(top),
            "`{top}` imports itself in the end"
        );
    }
    let cli = source::all()
        .into_iter()
        .filter(|source| source.top() == "cli");
    for path in cli
        .flat_map(|source| outward(&source))
        .filter(|path| within(path, "deadletters"))
    {
        assert!(
            within(&path, "deadletters::request"),
            "cli may not import `{path}`"
        );
    }
}

#[test]
fn pure_modules_import_only_pure_ones() {
    let mut wrong = Vec::new();
    for source in source::all()
        .iter()
        .filter(|source| is_pure(&source.module))
    {
        let mut named = outward(source);
        named.extend(
            source
                .paths()
                .into_iter()
                .filter(|path| within(path, "engine") && path != "engine"),
        );
        for path in named.iter().filter(|path| !may_be_named(path)) {
            wrong.push(format!(
                "{}: is pure and may not import `{path}`",
                source.file
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn pure_modules_do_nothing_but_compute() {
    let mut wrong = Vec::new();
    for source in source::all()
        .iter()
        .filter(|source| is_pure(&source.module))
    {
        for word in NOT_PURE.iter().filter(|word| source.code.contains(*word)) {
            wrong.push(format!(
                "{}: is pure and may not hold `{word}`",
                source.file
            ));
        }
        if source.code.contains("std::env") && !within(&source.module, READS_ENVIRONMENT) {
            wrong.push(format!(
                "{}: only the command line knows the environment",
                source.file
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn only_one_module_speaks_to_redis() {
    let names_the_crate = |code: &str| {
        code.match_indices("redis::").any(|(at, _)| {
            let before = code[..at].trim_end_matches("::").len() != at;
            let part_of_a_name = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            !before && !part_of_a_name
        })
    };
    let mut found = 0;
    for source in source::all()
        .iter()
        .filter(|source| names_the_crate(&source.code))
    {
        assert!(
            within(&source.module, "streams::redis"),
            "{} names the crate `redis`",
            source.file
        );
        found += 1;
    }
    assert!(found > 0, "the scan finds nothing any more");
}

#[test]
fn files_are_short_enough_to_read() {
    let long: Vec<_> = source::all()
        .iter()
        .map(|source| (source.code.lines().count(), source.file.clone()))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .map(|(lines, file)| format!("{file}: {lines} lines, more than {MAX_LINES}"))
        .collect();
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}
