//! Tables of what becomes of an entry, and the bounds that hold for every policy.

use proptest::prelude::*;

use super::*;
use crate::streams::{ConsumerName, EntryId, Place};

const SECOND: Duration = Duration::from_secs(1);
const NOW: u64 = 1_800_000_000_000;

fn config() -> WorkerConfig {
    let mut config = crate::engine::fixture::config();
    (
        config.dead_letter.max_error_bytes,
        config.dead_letter.max_trace_bytes,
    ) = (10, 4);
    config
}

fn entry(change: impl FnOnce(&mut Meta)) -> Entry {
    let origin = EntryId::new(1_700_000_000_000, 0);
    let mut meta = Meta::fresh(origin, 0);
    change(&mut meta);
    let fields = vec![
        (b"k".to_vec(), b"1".to_vec()),
        (b"traceparent".to_vec(), b"00-ab-cd-01".to_vec()),
    ];
    Entry {
        place: Place::source(origin),
        fields,
        meta,
    }
}

/// What becomes of an entry with these charges.
fn decided(entry: &Entry, charged: u32, outcome: Outcome) -> Option<Settlement> {
    let config = config();
    let writer = Writer::new(
        &config,
        &ConsumerName::new("pod.1"),
        "pod",
        Some("img:1".into()),
    );
    let key = IdempotencyKey::from_bytes([7; 16]);
    let at = Standing {
        entry,
        key: &key,
        charged,
        now_ms: NOW,
        jitter: 0.5,
    };
    decide(outcome, &at, &config, &writer)
}

fn failure(error_type: &str) -> Failure {
    Failure {
        traceback: "línea 1".into(),
        ..Failure::new(error_type, "it went wrong")
    }
}

fn pair<'a>(settlement: &'a Settlement, name: &str) -> &'a str {
    let Settlement::DeadLetter { context } = settlement else {
        panic!("{settlement:?}")
    };
    context
        .iter()
        .find(|(known, _)| known == name)
        .map_or("", |(_, value)| value)
}

#[test]
fn each_outcome_leads_to_its_settlement() {
    let fresh = entry(|_| {});
    let done = decided(&fresh, 0, Outcome::Done { outputs: vec![] }).unwrap();
    assert!(matches!(
        done,
        Settlement::Commit {
            key: Some(_),
            force: false,
            ..
        }
    ));

    let reject = decided(
        &fresh,
        0,
        Outcome::Reject {
            error: failure("Bad"),
        },
    )
    .unwrap();
    assert_eq!(
        (pair(&reject, "reason"), pair(&reject, "attempts")),
        ("Rejected", "1")
    );

    let listed = Outcome::Retry {
        error: failure("Malformed"),
        after: None,
    };
    assert_eq!(
        pair(&decided(&fresh, 0, listed).unwrap(), "reason"),
        "Rejected"
    );

    assert_eq!(decided(&fresh, 0, Outcome::Cancelled), None);
}

#[test]
fn a_retry_spends_an_attempt_and_the_last_one_is_a_dead_letter() {
    let outcome = || Outcome::Retry {
        error: failure("Boom"),
        after: None,
    };
    let waits: Vec<_> = [0, 1]
        .map(|attempts| {
            let settlement = decided(&entry(|meta| meta.attempts = attempts), 2, outcome());
            let Some(Settlement::RetryAfter { delay, meta }) = settlement else {
                panic!()
            };
            assert_eq!(
                (meta.attempts, meta.crashes),
                (attempts + 1, 2),
                "crashes stay"
            );
            assert_eq!(meta.last_error.as_deref(), Some("Boom"));
            delay
        })
        .to_vec();
    assert_eq!(waits, [5 * SECOND, 10 * SECOND]);
    let last = decided(&entry(|meta| meta.attempts = 2), 0, outcome()).unwrap();
    assert_eq!(
        (pair(&last, "reason"), pair(&last, "attempts")),
        ("AttemptsExhausted", "3")
    );
}

#[test]
fn a_handler_that_names_a_wait_is_obeyed_up_to_an_hour() {
    let retry = |after| {
        let outcome = Outcome::Retry {
            error: failure("Boom"),
            after: Some(after),
        };
        match decided(&entry(|_| {}), 0, outcome) {
            Some(Settlement::RetryAfter { delay, .. }) => delay,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(retry(7 * SECOND), 7 * SECOND);
    assert_eq!(retry(100_000 * SECOND), 3600 * SECOND);
}

#[test]
fn busy_costs_no_attempt_for_an_hour_and_one_each_after_it() {
    let busy = |since: Option<u64>| {
        let entry = entry(|meta| meta.busy_since = since);
        decided(
            &entry,
            0,
            Outcome::Busy {
                error: failure("Http429"),
                after: None,
            },
        )
        .unwrap()
    };
    let Settlement::RetryAfter { delay, meta } = busy(None) else {
        panic!()
    };
    assert_eq!(
        (delay, meta.attempts, meta.busy_since),
        (5 * SECOND, 0, Some(NOW))
    );
    let Settlement::RetryAfter { meta, .. } = busy(Some(NOW - 3_599_999)) else {
        panic!()
    };
    assert_eq!(meta.attempts, 0);
    let Settlement::RetryAfter { meta, .. } = busy(Some(NOW - 3_600_000)) else {
        panic!()
    };
    assert_eq!(meta.attempts, 1);
}

#[test]
fn a_crash_with_its_culprit_known_waits_by_its_own_count_and_ends_as_poison() {
    let crash = || Outcome::Crashed {
        error: failure("ProcessExited"),
        alone: true,
    };
    let Some(Settlement::RetryAfter { delay, meta }) = decided(&entry(|_| {}), 1, crash()) else {
        panic!()
    };
    assert_eq!(
        (delay, meta.crashes, meta.attempts, meta.suspect),
        (10 * SECOND, 2, 0, false)
    );
    let last = decided(&entry(|meta| meta.attempts = 1), 2, crash()).unwrap();
    assert_eq!(pair(&last, "reason"), "Poison");
    assert_eq!(
        (pair(&last, "crashes"), pair(&last, "deliveries")),
        ("3", "4")
    );
}

#[test]
fn a_dead_letter_tells_what_a_person_needs_and_cuts_what_is_long() {
    let reject = decided(
        &entry(|_| {}),
        0,
        Outcome::Reject {
            error: failure("Bad"),
        },
    )
    .unwrap();
    let told = [
        ("stage", "mail"),
        ("namespace", "shop"),
        ("stream", "orders"),
        ("group", "mail"),
        ("consumer", "pod.1"),
        ("pod", "pod"),
        ("image", "img:1"),
        ("error_type", "Bad"),
        ("error", "it went wr"),
        ("traceback", "lín"),
        ("entry_id", "1700000000000-0"),
        ("first_enqueued_at", "2023-11-14T22:13:20.000Z"),
        ("failed_at", "2027-01-15T08:00:00.000Z"),
        ("idempotency_key", "07070707070707070707070707070707"),
        ("traceparent", "00-ab-cd-01"),
    ];
    for (name, value) in told {
        assert_eq!(pair(&reject, name), value, "{name}");
    }
}

#[test]
fn the_guard_lets_start_what_has_deliveries_left_and_names_why_not() {
    let table = [
        // charges, suspect, max -> verdict
        (
            0,
            false,
            3,
            Guard::Start {
                alone: false,
                last: false,
            },
        ),
        (
            0,
            true,
            3,
            Guard::Start {
                alone: true,
                last: false,
            },
        ),
        (
            2,
            false,
            3,
            Guard::Start {
                alone: true,
                last: true,
            },
        ),
        (
            0,
            false,
            1,
            Guard::Start {
                alone: false,
                last: true,
            },
        ),
        (3, false, 3, Guard::Condemn(Reason::Poison)),
        (4, false, 3, Guard::Condemn(Reason::DeliveriesExhausted)),
        (1, false, 1, Guard::Condemn(Reason::DeliveriesExhausted)),
    ];
    for (charges, suspect, max, verdict) in table {
        assert_eq!(
            guard(charges, suspect, max),
            verdict,
            "{charges} {suspect} {max}"
        );
    }
}

#[test]
fn a_suspects_charge_stands_until_it_starts_alone() {
    let mut meta = Meta::fresh(EntryId::new(1, 0), 0);
    (meta.crashes, meta.suspect) = (2, true);
    assert_eq!(carried(&meta), 1);
    meta.suspect = false;
    assert_eq!(carried(&meta), 2);
}

#[test]
fn a_read_alone_charges_nothing_where_one_start_is_left() {
    assert_eq!(charges(1, 0, 3), 1);
    assert_eq!(charges(1, 2, 3), 2);
    assert_eq!(charges(2, 2, 3), 3);
    assert_eq!(charges(1, 0, 1), 0);
    assert_eq!(charges(2, 0, 1), 1);
}

proptest! {
    #[test]
    fn backoff_stays_within_its_cap_and_jitter(
        n in any::<u32>(), initial in 100_u64..3_600_000, longest in 0_u64..604_800_000,
        multiplier in 100_u32..=1000, percent in 0_u32..=100, jitter in 0.0_f64..1.0,
    ) {
        let policy = RetryPolicy {
            max_attempts: 8,
            initial_delay: Duration::from_millis(initial),
            max_delay: Duration::from_millis(initial + longest),
            multiplier_percent: multiplier,
            jitter_percent: percent,
            non_retryable_errors: vec![],
        };
        let wait = backoff(&policy, n, jitter).as_secs_f64();
        let spread = f64::from(percent) / 100.0;
        prop_assert!(wait <= policy.max_delay.as_secs_f64() * (1.0 + spread) + 1e-6);
        prop_assert!(wait + 1e-6 >= policy.initial_delay.as_secs_f64() * (1.0 - spread));
        if percent == 0 {
            prop_assert!(backoff(&policy, n.saturating_add(1), jitter).as_secs_f64() + 1e-6 >= wait);
        }
    }

    /// Starts end in errors (0), in crashes with the culprit known (1), or take their worker along (2).
    #[test]
    fn no_entry_has_more_charged_starts_than_its_limits_allow(
        max_attempts in 1_u32..6, max_deliveries in 1_u32..6, ends in prop::collection::vec(0_u8..3, 1..40),
    ) {
        let (mut attempts, mut carried, mut starts) = (0, 0, 0);
        let mut base = base_of_a_read(carried, max_deliveries);
        for end in ends {
            let charged = charges(base, carried, max_deliveries);
            if let Guard::Condemn(_) = guard(charged, false, max_deliveries) {
                break;
            }
            starts += 1;
            match end {
                0 => {
                    attempts += 1;
                    carried = charged;
                }
                1 => carried = charged + 1,
                // It is claimed at the count that its start wrote.
                _ => base += 1,
            }
            if attempts >= max_attempts || carried >= max_deliveries {
                break;
            }
            if end < 2 {
                base = base_of_a_read(carried, max_deliveries);
            }
        }
        prop_assert!(starts < max_attempts + max_deliveries, "{starts} starts");
    }
}

/// The count without the start to come, of an entry that has just been read.
fn base_of_a_read(carried: u32, max_deliveries: u32) -> u32 {
    u32::from(max_deliveries - carried == 1)
}
