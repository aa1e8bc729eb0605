//! A worker process: `streamstage dev` in a process group of its own, its log and its summary.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde::Deserialize;

use super::process::Process;
use super::scratch::tail;

/// Log lines shown when a test fails.
const SHOWN: usize = 30;

/// A debug build that starts and then waits for some seconds uses a tenth of that; one that spins uses seconds.
const MUCH_WORK: Duration = Duration::from_millis(1_500);

pub(crate) struct Worker {
    process: Process,
    output: PathBuf,
    log: PathBuf,
}

/// The last line of standard output with `-o json`: this process's own counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Summary {
    pub(crate) done: u64,
    pub(crate) skipped: u64,
    pub(crate) retried: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
}

impl Worker {
    /// Starts `command` with its output in files beginning with `stem`.
    pub(crate) fn start(command: &mut Command, stem: &std::path::Path) -> Self {
        let (output, log) = (stem.with_extension("out"), stem.with_extension("log"));
        Self {
            process: Process::start(command, &output, &log),
            output,
            log,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Signals the worker alone: its handlers go on.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills the worker with all it started, as an eviction or a lost node would.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Waits for the end: the exit code, or 128 and the signal's number.
    pub(crate) async fn exit(&mut self, within: Duration) -> i32 {
        self.process.wait("the worker ends", within).await
    }

    /// Asks it to drain and waits: its counts.
    pub(crate) async fn drain(&mut self, within: Duration) -> Summary {
        self.signal(Signal::TERM);
        self.summary(within).await
    }

    /// Waits for an end with exit code 0: its counts.
    pub(crate) async fn summary(&mut self, within: Duration) -> Summary {
        assert_eq!(self.exit(within).await, 0, "the worker's exit code");
        let line = tail(&self.output, 1);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("summary {line:?}: {error}"))
    }

    /// The processor time it has used so far.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("the process is there");
        // After the name, which is in parentheses: user and system time are the 12th and 13th word, in ticks of 10 ms.
        let words = stat.rsplit(") ").next().expect("a name").split(' ');
        let ticks: u64 = words
            .skip(11)
            .take(2)
            .map(|word| word.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Fails the test if it was busy while it had to wait: much log, or much work for the processor.
    pub(crate) fn did_not_spin(&self) {
        let (lines, used) = (self.log().lines().count(), self.processor_time());
        assert!(lines < 60, "{lines} lines of log");
        assert!(used < MUCH_WORK, "{used:?} of processor time");
    }

    /// All it has logged so far.
    pub(crate) fn log(&self) -> String {
        tail(&self.log, usize::MAX)
    }

    pub(crate) fn output(&self) -> String {
        tail(&self.output, usize::MAX)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (id, lines) = (self.id(), tail(&self.log, SHOWN));
            eprintln!("--- last lines of worker {id}:\n{lines}\n---");
        }
    }
}
