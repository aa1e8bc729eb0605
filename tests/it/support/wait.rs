//! Waiting: on conditions, with a deadline, and for the duration of a fault.

use std::time::Duration;

use streamstage::clock::Clock;

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until `probe` gives a value; fails the test when it does not `within` that time.
pub(crate) async fn eventually<T>(
    what: &str,
    within: Duration,
    probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let value = in_time(within, probe).await;
    value.unwrap_or_else(|| panic!("{what}: not so within {} s", within.as_secs_f32()))
}

/// Waits until `probe` gives a value, or until the time is over.
pub(crate) async fn in_time<T>(
    within: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let clock = Clock::start();
    loop {
        let value = probe().await;
        if value.is_some() || clock.now() >= within {
            return value;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Looks at a condition all through `period`; fails the test at the first moment it does not hold.
pub(crate) async fn holds_for(what: &str, period: Duration, mut probe: impl AsyncFnMut() -> bool) {
    let clock = Clock::start();
    while clock.now() < period {
        assert!(
            probe().await,
            "{what}: no longer so after {} s",
            clock.now().as_secs_f32()
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Lets a fault last as long as the case says. No condition ends a fault, so this is a timer; nothing else may be.
pub(crate) async fn for_the_time_of_the_fault(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Measures time, and knows what time it is in the journal's terms.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Clock);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Clock::start())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.now()
    }

    /// The wall-clock time at the start, in milliseconds.
    pub(crate) fn started_at(&self) -> i64 {
        self.0.wall(Duration::ZERO).as_millisecond()
    }
}
