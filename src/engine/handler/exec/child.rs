//! One child of the handler's command: a line in, a line out.
//!
//! It leads a process group of its own, so that what it starts ends with it; dropping it kills the group. It never sees our
//! credentials. Every wait here is bounded, but for the answer itself: that limit is the caller's.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::engine::handler::wire::MAX_ANSWER_BYTES;

/// How long a child may take to end in its own way after TERM, or after the end of its input.
const GRACE: Duration = Duration::from_secs(2);

/// How long the other sign of an end may lag behind the first: an exit status, or the last line of one that has exited.
const LAG: Duration = Duration::from_millis(200);

/// The longest excerpt of a line in an error text, in bytes.
const EXCERPT_BYTES: usize = 200;

/// Variables that the children do not get.
const CREDENTIALS: [&str; 2] = ["REDIS_USERNAME", "REDIS_PASSWORD"];

/// The prefix of our own variables: the children do not get these either.
const OUR_VARIABLES: &[u8] = b"STREAMSTAGE_";

/// A running child.
#[derive(Debug)]
pub(super) struct Child {
    group: Group,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// What it has written and nobody has taken.
    heard: Vec<u8>,
    /// How much of the present line it was given.
    written: usize,
    /// The whole line was given to it.
    is_fed: bool,
    has_answered: bool,
}

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// It wrote a line, of this many bytes.
    Line(usize),
    /// It wrote more than a line may hold.
    TooLong,
    /// It exited, or closed its output; what was seen.
    Exit(String),
}

impl Child {
    /// Starts the command.
    pub(super) fn spawn(command: &[String]) -> io::Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an empty command"))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        let mut process = command.spawn()?;
        let (stdin, stdout) = process
            .stdin
            .take()
            .zip(process.stdout.take())
            .ok_or_else(|| io::Error::other("a child without pipes"))?;
        Ok(Self {
            group: Group::of(process),
            stdin,
            stdout,
            heard: Vec::new(),
            written: 0,
            is_fed: true,
            has_answered: false,
        })
    }

    /// Whether it has answered at least once.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Looks, without waiting, whether it is up and silent.
    ///
    /// # Errors
    /// What else it is.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.group.process.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        match self.stdout.read_buf(&mut self.heard).now_or_never() {
            None => Ok(()),
            Some(Ok(0)) => Err("it closed its output".to_owned()),
            Some(Ok(_)) => Err(format!(
                "it wrote while idle: `{}`",
                self.excerpt(usize::MAX)
            )),
            Some(Err(error)) => Err(error.to_string()),
        }
    }

    /// Whether it is still up after this long.
    pub(super) async fn stays_up(&mut self, wait: Duration) -> bool {
        timeout(wait, self.group.process.wait()).await.is_err()
    }

    /// Gives it a line and waits for one. Reading goes on while writing, so neither side can block the other for ever.
    pub(super) async fn exchange(&mut self, line: &[u8]) -> Ending {
        let Self {
            group,
            stdin,
            stdout,
            heard,
            written,
            is_fed,
            ..
        } = self;
        (*written, *is_fed) = (0, false);
        let mut talk = pin!(async {
            let mut listen = pin!(listen(stdout, heard));
            tokio::select! {
                biased;
                // A child that stopped reading may still answer, and one that has ended says so on its output.
                fed = feed(stdin, line, written) => *is_fed = fed.is_ok(),
                said = listen.as_mut() => return said,
            }
            listen.await
        });
        let status = tokio::select! {
            biased;
            said = talk.as_mut() => match said {
                Some(said) => return said,
                None => timeout(LAG, group.process.wait()).await,
            },
            // Its last line may still lie in the pipe; what it started may keep that pipe open.
            status = group.process.wait() => match timeout(LAG, talk).await {
                Ok(Some(said)) => return said,
                Ok(None) | Err(_) => Ok(status),
            },
        };
        Ending::Exit(match status {
            Ok(Ok(status)) => format!("the child ended with {status}"),
            Ok(Err(_)) | Err(_) => "the child closed its output".to_owned(),
        })
    }

    /// Whether it read not a byte of its line: all of that still lies in the pipe, which Linux keeps as long as we hold our
    /// end. To be asked when it has ended.
    pub(super) fn is_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&self.stdin)
            .is_ok_and(|unread| usize::try_from(unread).is_ok_and(|unread| unread >= self.written))
    }

    /// The line of `end` bytes that an exchange brought.
    pub(super) fn line(&self, end: usize) -> &[u8] {
        self.heard.get(..end).unwrap_or_default()
    }

    /// The beginning of it, for an error text.
    pub(super) fn excerpt(&self, end: usize) -> String {
        let heard = self
            .heard
            .get(..end.min(EXCERPT_BYTES))
            .unwrap_or(&self.heard);
        String::from_utf8_lossy(heard).into_owned()
    }

    /// Takes its line as an answer; whether it can be given another.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn settle(&mut self, end: usize) -> Result<(), &'static str> {
        self.has_answered = true;
        if !self.is_fed {
            return Err("it answered before it had read its entry");
        }
        if self.heard.len() > end + 1 {
            return Err("it wrote more than its answer");
        }
        self.heard.clear();
        Ok(())
    }

    /// Ends it at once.
    pub(super) async fn kill(&mut self) {
        self.group.kill().await;
    }

    /// Ends it with TERM, and KILL after a while.
    pub(super) async fn terminate(&mut self) {
        self.group.terminate().await;
    }

    /// Lets it end in its own way: by the end of its input, then by TERM, then by KILL.
    pub(super) async fn retire(self) {
        let Self {
            mut group,
            stdin,
            stdout,
            ..
        } = self;
        drop(stdin);
        if timeout(GRACE, group.process.wait()).await.is_err() {
            group.terminate().await;
        } else {
            group.kill().await;
        }
        drop(stdout);
    }
}

async fn feed(stdin: &mut ChildStdin, line: &[u8], written: &mut usize) -> io::Result<()> {
    while let Some(rest) = line.get(*written..).filter(|rest| !rest.is_empty()) {
        *written += stdin.write(rest).await?;
    }
    Ok(())
}

/// Reads until there is a line, or more than a line may hold; `None` if the output ends before.
async fn listen(stdout: &mut ChildStdout, heard: &mut Vec<u8>) -> Option<Ending> {
    let mut searched = 0;
    loop {
        let fresh = heard.get(searched..).unwrap_or_default();
        if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
            return Some(match searched + at {
                end if end > MAX_ANSWER_BYTES => Ending::TooLong,
                end => Ending::Line(end),
            });
        }
        searched = heard.len();
        if searched > MAX_ANSWER_BYTES {
            return Some(Ending::TooLong);
        }
        match stdout.read_buf(heard).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// A process and all that it started, as long as they stay in its group.
#[derive(Debug)]
struct Group {
    process: tokio::process::Child,
    leader: Option<Pid>,
}

impl Group {
    fn of(process: tokio::process::Child) -> Self {
        let id = process.id().and_then(|id| i32::try_from(id).ok());
        Self {
            process,
            leader: id.and_then(Pid::from_raw),
        }
    }

    async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        // Whether it went by itself or not, what it started may be left.
        timeout(GRACE, self.process.wait()).await.ok();
        self.kill().await;
    }

    async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.leader = None;
        // Only a process stuck in the kernel outlives KILL for long; it is reaped in the background.
        timeout(GRACE, self.process.wait()).await.ok();
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // An error means that the group is gone, which is what a signal is for.
            kill_process_group(leader, signal).ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn is_ours(name: &OsStr) -> bool {
    CREDENTIALS.iter().any(|credential| name == *credential)
        || name.as_bytes().starts_with(OUR_VARIABLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_variables_are_known_by_name_and_prefix() {
        for ours in [
            "REDIS_USERNAME",
            "REDIS_PASSWORD",
            "STREAMSTAGE_CONFIG",
            "STREAMSTAGE_",
        ] {
            assert!(is_ours(OsStr::new(ours)), "{ours}");
        }
        for theirs in ["PATH", "REDIS_URL", "STREAMSTAGE", "streamstage_x"] {
            assert!(!is_ours(OsStr::new(theirs)), "{theirs}");
        }
    }
}
