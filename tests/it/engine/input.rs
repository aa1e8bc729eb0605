//! `--input` and `--until-idle`: a whole run from one command line.

use rustix::process::Signal;

use crate::engine::SOON;
use crate::support::Bench;

const LINES: &str = "{\"key\":\"one\"}\n{\"key\":\"two\",\"do\":\"error:Down|ok\"}\n\n{\"key\":\"three\",\"n\":3}\n";

#[tokio::test]
async fn lines_of_a_file_become_entries() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("retry.initialDelay", "100ms");
    let path = bench.file("lines");
    std::fs::write(&path, LINES).expect("written");
    let path = path.to_string_lossy().into_owned();
    let mut worker = bench.worker_with(&stage, &["--input", &path, "--until-idle"]);
    let summary = worker.summary(SOON).await;
    assert_eq!((summary.done, summary.retried), (3, 1));
    let journal = bench.journal();
    let counts = journal.starts_by_key();
    assert_eq!(counts, [("one", 1), ("three", 1), ("two", 2)].into());
}

#[tokio::test]
async fn lines_of_standard_input_become_entries() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok").set("retry.initialDelay", "100ms");
    let mut worker = bench.worker_fed(&stage, LINES);
    assert_eq!(worker.summary(SOON).await.done, 3);
}

#[tokio::test]
async fn line_that_is_no_object_is_named_and_the_exit_code_says_so() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let mut worker = bench.worker_fed(&stage, "{\"key\":\"one\"}\n[1, 2]\n");
    assert_eq!(worker.exit(SOON).await, 1);
    let told = "line 2 of standard input is no entry: invalid type: sequence";
    assert!(worker.log().contains(told), "{}", worker.log());
    let told = "; 1 entry was added before it";
    assert!(worker.log().contains(told), "{}", worker.log());
}

#[tokio::test]
async fn worker_on_an_empty_stage_ends_at_once_until_idle() {
    let bench = Bench::new().await;
    let summary = bench.run_dry(&bench.scripted("ok"), SOON).await;
    assert_eq!(summary, crate::support::Summary::default());
}

#[tokio::test]
async fn input_that_a_drain_cut_off_is_told_and_the_exit_code_says_so() {
    let bench = Bench::new().await;
    let stage = bench.scripted("ok");
    let path = bench.file("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo").success());
    // Both ends, so that neither opening nor reading meets an end.
    let open = std::fs::File::options().read(true).write(true).open(&path);
    let mut pipe = open.expect("a pipe");
    let words = ["--input", &path.to_string_lossy(), "--until-idle"];
    let mut worker = bench.worker_with(&stage, &words);
    std::io::Write::write_all(&mut pipe, b"{\"key\":\"one\"}\n").expect("written");
    bench.started(1, SOON).await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit(SOON).await, 1);
    let told = "error: 1 entry of the input was added, the rest was not: the run was stopped";
    assert!(worker.log().contains(told), "{}", worker.log());
    assert!(
        worker.output().contains("\"done\":1"),
        "{}",
        worker.output()
    );
}
