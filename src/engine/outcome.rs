//! What a handler said of an entry, and how its answers become that. Pure.

use std::time::Duration;

use crate::streams::Fields;

/// What a handler said of one entry, or what its silence means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done.
    Done {
        /// What to append to the output stream.
        outputs: Vec<Fields>,
    },
    /// It failed and may succeed later: an attempt is spent.
    Retry {
        /// What went wrong.
        error: Failure,
        /// The wait the handler asked for.
        after: Option<Duration>,
    },
    /// The entry itself is wrong: no further try can help.
    Reject {
        /// What went wrong.
        error: Failure,
    },
    /// The handler has no room now: no attempt is spent.
    Busy {
        /// What it said.
        error: Failure,
        /// The wait it asked for.
        after: Option<Duration>,
    },
    /// The handler's process died, or broke the protocol, while it held the entry.
    Crashed {
        /// What was seen.
        error: Failure,
        /// No other entry was in that process: the culprit is known.
        alone: bool,
    },
    /// The handler cannot be reached or started: nothing ran.
    Unavailable {
        /// Why.
        reason: UnavailableReason,
    },
    /// The engine ended the run (lost lease, drain): nothing is known, nothing is charged.
    Cancelled,
}

/// The words of an error, as the handler gave them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Failure {
    /// A short type, such as `MalformedDocument` or `Timeout`.
    pub error_type: String,
    /// The text.
    pub message: String,
    /// The traceback, if any.
    pub traceback: String,
}

impl Failure {
    /// A failure without a traceback.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            error_type: error_type.into(),
            message: message.into(),
            traceback: String::new(),
        }
    }
}

/// Why a handler cannot be reached or started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnavailableReason {
    /// Nobody listens on its port.
    ConnectionRefused,
    /// Its host does not resolve.
    DnsFailure,
    /// Its command cannot be started.
    SpawnFailed,
    /// Its process keeps exiting while idle.
    ProcessExiting,
}

impl UnavailableReason {
    /// The reason's name, as conditions and reports give it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConnectionRefused => "ConnectionRefused",
            Self::DnsFailure => "DNSFailure",
            Self::SpawnFailed => "SpawnFailed",
            Self::ProcessExiting => "ProcessExiting",
        }
    }
}

/// The statuses by which an HTTP handler says that the entry itself is wrong.
///
/// 401, 403 and 404 are not among them: a deploy that broke a route must not empty the stream into the dead letters.
const REJECTS: [u16; 5] = [400, 410, 413, 415, 422];

/// What an HTTP answer other than a 2xx means; `retryable` is the handler's own word, which goes before the status.
pub(crate) fn of_status(
    status: u16,
    retryable: Option<bool>,
    error: Failure,
    after: Option<Duration>,
) -> Outcome {
    let is_reject = retryable.map_or_else(|| REJECTS.contains(&status), |retryable| !retryable);
    let is_busy = status == 429 || (status == 503 && after.is_some());
    match (is_reject, is_busy) {
        (true, _) => Outcome::Reject { error },
        (false, true) => Outcome::Busy { error, after },
        (false, false) => Outcome::Retry { error, after },
    }
}

/// What an error of an Exec handler means.
pub(crate) fn of_error(
    retryable: Option<bool>,
    error: Failure,
    after: Option<Duration>,
) -> Outcome {
    match (retryable, after) {
        (Some(false), _) => Outcome::Reject { error },
        (Some(true) | None, Some(_)) => Outcome::Busy { error, after },
        (Some(true) | None, None) => Outcome::Retry { error, after },
    }
}

/// A run that the engine ended because it took longer than `handlerTimeout`.
pub(crate) fn timed_out(timeout: Duration) -> Outcome {
    let message = format!("the handler did not answer within {timeout:?}");
    Outcome::Retry {
        error: Failure::new("Timeout", message),
        after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Done { .. } => "Done",
            Outcome::Retry { .. } => "Retry",
            Outcome::Reject { .. } => "Reject",
            Outcome::Busy { .. } => "Busy",
            Outcome::Crashed { .. } => "Crashed",
            Outcome::Unavailable { .. } => "Unavailable",
            Outcome::Cancelled => "Cancelled",
        }
    }

    #[test]
    fn every_status_has_its_class() {
        let second = Some(Duration::from_secs(1));
        let class = |status, retryable, after| {
            name(&of_status(status, retryable, Failure::default(), after))
        };
        for status in [
            300, 301, 302, 304, 307, 401, 403, 404, 405, 409, 408, 500, 502, 504, 599,
        ] {
            assert_eq!(class(status, None, None), "Retry", "{status}");
            assert_eq!(class(status, None, second), "Retry", "{status}");
            assert_eq!(class(status, Some(false), second), "Reject", "{status}");
        }
        for status in REJECTS {
            assert_eq!(class(status, None, None), "Reject", "{status}");
            assert_eq!(class(status, None, second), "Reject", "{status}");
            assert_eq!(class(status, Some(true), None), "Retry", "{status}");
        }
        assert_eq!(class(429, None, None), "Busy");
        assert_eq!(class(429, None, second), "Busy");
        assert_eq!(class(429, Some(true), None), "Busy");
        assert_eq!(class(429, Some(false), None), "Reject");
        assert_eq!(class(503, None, None), "Retry");
        assert_eq!(class(503, None, second), "Busy");
    }

    #[test]
    fn a_retry_after_sets_the_wait_of_any_retryable_error() {
        let after = Some(Duration::from_secs(7));
        let error = Failure::new("Http500", "");
        let expected = Outcome::Retry {
            error: error.clone(),
            after,
        };
        assert_eq!(of_status(500, None, error, after), expected);
    }

    #[test]
    fn an_exec_error_is_a_retry_unless_it_says_more() {
        let second = Some(Duration::from_secs(1));
        let class = |retryable, after| name(&of_error(retryable, Failure::default(), after));
        assert_eq!(class(None, None), "Retry");
        assert_eq!(class(Some(true), None), "Retry");
        assert_eq!(class(None, second), "Busy");
        assert_eq!(class(Some(true), second), "Busy");
        assert_eq!(class(Some(false), None), "Reject");
        assert_eq!(class(Some(false), second), "Reject");
    }
}
