//! A child process in a group of its own: signals to it or to the group, an end with a deadline.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::eventually;

pub(crate) struct Process {
    child: Child,
    pid: Pid,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with standard output and error in files; its input is its caller's choice.
    pub(crate) fn start(command: &mut Command, output: &Path, log: &Path) -> Self {
        let create = |path: &Path| std::fs::File::create(path).expect("a file for the output");
        let child = command
            .stdout(create(output))
            .stderr(create(log))
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let pid = Pid::from_child(&child);
        Self {
            child,
            pid,
            ended: None,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("the process is there");
    }

    /// Signals the process with all it started that stayed in its group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        kill_process_group(self.pid, signal).expect("the group is there");
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("our own child");
        }
        self.ended
    }

    /// Waits for the end: the exit code, or 128 and the signal's number.
    pub(crate) async fn wait(&mut self, what: &str, within: Duration) -> i32 {
        let status = eventually(what, within, async || self.ended()).await;
        status
            .code()
            .or_else(|| status.signal().map(|signal| 128 + signal))
            .expect("an exit code or a signal")
    }

    /// Kills it with its group at once.
    pub(crate) async fn kill(&mut self) {
        if self.ended().is_none() {
            self.signal_group(Signal::KILL);
            self.wait("a killed process ends", Duration::from_secs(10))
                .await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group may outlive the process, and may be gone already: both are fine.
        kill_process_group(self.pid, Signal::KILL).ok();
        self.child.wait().ok();
    }
}
