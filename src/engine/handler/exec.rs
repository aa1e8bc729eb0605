//! The Exec handler: children that read a line and write a line, one entry each.
//!
//! Owns the children and judges how they end; what is written and what answers mean is in `wire.rs`, one child is in
//! `exec/child.rs`. Children are spawned when they are needed and kept; the one used last is used next. A child that ended
//! without reading a byte of its entry never held it: the entry goes to another, and only if that happens again and again is
//! the handler unavailable. So a program that cannot even start costs no entry anything.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::child::{Child, Ending};
use super::told::Told;
use super::wire::MAX_ANSWER_BYTES;
use super::wire::answer::{Terms, of_line};
use super::wire::request::line;
use super::{Handler, Start};
use crate::engine::outcome::{Failure, Outcome, UnavailableReason, timed_out};

mod child;

/// Children in a row that ended idle and never answered, before the handler counts as unavailable: one may be bad luck.
const IDLE_EXITS: u32 = 3;

/// How long a probe's child must stay up: a program that is missing a file or a library is gone by then.
const PROBE_FOR: Duration = Duration::from_millis(100);

/// The program, and which stage asks.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Entries at once, and so the most children that are kept.
    pub concurrency: usize,
    /// The stage's namespace.
    pub namespace: String,
    /// The stage's name.
    pub stage: String,
    /// The stage has an output stream.
    pub has_output: bool,
}

/// A program whose children are given one entry at a time.
#[derive(Debug)]
pub struct ExecHandler {
    settings: ExecSettings,
    idle: Mutex<Idle>,
    idle_exits: AtomicU32,
    /// Why the program did not answer.
    absences: Told,
    /// What else than answers its children wrote.
    noises: Told,
    /// Children on their way out.
    leaving: TaskTracker,
}

#[derive(Debug, Default)]
struct Idle {
    children: Vec<Child>,
    is_stopped: bool,
}

impl ExecHandler {
    /// A handler without a child yet.
    pub fn new(settings: ExecSettings) -> Self {
        Self {
            settings,
            idle: Mutex::default(),
            idle_exits: AtomicU32::new(0),
            absences: Told::default(),
            noises: Told::default(),
            leaving: TaskTracker::new(),
        }
    }

    /// A child for one entry: the one used last that is still well, or a new one.
    fn take(&self, start: &Start) -> Result<Child, UnavailableReason> {
        if !start.fresh {
            while let Some(mut child) = self.last() {
                match child.check() {
                    Ok(()) => {
                        if child.has_answered() {
                            self.noises.forget();
                        }
                        return Ok(child);
                    }
                    Err(why) => self.ended_idle(&child, &why),
                };
            }
        }
        self.spawn()
    }

    fn last(&self) -> Option<Child> {
        self.idle().children.pop()
    }

    /// Keeps a child for the next entry, unless there are enough.
    fn keep(&self, child: Child) {
        let mut idle = self.idle();
        if idle.is_stopped || idle.children.len() >= self.settings.concurrency {
            drop(idle);
            self.leaving.spawn(child.retire());
        } else {
            idle.children.push(child);
        }
    }

    /// Notes that a child ended without an entry; whether that happens too often.
    fn ended_idle(&self, child: &Child, why: &str) -> bool {
        if child.has_answered() {
            // It did its work and went (a one-shot program, a limit of its own): that says nothing against the program.
            tracing::debug!(why, "a child of the handler was idle and is replaced");
            return false;
        }
        if self.absences.is_news(why) {
            tracing::warn!(
                why,
                "a child of `handler.exec.command` ended or wrote before it had an entry, and is replaced"
            );
        }
        let exits = self.idle_exits.fetch_add(1, Ordering::Relaxed);
        exits.saturating_add(1) >= IDLE_EXITS
    }

    /// Keeps a child that has answered, if it can be trusted with another entry.
    async fn answered(&self, mut child: Child, end: usize) {
        self.idle_exits.store(0, Ordering::Relaxed);
        self.absences.forget();
        match child.settle(end) {
            Ok(()) => self.keep(child),
            Err(why) => {
                if self.noises.is_news(why) {
                    tracing::warn!(
                        why,
                        "a child of `handler.exec.command` is replaced after its answer"
                    );
                }
                child.kill().await;
            }
        }
    }

    /// The outcome of an exchange.
    ///
    /// # Errors
    /// What the child did instead of answering.
    fn judge(
        &self,
        child: &Child,
        ending: Ending,
        start: &Start,
    ) -> Result<(usize, Outcome), Failure> {
        let terms = Terms {
            entry: &start.entry,
            has_output: self.settings.has_output,
        };
        match ending {
            Ending::Exit(text) => Err(Failure::new("ProcessExited", text)),
            Ending::TooLong => {
                let text = format!("a line longer than {MAX_ANSWER_BYTES} bytes");
                Err(Failure::new("ProtocolViolation", text))
            }
            Ending::Line(end) => match of_line(child.line(end), terms) {
                Ok(outcome) => Ok((end, outcome)),
                Err(why) => {
                    let text = format!("not an answer: {why}: `{}`", child.excerpt(end));
                    Err(Failure::new("ProtocolViolation", text))
                }
            },
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Nothing under this lock leaves it half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self) -> Result<Child, UnavailableReason> {
        Child::spawn(&self.settings.command).map_err(|error| {
            let error = error.to_string();
            if self.absences.is_news(&error) {
                let program = self.settings.command.first().map(String::as_str);
                tracing::warn!(
                    program,
                    error,
                    "`handler.exec.command` cannot be started: the stage reads nothing until it can"
                );
            }
            UnavailableReason::SpawnFailed
        })
    }
}

impl Handler for ExecHandler {
    async fn call(&self, start: Start, cancel: CancellationToken) -> Outcome {
        let line = line(&start, &self.settings.namespace, &self.settings.stage);
        let mut limit = std::pin::pin!(tokio::time::sleep(start.timeout));
        while !cancel.is_cancelled() {
            let mut child = match self.take(&start) {
                Ok(child) => child,
                Err(reason) => return Outcome::Unavailable { reason },
            };
            let ending = tokio::select! {
                biased;
                ending = child.exchange(&line) => ending,
                () = cancel.cancelled() => {
                    child.terminate().await;
                    return Outcome::Cancelled;
                }
                () = limit.as_mut() => {
                    child.terminate().await;
                    return timed_out(start.timeout);
                }
            };
            let error = match self.judge(&child, ending, &start) {
                Ok((end, outcome)) => {
                    self.answered(child, end).await;
                    return outcome;
                }
                Err(error) => error,
            };
            child.kill().await;
            if !child.is_unread() {
                // It held nothing else: whatever ended it, the culprit is known.
                return Outcome::Crashed { error, alone: true };
            }
            if self.ended_idle(&child, &error.message) {
                let reason = UnavailableReason::ProcessExiting;
                return Outcome::Unavailable { reason };
            }
        }
        Outcome::Cancelled
    }

    async fn probe(&self) -> Result<(), UnavailableReason> {
        let mut child = self.spawn()?;
        if child.stays_up(PROBE_FOR).await {
            self.keep(child);
            Ok(())
        } else {
            child.kill().await;
            Err(UnavailableReason::ProcessExiting)
        }
    }

    async fn stop(&self) {
        let children = {
            let mut idle = self.idle();
            idle.is_stopped = true;
            std::mem::take(&mut idle.children)
        };
        join_all(children.into_iter().map(Child::retire)).await;
        self.leaving.close();
        self.leaving.wait().await;
    }
}
