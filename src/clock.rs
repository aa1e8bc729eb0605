//! The one caller of system time.
//!
//! Pure code takes `now`: a [`Duration`] since this clock was made, which only ever grows. Under tokio's paused time it
//! follows that time, so tests of an hour take a moment.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that may ask"
)]

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// A monotonic clock, with the wall-clock time it began at.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    started_at: Timestamp,
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
            started_at: Timestamp::now(),
        }
    }

    /// The time since the clock began.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The wall-clock time at `at` of this clock.
    pub fn wall(&self, at: Duration) -> Timestamp {
        jiff::SignedDuration::try_from(at)
            .ok()
            .and_then(|since| self.started_at.checked_add(since).ok())
            .unwrap_or(self.started_at)
    }

    /// Waits until `at` of this clock.
    pub async fn until(&self, at: Duration) {
        match self.origin.checked_add(at) {
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }
}
