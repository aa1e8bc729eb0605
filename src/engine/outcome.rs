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
