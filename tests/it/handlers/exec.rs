//! The Exec handler against children that follow a script of their own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use streamstage::clock::Clock;
use streamstage::engine::handler::Handler;
use streamstage::engine::handler::exec::{ExecHandler, ExecSettings};
use streamstage::engine::outcome::{Outcome, UnavailableReason};
use tokio_util::sync::CancellationToken;

use super::{ID, LONG, Log, SHORT, call, class, done, eventually, fresh, start, within};

/// Answers that every line is done, and who did it.
const WORK: &str = r#"
while IFS= read -r line; do
    id=${line#'{"id":"'}
    printf '{"id":"%s","ok":true,"outputs":[{"pid":"%s"}]}\n' "${id%%\"*}" $$
done"#;

fn handler(command: &[&str]) -> ExecHandler {
    ExecHandler::new(ExecSettings {
        command: command.iter().map(ToString::to_string).collect(),
        concurrency: 4,
        namespace: "default".to_owned(),
        stage: "embed".to_owned(),
        has_output: true,
    })
}

fn shell(script: &str) -> ExecHandler {
    handler(&["/bin/sh", "-c", script])
}

/// A shell that knows `$dir`.
fn shell_in(dir: &Path, script: &str) -> ExecHandler {
    shell(&format!("dir='{}'\n{script}", dir.display()))
}

fn example(name: &str) -> String {
    format!("{}/examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// An empty directory of one test.
fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::remove_dir_all(&dir).unwrap_or_default();
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// The pid in a file, once it is there.
async fn pid_in(file: &Path) -> String {
    eventually("a pid is written", || read(file).ends_with('\n')).await;
    read(file).trim().to_owned()
}

/// Whether a process has ended; it may still wait for whoever should reap it.
fn is_gone(pid: &str) -> bool {
    let stat = read(&PathBuf::from(format!("/proc/{pid}/stat")));
    stat.rsplit_once(") ")
        .is_none_or(|(_, state)| state.starts_with('Z'))
}

/// Who answered.
fn pid(outcome: &Outcome) -> String {
    let Outcome::Done { outputs } = outcome else {
        panic!("{outcome:?}");
    };
    String::from_utf8(outputs[0][0].1.clone()).unwrap()
}

fn text(outcome: &Outcome) -> &str {
    let Outcome::Crashed { error, .. } = outcome else {
        panic!("{outcome:?}");
    };
    &error.message
}

#[tokio::test]
async fn a_child_is_given_the_line_of_the_wire() {
    let dir = scratch("line");
    let handler = shell_in(
        &dir,
        r#"IFS= read -r line; printf '%s' "$line" > "$dir/line"; printf '{"id":"%s","ok":true}\n' 1700000000123-4"#,
    );
    assert_eq!(
        call(&handler, start(&[("a", "x\ny"), ("b", "")])).await,
        done()
    );
    let expected = concat!(
        r#"{"id":"1700000000123-4","stage":"embed","namespace":"default","attempt":1,"deliveries":1,"#,
        r#""idempotencyKey":"abababababababababababababababab","deadline":"2026-01-02T03:04:05.000Z","#,
        r#""fields":{"a":"x\ny","b":""}}"#
    );
    assert_eq!(read(&dir.join("line")), expected);
}

#[tokio::test]
async fn children_are_kept_and_the_entry_that_must_run_alone_gets_a_new_one() {
    let handler = shell(WORK);
    let first = pid(&call(&handler, start(&[])).await);
    assert_eq!(pid(&call(&handler, start(&[])).await), first);
    let alone = pid(&call(&handler, fresh(&[])).await);
    assert_ne!(alone, first);
    let (one, other) = tokio::join!(call(&handler, start(&[])), call(&handler, start(&[])));
    assert_ne!(pid(&one), pid(&other));
}

#[tokio::test]
async fn a_child_that_ends_or_breaks_the_protocol_has_crashed_with_its_entry() {
    for (script, error_type, expected) in [
        ("read line; exit 3", "ProcessExited", "exit status: 3"),
        ("read line; kill -9 $$", "ProcessExited", "signal: 9"),
        (
            "read line; exec 1>&-; sleep 1000",
            "ProcessExited",
            "closed its output",
        ),
        (
            "read line; sleep 1000 & exit 4",
            "ProcessExited",
            "exit status: 4",
        ),
        (
            "read line; printf half; exit 5",
            "ProcessExited",
            "exit status: 5",
        ),
        (
            "read line; echo working; sleep 1000",
            "ProtocolViolation",
            "working",
        ),
        (
            "read line; echo; sleep 1000",
            "ProtocolViolation",
            "no JSON object",
        ),
        (
            r#"read line; echo '{"id":"1-1","ok":true}'"#,
            "ProtocolViolation",
            "`1-1`",
        ),
        (
            "read line; yes | tr -d '\\n'",
            "ProtocolViolation",
            "longer than 1048576",
        ),
    ] {
        let handler = shell(script);
        let outcome = call(&handler, start(&[])).await;
        assert_eq!(
            class(&outcome),
            format!("CrashedAlone {error_type}"),
            "{script}"
        );
        let message = text(&outcome);
        assert!(message.contains(expected), "{script}: {message}");
    }
}

#[tokio::test]
async fn a_child_that_crashed_is_replaced() {
    let dir = scratch("replaced");
    let script = format!(r#"[ -e "$dir/once" ] || {{ >"$dir/once"; read line; exit 1; }}{WORK}"#);
    let handler = shell_in(&dir, &script);
    assert_eq!(
        class(&call(&handler, start(&[])).await),
        "CrashedAlone ProcessExited"
    );
    assert_eq!(class(&call(&handler, start(&[])).await), "Done 1");
}

#[tokio::test]
async fn a_child_that_answers_and_ends_has_answered() {
    let handler = shell(&format!(r#"read line; echo '{{"id":"{ID}","ok":true}}'"#));
    for _ in 0..5 {
        assert_eq!(call(&handler, start(&[])).await, done());
    }
}

#[tokio::test]
async fn a_child_that_says_more_than_its_answer_is_replaced_and_its_answer_counts() {
    let twice = r#"
while IFS= read -r line; do
    answer="{\"id\":\"1700000000123-4\",\"ok\":true,\"outputs\":[{\"pid\":\"$$\"}]}"
    printf '%s\n%s\n' "$answer" "$answer"
done"#;
    let handler = shell(twice);
    let first = pid(&call(&handler, start(&[])).await);
    assert_ne!(pid(&call(&handler, start(&[])).await), first);
}

#[tokio::test]
async fn a_program_that_ends_before_it_reads_costs_no_entry_and_is_unavailable() {
    let dir = scratch("exiting");
    let handler = shell_in(&dir, r#"echo >> "$dir/starts"; exit 1"#);
    let exiting = "Unavailable ProcessExiting";
    assert_eq!(class(&call(&handler, start(&[])).await), exiting);
    assert_eq!(read(&dir.join("starts")).len(), 3);
    assert_eq!(class(&call(&handler, start(&[])).await), exiting);
    assert_eq!(read(&dir.join("starts")).len(), 4);
    assert_eq!(
        handler.probe().await,
        Err(UnavailableReason::ProcessExiting)
    );
}

#[tokio::test]
async fn a_program_that_complains_and_ends_before_it_reads_costs_no_entry() {
    for complaint in [
        "echo no config; exit 1",
        "printf no; exit 1",
        "exec 1>&-; sleep 1000",
    ] {
        let outcome = call(&shell(complaint), start(&[])).await;
        assert_eq!(class(&outcome), "Unavailable ProcessExiting", "{complaint}");
    }
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_starts_starts_nothing() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = handler(&["/no/such/program"])
        .call(start(&[]), cancel)
        .await;
    assert_eq!(outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn a_program_that_ends_early_twice_is_given_its_third_chance() {
    let dir = scratch("third");
    let script =
        format!(r#"echo >> "$dir/starts"; [ $(wc -l <"$dir/starts") -gt 2 ] || exit 1{WORK}"#);
    let handler = shell_in(&dir, &script);
    assert_eq!(class(&call(&handler, start(&[])).await), "Done 1");
    assert_eq!(class(&call(&handler, start(&[])).await), "Done 1");
    assert_eq!(read(&dir.join("starts")).len(), 3);
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_unavailable() {
    for command in [&["/no/such/program"][..], &["/etc/passwd"], &[]] {
        let handler = handler(command);
        assert_eq!(handler.probe().await, Err(UnavailableReason::SpawnFailed));
        assert_eq!(
            class(&call(&handler, start(&[])).await),
            "Unavailable SpawnFailed"
        );
    }
}

#[tokio::test]
async fn why_no_child_answers_is_logged_once_until_one_does() {
    let log = Log::default();
    let _listening = log.listen();
    let unstartable = handler(&["/no/such/program"]);
    for _ in 0..5 {
        unstartable.probe().await.unwrap_err();
    }
    let line = "`handler.exec.command` cannot be started: the stage reads nothing until it can";
    assert_eq!((log.count(line), log.count("/no/such/program")), (1, 1));

    let dir = scratch("told");
    let script = format!(r#"[ -e "$dir/well" ] || exit 1{WORK}"#);
    let handler = shell_in(&dir, &script);
    let ended = "before it had an entry";
    for _ in 0..5 {
        call(&handler, start(&[])).await;
    }
    // Its output may be seen to close before its end is: that is another reason.
    assert!((1..=2).contains(&log.count(ended)), "{}", log.count(ended));
    std::fs::write(dir.join("well"), "").unwrap();
    assert_eq!(class(&call(&handler, start(&[])).await), "Done 1");
    handler.stop().await;
}

#[tokio::test]
async fn a_child_that_floods_its_output_is_logged_once() {
    let log = Log::default();
    let _listening = log.listen();
    let answer = format!(r#"{{"id":"{ID}","ok":true,"outputs":[]}}"#);
    let script = format!(r"while read -r line; do printf '{answer}\nnoise\n'; done");
    let handler = shell(&script);
    for _ in 0..5 {
        assert_eq!(call(&handler, start(&[])).await, done());
    }
    assert_eq!(log.count("is replaced after its answer"), 1);
}

#[tokio::test]
async fn the_child_of_a_probe_is_kept() {
    let dir = scratch("probe");
    let handler = shell_in(&dir, &format!(r#"echo >> "$dir/starts"{WORK}"#));
    assert_eq!(handler.probe().await, Ok(()));
    assert_eq!(class(&call(&handler, start(&[])).await), "Done 1");
    assert_eq!(read(&dir.join("starts")).len(), 1);
}

#[tokio::test]
async fn a_child_that_died_while_idle_is_replaced_silently() {
    let handler = shell(WORK);
    for _ in 0..5 {
        let pid = pid(&call(&handler, start(&[])).await);
        let killed = std::process::Command::new("kill")
            .args(["-9", &pid])
            .status();
        assert!(killed.unwrap().success());
        eventually("it is gone", || is_gone(&pid)).await;
    }
}

#[tokio::test]
async fn a_child_that_takes_too_long_is_killed_with_all_it_started() {
    let dir = scratch("slow");
    let stubborn =
        r#"trap '' TERM; sleep 1000 & echo $! > "$dir/pid"; read line; while :; do sleep 1; done"#;
    let polite = r#"sleep 1000 & echo $! > "$dir/pid"; read line; wait"#;
    for script in [stubborn, polite] {
        let handler = shell_in(&dir, script);
        let clock = Clock::start();
        let outcome = call(&handler, within(SHORT, &[])).await;
        assert_eq!(class(&outcome), "Retry Timeout");
        assert!(
            clock.now() < Duration::from_secs(10),
            "took {:?}",
            clock.now()
        );
        let grandchild = pid_in(&dir.join("pid")).await;
        eventually("the grandchild is gone", || is_gone(&grandchild)).await;
        std::fs::remove_file(dir.join("pid")).unwrap();
    }
}

#[tokio::test]
async fn an_entry_that_a_child_does_not_read_blocks_nobody() {
    let large = "v".repeat(1024 * 1024);
    let deaf = shell("exec sleep 1000");
    assert_eq!(
        class(&call(&deaf, within(SHORT, &[("a", &large)])).await),
        "Retry Timeout"
    );
    // It writes more than a pipe holds before it reads anything: we must read while we write.
    let talker = shell(&format!(
        r#"head -c 200000 /dev/zero | tr '\0' ' '; read line; echo '{{"id":"{ID}","ok":true}}'"#
    ));
    assert_eq!(call(&talker, start(&[("a", &large)])).await, done());
}

#[tokio::test]
async fn a_child_that_answers_what_it_has_not_read_is_not_given_more() {
    let eager = format!(
        r#"head -c 9 >/dev/null; echo '{{"id":"{ID}","ok":true,"outputs":[{{"pid":"'$$'"}}]}}'; sleep 1000"#
    );
    let handler = shell(&eager);
    let large = "v".repeat(1024 * 1024);
    let first = pid(&call(&handler, start(&[("a", &large)])).await);
    assert!(is_gone(&first));
}

#[tokio::test]
async fn a_cancelled_child_is_killed() {
    let dir = scratch("cancelled");
    let handler = shell_in(&dir, r#"read line; echo $$ > "$dir/pid"; exec sleep 1000"#);
    let cancel = CancellationToken::new();
    let (outcome, pid) = tokio::join!(handler.call(start(&[]), cancel.clone()), async {
        let pid = pid_in(&dir.join("pid")).await;
        cancel.cancel();
        pid
    });
    assert_eq!(outcome, Outcome::Cancelled);
    assert!(is_gone(&pid));
}

#[tokio::test]
async fn a_stop_ends_idle_children_by_the_end_of_their_input() {
    let dir = scratch("stop");
    let handler = shell_in(&dir, &format!(r#"{WORK}; echo bye > "$dir/bye""#));
    let worker = pid(&call(&handler, start(&[])).await);
    handler.stop().await;
    assert_eq!(read(&dir.join("bye")), "bye\n");
    assert!(is_gone(&worker));
}

#[tokio::test]
async fn a_stop_kills_children_that_do_not_end() {
    let handler = shell(&format!(r"trap '' TERM{WORK}; while :; do sleep 1; done"));
    let worker = pid(&call(&handler, start(&[])).await);
    let clock = Clock::start();
    handler.stop().await;
    assert!(is_gone(&worker));
    assert!(clock.now() < LONG);
}

#[tokio::test]
async fn a_dropped_handler_leaves_no_children() {
    let handler = shell(&format!("{WORK}; sleep 1000"));
    let worker = pid(&call(&handler, start(&[])).await);
    drop(handler);
    eventually("the child is gone", || is_gone(&worker)).await;
}

/// Starts this test once more with the variables set: those of a running process cannot be changed safely.
#[tokio::test]
async fn children_do_not_see_our_credentials() {
    let given = [
        "REDIS_USERNAME",
        "REDIS_PASSWORD",
        "STREAMSTAGE_CONFIG",
        "THEIRS",
    ];
    let is_set = |wanted: &str| std::env::vars_os().any(|(name, _)| name == wanted);
    if !is_set("THEIRS") {
        let test = "handlers::exec::children_do_not_see_our_credentials";
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .envs(given.map(|name| (name, "secret")))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    let dir = scratch("environment");
    let script = format!(r#"env > "$dir/env"{WORK}"#);
    assert!(given.into_iter().all(is_set));
    assert_eq!(
        class(&call(&shell_in(&dir, &script), start(&[])).await),
        "Done 1"
    );
    let seen = read(&dir.join("env"));
    let secrets: Vec<_> = seen
        .lines()
        .filter(|line| line.ends_with("=secret"))
        .collect();
    assert_eq!(secrets, ["THEIRS=secret"]);
}

#[tokio::test]
async fn the_python_example_shows_every_class() {
    let handler = handler(&[&example("exec-handler.py"), "--echo"]);
    for (fields, expected) in [
        (vec![("a", "ä\n\"")], "Done 1"),
        (vec![("fail", "Oops")], "Retry Oops"),
        (vec![("heal", "2")], "Retry NotYet"),
        (vec![("heal", "1")], "Done 1"),
        (vec![("reject", "Wrong")], "Reject Wrong"),
        (vec![("busy", "1.5")], "Busy Busy"),
        (vec![("heal", "soon")], "Retry ValueError"),
        (vec![("die", "")], "CrashedAlone ProcessExited"),
        (vec![("sleep", "1")], "Done 1"),
    ] {
        assert_eq!(
            class(&call(&handler, start(&fields)).await),
            expected,
            "{fields:?}"
        );
    }
    let large = "v".repeat(900_000);
    let outputs = vec![vec![(b"a".to_vec(), large.clone().into_bytes())]];
    assert_eq!(
        call(&handler, start(&[("a", &large)])).await,
        Outcome::Done { outputs }
    );
}

#[tokio::test]
async fn the_shell_example_answers_by_exit_status() {
    let example = example("exec-handler.sh");
    let told = |status: &str| format!("cat; exit {status}");
    for (status, expected) in [
        ("0", "Done 0"),
        ("65", "Reject DataError"),
        ("75", "Busy TemporaryFailure"),
        ("7", "Retry ExitStatus"),
    ] {
        let handler = handler(&[&example, "sh", "-c", &told(status)]);
        let entry = [("a", "%s \\ \" $(exit 9) `exit 9` '\n")];
        for _ in 0..2 {
            assert_eq!(class(&call(&handler, start(&entry)).await), expected);
        }
    }
    assert_eq!(call(&handler(&[&example]), start(&[])).await, done());
}
