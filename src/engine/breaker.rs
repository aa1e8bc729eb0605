//! Two guards against a handler that cannot help: the breaker (nobody answers) and the throttle (everything fails). Pure.

use std::time::Duration;

use super::outcome::UnavailableReason;

/// The first wait between two probes, and the longest.
const PROBE_FIRST: Duration = Duration::from_millis(250);
const PROBE_LONGEST: Duration = Duration::from_secs(5);

/// So many errors in a row, and nothing else, make a worker slow down.
const FAILING_AFTER: usize = 20;

/// The longest wait between two starts of a worker whose every run fails.
pub const FAILING_LONGEST: Duration = Duration::from_secs(30);

/// Opens when the handler cannot be reached or started; a probe, never an entry, closes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    open: Option<Open>,
    /// Probes or calls that failed since the last answer.
    failures: u32,
    /// When it opened first, since the last answer.
    down_since: Option<Duration>,
    /// A probe went well and proves little: one entry at a time, until a call is answered.
    on_trial: bool,
}

/// An open breaker.
#[derive(Clone, Copy, Debug)]
struct Open {
    since: Duration,
    reason: UnavailableReason,
    probe_at: Duration,
}

impl Breaker {
    /// A call could not reach the handler.
    pub fn trip(&mut self, reason: UnavailableReason, now: Duration) {
        if self.open.is_none() {
            self.failures += 1;
            self.down_since.get_or_insert(now);
            let probe_at = now + probe_wait(self.failures);
            self.open = Some(Open {
                since: now,
                reason,
                probe_at,
            });
        }
    }

    /// The handler answered a call, with whatever.
    pub fn answered(&mut self) {
        self.failures = 0;
        self.on_trial = false;
        if self.open.is_none() {
            self.down_since = None;
        }
    }

    /// A probe came back.
    pub fn probed(&mut self, result: Result<(), UnavailableReason>, now: Duration) {
        let Some(open) = &mut self.open else { return };
        match result {
            Ok(()) => {
                // A program that keeps exiting can be started; only an answer tells that it stays.
                self.on_trial = open.reason == UnavailableReason::ProcessExiting;
                if !self.on_trial {
                    self.down_since = None;
                }
                self.open = None;
            }
            Err(reason) => {
                self.failures += 1;
                open.reason = reason;
                open.probe_at = now + probe_wait(self.failures);
            }
        }
    }

    /// Whether entries may start and be read.
    pub fn is_closed(&self) -> bool {
        self.open.is_none()
    }

    /// Why the handler cannot be reached, as far as is known: on trial it is still exiting.
    pub fn trouble(&self) -> Option<UnavailableReason> {
        let open = self.open.map(|open| open.reason);
        open.or_else(|| self.on_trial.then_some(UnavailableReason::ProcessExiting))
    }

    /// How many may run at once, of `concurrency`.
    pub fn limit(&self, concurrency: usize) -> usize {
        if self.on_trial {
            concurrency.min(1)
        } else {
            concurrency
        }
    }

    /// Since when, and why, it is open.
    pub fn open(&self) -> Option<(Duration, UnavailableReason)> {
        self.open.map(|open| (open.since, open.reason))
    }

    /// Since when nothing shows that the handler helps, over probes that went well and calls that did not.
    pub fn down_since(&self) -> Option<Duration> {
        self.down_since
    }

    /// When to probe next; `None` while closed.
    pub fn probe_at(&self) -> Option<Duration> {
        self.open.map(|open| open.probe_at)
    }
}

fn probe_wait(failures: u32) -> Duration {
    PROBE_FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(PROBE_LONGEST)
}

/// Slows a worker down whose last 20 outcomes were all errors (`FailingAll`): one entry at a time, starts spaced by the
/// backoff of consecutive failures; each success doubles what may run at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttle {
    /// Errors since the last outcome of another kind.
    in_a_row: usize,
    /// What may run at once; `None` = not throttled.
    limit: Option<usize>,
    /// Errors since the throttle closed, or since the last success under it.
    slowed_failures: u32,
    next_start_at: Duration,
}

impl Throttle {
    /// A run ended in an error; `wait` is the backoff of that many consecutive failures (from 1).
    pub fn failed(&mut self, now: Duration, wait: impl FnOnce(u32) -> Duration) {
        self.in_a_row += 1;
        if self.in_a_row < FAILING_AFTER && self.limit.is_none() {
            return;
        }
        self.limit = Some(1);
        self.slowed_failures = self.slowed_failures.saturating_add(1);
        self.next_start_at = now + wait(self.slowed_failures).min(FAILING_LONGEST);
    }

    /// A run ended well (or at least not in an error that comes from the handler's whole world).
    pub fn succeeded(&mut self, concurrency: usize) {
        self.in_a_row = 0;
        self.slowed_failures = 0;
        self.next_start_at = Duration::ZERO;
        self.limit = self
            .limit
            .map(|limit| limit * 2)
            .filter(|limit| *limit < concurrency);
    }

    /// A run ended in neither success nor error.
    pub fn interrupted(&mut self) {
        self.in_a_row = 0;
    }

    /// How many may run at once, of `concurrency`.
    pub fn limit(&self, concurrency: usize) -> usize {
        self.limit.unwrap_or(concurrency).min(concurrency)
    }

    /// Whether the worker is slowed down.
    pub fn is_throttling(&self) -> bool {
        self.limit.is_some()
    }

    /// Before this nothing starts.
    pub fn next_start_at(&self) -> Duration {
        self.next_start_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn breaker_opens_on_unavailable_and_only_a_probe_closes_it() {
        let mut breaker = Breaker::default();
        breaker.trip(UnavailableReason::ConnectionRefused, SECOND);
        assert_eq!(
            breaker.open(),
            Some((SECOND, UnavailableReason::ConnectionRefused))
        );
        breaker.answered();
        assert!(!breaker.is_closed());
        breaker.probed(Ok(()), 2 * SECOND);
        assert!(breaker.is_closed());
        assert_eq!(breaker.probe_at(), None);
    }

    #[test]
    fn probes_are_spaced_wider_until_the_handler_answers_a_call() {
        let mut breaker = Breaker::default();
        let mut waits = Vec::new();
        breaker.trip(UnavailableReason::SpawnFailed, Duration::ZERO);
        for _ in 0..7 {
            waits.push(breaker.probe_at().unwrap().as_millis());
            breaker.probed(Err(UnavailableReason::SpawnFailed), Duration::ZERO);
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 5000, 5000]);
        breaker.probed(Ok(()), Duration::ZERO);
        breaker.trip(UnavailableReason::SpawnFailed, Duration::ZERO);
        assert_eq!(
            breaker.probe_at(),
            Some(PROBE_LONGEST),
            "a probe alone proves little"
        );
        breaker.probed(Ok(()), Duration::ZERO);
        breaker.answered();
        breaker.trip(UnavailableReason::SpawnFailed, Duration::ZERO);
        assert_eq!(breaker.probe_at(), Some(PROBE_FIRST));
    }

    #[test]
    fn a_program_that_keeps_exiting_is_on_trial_until_it_answers() {
        let mut breaker = Breaker::default();
        breaker.trip(UnavailableReason::ProcessExiting, SECOND);
        breaker.probed(Ok(()), SECOND);
        assert!(breaker.is_closed() && breaker.trouble().is_some());
        assert_eq!(breaker.limit(8), 1);
        breaker.trip(UnavailableReason::ProcessExiting, SECOND);
        assert!(!breaker.is_closed());
        breaker.probed(Ok(()), SECOND);
        breaker.answered();
        assert!(breaker.trouble().is_none());
        assert_eq!(breaker.limit(8), 8);
    }

    #[test]
    fn twenty_errors_in_a_row_throttle_and_each_success_doubles_the_limit() {
        let mut throttle = Throttle::default();
        let wait = |n: u32| n * SECOND;
        for _ in 0..19 {
            throttle.failed(SECOND, wait);
        }
        assert!(!throttle.is_throttling());
        throttle.failed(SECOND, wait);
        assert_eq!(
            (throttle.limit(8), throttle.next_start_at()),
            (1, 2 * SECOND)
        );
        for _ in 0..100 {
            throttle.failed(SECOND, wait);
        }
        assert_eq!(
            throttle.next_start_at(),
            31 * SECOND,
            "spaced by 30 s at most"
        );
        throttle.succeeded(8);
        assert_eq!(
            (throttle.limit(8), throttle.next_start_at()),
            (2, Duration::ZERO)
        );
        throttle.succeeded(8);
        assert_eq!(throttle.limit(8), 4);
        throttle.succeeded(8);
        assert_eq!(throttle.limit(8), 8);
        assert!(!throttle.is_throttling());
    }
}
