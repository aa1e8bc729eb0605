//! What becomes of an entry: the guard before a start, and the settlement after an outcome.
//!
//! Pure: the same inputs give the same decision, and randomness (jitter) comes in as a number. Read next on an entry's
//! path: `streams/redis/`, where settlements are carried out.

use std::time::Duration;

use super::letter_context::{Reason, Writer};
use super::outcome::{Failure, Outcome};
use crate::streams::{Entry, IdempotencyKey, Meta, Settlement};
use crate::worker_config::{Ledger, RetryPolicy, WorkerConfig};

/// How long one entry may be told "busy" before each further time spends an attempt.
const BUSY_FOR: Duration = Duration::from_secs(3600);

/// A `Retry-After` is obeyed up to this, or up to `retry.maxDelay` where that is longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// What a handler asks for is not less than this.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// What the guard says of an entry that waits for its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It may start; alone in this worker, or beside others.
    Start {
        /// Nothing else may run in this worker meanwhile.
        alone: bool,
        /// No further start is allowed after this one.
        last: bool,
    },
    /// It has used up its deliveries.
    Condemn(Reason),
}

/// The charged starts that ended in nothing, in earlier lives of the entry.
///
/// A suspect's next start takes the place of the one that made it a suspect, so that one does not count yet.
pub fn carried(meta: &Meta) -> u32 {
    meta.crashes.saturating_sub(u32::from(meta.suspect))
}

/// All charged starts that ended in nothing, for an entry at delivery count `count` in this life.
///
/// Where only one start is left, the 1 that a read alone gives is no charge: that start writes 2.
pub fn charges(count: u32, carried: u32, max_deliveries: u32) -> u32 {
    let here = if max_deliveries.saturating_sub(carried) == 1 {
        count.saturating_sub(1)
    } else {
        count
    };
    carried.saturating_add(here)
}

/// Whether an entry with so many charges may start.
pub fn guard(charges: u32, suspect: bool, max_deliveries: u32) -> Guard {
    if charges >= max_deliveries {
        // The last allowed start ran alone, unless the limit is 1 or was lowered since.
        let alone = max_deliveries > 1 && charges == max_deliveries;
        return Guard::Condemn(if alone {
            Reason::Poison
        } else {
            Reason::DeliveriesExhausted
        });
    }
    let last = charges + 1 == max_deliveries;
    Guard::Start {
        alone: max_deliveries > 1 && (suspect || last),
        last,
    }
}

/// The wait after the `n`-th error (n from 1): exponential, capped, then spread by `jitter` in 0..1.
pub fn backoff(policy: &RetryPolicy, n: u32, jitter: f64) -> Duration {
    let growth = f64::from(policy.multiplier_percent) / 100.0;
    let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
    let wait = policy.initial_delay.as_secs_f64() * growth.powi(exponent);
    let capped = wait.min(policy.max_delay.as_secs_f64());
    let spread = f64::from(policy.jitter_percent) / 100.0 * (2.0 * jitter - 1.0);
    Duration::try_from_secs_f64(capped * (1.0 + spread)).unwrap_or(policy.max_delay)
}

/// An entry at the end of a run, as far as its settlement depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// Its key.
    pub key: &'a IdempotencyKey,
    /// Charged starts that ended in nothing, without the run that has just ended.
    pub charged: u32,
    /// The wall-clock time, in milliseconds since the epoch.
    pub now_ms: u64,
    /// A random number in 0..1.
    pub jitter: f64,
}

/// Decides what becomes of an entry whose run ended; `None` for ends that settle nothing.
///
/// A `Crashed` given here has its culprit known: suspects are kept by the core until they have run alone.
pub fn decide(
    outcome: Outcome,
    at: &Standing<'_>,
    config: &WorkerConfig,
    writer: &Writer,
) -> Option<Settlement> {
    match outcome {
        Outcome::Done { outputs } => Some(Settlement::Commit {
            outputs,
            key: ledger_key(config, at.key),
            force: at.entry.meta.force,
        }),
        Outcome::Reject { error } => Some(dead_letter(
            at,
            Reason::Rejected,
            errors(at) + 1,
            at.charged,
            &error,
            writer,
        )),
        Outcome::Retry { error, after } => Some(retry(at, error, after, config, writer)),
        Outcome::Busy { error, after } => Some(busy(at, error, after, config, writer)),
        Outcome::Crashed { error, .. } => Some(crashed(at, error, config, writer)),
        Outcome::Unavailable { .. } | Outcome::Cancelled => None,
    }
}

/// The dead letter of an entry that the guard condemned.
pub fn condemn(at: &Standing<'_>, reason: Reason, writer: &Writer) -> Settlement {
    let error_type = at.entry.meta.last_error.as_deref().unwrap_or("LostWorker");
    let message = format!("started {} times and never answered", at.charged);
    dead_letter(
        at,
        reason,
        errors(at),
        at.charged,
        &Failure::new(error_type, message),
        writer,
    )
}

/// The dead letter of an entry that no script call can carry into a retry.
pub fn too_large(at: &Standing<'_>, writer: &Writer) -> Settlement {
    let message = format!(
        "{} fields are more than a retry can carry",
        at.entry.fields.len()
    );
    let error = Failure::new("EntryTooLarge", message);
    dead_letter(
        at,
        Reason::EntryTooLarge,
        errors(at) + 1,
        at.charged,
        &error,
        writer,
    )
}

/// The key to record, where a ledger is kept.
pub fn ledger_key(config: &WorkerConfig, key: &IdempotencyKey) -> Option<IdempotencyKey> {
    (config.idempotency.ledger == Ledger::AtCommit).then(|| key.clone())
}

fn errors(at: &Standing<'_>) -> u32 {
    at.entry.meta.attempts
}

fn retry(
    at: &Standing<'_>,
    error: Failure,
    after: Option<Duration>,
    config: &WorkerConfig,
    writer: &Writer,
) -> Settlement {
    let attempts = errors(at).saturating_add(1);
    if config
        .retry
        .non_retryable_errors
        .contains(&error.error_type)
    {
        return dead_letter(at, Reason::Rejected, attempts, at.charged, &error, writer);
    }
    if attempts >= config.retry.max_attempts {
        return dead_letter(
            at,
            Reason::AttemptsExhausted,
            attempts,
            at.charged,
            &error,
            writer,
        );
    }
    let delay = asked(after).map_or_else(
        || backoff(&config.retry, attempts, at.jitter),
        |asked| asked.min(longest_wait(&config.retry)),
    );
    Settlement::RetryAfter {
        delay,
        meta: Meta {
            attempts,
            ..meta_after(at, error.error_type)
        },
    }
}

fn busy(
    at: &Standing<'_>,
    error: Failure,
    after: Option<Duration>,
    config: &WorkerConfig,
    writer: &Writer,
) -> Settlement {
    let since = at.entry.meta.busy_since.unwrap_or(at.now_ms);
    if u128::from(at.now_ms.saturating_sub(since)) >= BUSY_FOR.as_millis() {
        return retry(at, error, after, config, writer);
    }
    let delay = asked(after)
        .unwrap_or(config.retry.initial_delay)
        .min(longest_wait(&config.retry));
    let meta = Meta {
        busy_since: Some(since),
        ..meta_after(at, error.error_type)
    };
    Settlement::RetryAfter { delay, meta }
}

fn crashed(
    at: &Standing<'_>,
    error: Failure,
    config: &WorkerConfig,
    writer: &Writer,
) -> Settlement {
    let crashes = at.charged.saturating_add(1);
    if crashes >= config.delivery.max_deliveries {
        return dead_letter(at, Reason::Poison, errors(at), crashes, &error, writer);
    }
    let delay = backoff(&config.retry, crashes, at.jitter);
    Settlement::RetryAfter {
        delay,
        meta: Meta {
            crashes,
            ..meta_after(at, error.error_type)
        },
    }
}

/// The meta after a run that was answered: its start is no crash, and no mark is left.
fn meta_after(at: &Standing<'_>, error_type: String) -> Meta {
    Meta {
        crashes: at.charged,
        suspect: false,
        last_error: Some(error_type),
        ..at.entry.meta.clone()
    }
}

/// A wait of nothing (or a date that has passed) asks for none: at once would be a hot loop.
fn asked(after: Option<Duration>) -> Option<Duration> {
    after
        .filter(|wait| !wait.is_zero())
        .map(|wait| wait.max(SHORTEST_WAIT))
}

fn longest_wait(policy: &RetryPolicy) -> Duration {
    policy.max_delay.max(RETRY_AFTER_MAX)
}

fn dead_letter(
    at: &Standing<'_>,
    reason: Reason,
    attempts: u32,
    crashes: u32,
    error: &Failure,
    writer: &Writer,
) -> Settlement {
    let context = writer.context(at, reason, (attempts, crashes), error);
    Settlement::DeadLetter { context }
}

#[cfg(test)]
mod tests;
