//! What to do when a session with the server has ended. Pure.
//!
//! A worker connects and reconnects for ever; it ends only on its own order. The wait grows with failures and is forgotten
//! only on proof of health: a session that lived.

use std::time::Duration;

use crate::streams::Error;

/// A session that lived this long was healthy.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The first wait, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How a session ended, or why it could not begin, as logs, reports and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionEnd {
    /// By our own order.
    Shutdown,
    /// The connection broke or a command was not answered in time.
    Disconnected,
    /// Nobody listens.
    ConnectionRefused,
    /// The name does not resolve.
    DnsFailure,
    /// No answer to the attempt.
    Timeout,
    /// User or password refused.
    AuthenticationFailed,
    /// The group or the stream is not there.
    GroupMissing,
    /// The server is a replica.
    ReadOnly,
    /// The user may not run a command or touch a key.
    Denied,
    /// A key holds another type.
    WrongType,
    /// The server loads, or is busy.
    Loading,
    /// The server is out of memory.
    Full,
    /// A reply that this build does not know.
    Protocol,
}

impl SessionEnd {
    /// Which end an error is.
    pub fn of(error: &Error) -> Self {
        use crate::streams::Unreachable;
        match error {
            Error::Disconnected { .. } => Self::Disconnected,
            Error::Unreachable { reason, .. } => match reason {
                Unreachable::ConnectionRefused => Self::ConnectionRefused,
                Unreachable::DnsFailure => Self::DnsFailure,
                Unreachable::Timeout => Self::Timeout,
                Unreachable::Network => Self::Disconnected,
            },
            Error::AuthenticationFailed { .. } | Error::CredentialsUnreadable { .. } => {
                Self::AuthenticationFailed
            }
            Error::GroupMissing { .. } => Self::GroupMissing,
            Error::ReadOnly => Self::ReadOnly,
            Error::Denied { .. } => Self::Denied,
            Error::WrongType { .. } => Self::WrongType,
            Error::Loading { .. } => Self::Loading,
            Error::Full => Self::Full,
            Error::Protocol { .. } => Self::Protocol,
        }
    }

    /// The server was reached, and said no.
    fn is_refusal(self) -> bool {
        match self {
            Self::AuthenticationFailed
            | Self::Denied
            | Self::WrongType
            | Self::Full
            | Self::Protocol => true,
            Self::Shutdown
            | Self::Disconnected
            | Self::ConnectionRefused
            | Self::DnsFailure
            | Self::Timeout
            | Self::GroupMissing
            | Self::ReadOnly
            | Self::Loading => false,
        }
    }

    /// The reason's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "Shutdown",
            Self::Disconnected => "Disconnected",
            Self::ConnectionRefused => "ConnectionRefused",
            Self::DnsFailure => "DNSFailure",
            Self::Timeout => "Timeout",
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::GroupMissing => "GroupMissing",
            Self::ReadOnly => "ReadOnlyReplica",
            Self::Denied => "PermissionDenied",
            Self::WrongType => "WrongKeyType",
            Self::Loading => "Loading",
            Self::Full => "OutOfMemory",
            Self::Protocol => "UnexpectedReply",
        }
    }
}

/// What is remembered from one session to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct History {
    failures: u32,
}

impl History {
    /// Attempts that came to nothing, in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A session ended after `lived` (zero if it never began): how long to wait before the next attempt.
    ///
    /// Where the way to the server is at fault, wait and attempt (`connect_timeout` at most) together stay within a third of
    /// the visibility timeout, so that leases are renewed in time when it is back. Where the server itself says no, haste
    /// helps nobody. `jitter` in 0..1 keeps workers apart.
    pub fn wait(
        &mut self,
        end: SessionEnd,
        lived: Duration,
        limits: Limits,
        jitter: f64,
    ) -> Duration {
        if lived >= HEALTHY_AFTER {
            self.failures = 0;
        }
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let room = (limits.visibility_timeout / 3).saturating_sub(limits.connect_timeout);
        let longest = if end.is_refusal() {
            LONGEST_WAIT
        } else {
            LONGEST_WAIT.min(room.max(FIRST_WAIT))
        };
        doubled
            .min(longest)
            .mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// The times that bound a reconnect.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a worker may be silent.
    pub visibility_timeout: Duration,
    /// The limit of one connect attempt.
    pub connect_timeout: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: SessionEnd = SessionEnd::Disconnected;

    const LIMITS: Limits = Limits {
        visibility_timeout: Duration::from_secs(60),
        connect_timeout: Duration::from_secs(5),
    };

    #[test]
    fn waits_double_up_to_five_seconds_and_a_session_that_lived_forgets_them() {
        let mut history = History::default();
        let waits: Vec<_> = (0..8)
            .map(|_| history.wait(END, Duration::ZERO, LIMITS, 1.0))
            .collect();
        let millis: Vec<_> = waits.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(
            history.wait(END, Duration::from_secs(9), LIMITS, 1.0),
            LONGEST_WAIT
        );
        assert_eq!(
            history.wait(END, Duration::from_secs(10), LIMITS, 1.0),
            FIRST_WAIT
        );
    }

    #[test]
    fn wait_and_attempt_stay_within_a_third_of_the_visibility_timeout() {
        let limits = Limits {
            visibility_timeout: Duration::from_secs(6),
            connect_timeout: Duration::from_millis(500),
        };
        let mut history = History::default();
        for _ in 0..20 {
            assert!(history.wait(END, Duration::ZERO, limits, 1.0) <= Duration::from_millis(1500));
        }
    }

    #[test]
    fn a_server_that_says_no_is_not_asked_in_haste() {
        let limits = Limits {
            visibility_timeout: Duration::from_secs(2),
            ..LIMITS
        };
        let mut history = History::default();
        let mut last = Duration::ZERO;
        for _ in 0..8 {
            last = history.wait(SessionEnd::Denied, Duration::ZERO, limits, 1.0);
        }
        assert_eq!(last, LONGEST_WAIT);
    }

    #[test]
    fn jitter_halves_a_wait_at_most() {
        let wait = |jitter| History::default().wait(END, Duration::ZERO, LIMITS, jitter);
        assert_eq!(wait(0.0), Duration::from_millis(50));
        assert_eq!(wait(1.0), Duration::from_millis(100));
    }
}
