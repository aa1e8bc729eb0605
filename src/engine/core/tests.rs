//! One worker's decisions, event by event, with time as a number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::engine::letter_context::Writer;
use crate::engine::outcome::{Failure, Outcome, UnavailableReason};
use crate::streams::{
    ConsumerName, Delivery, EntryId, Error, LeaseState, Meta, Promoted, Reclaimed, RefusalReason,
    Reported, Settled, Settlement,
};
use crate::streams::{Entry, Refusal};
use crate::worker_config::WorkerConfig;

mod faults;

const SECOND: Duration = Duration::from_secs(1);

const NONE: [u64; 0] = [];
const NO_COUNTS: [(u64, u32); 0] = [];

fn config(change: impl FnOnce(&mut WorkerConfig)) -> WorkerConfig {
    let mut config = crate::engine::fixture::config();
    change(&mut config);
    config
}

/// A core, its time, and answers to the orders that a test does not care about.
struct Bench {
    core: Core,
    now: Duration,
    /// Orders that a test may care about, since it last looked.
    seen: Vec<Order>,
    /// The last run of each entry.
    runs: BTreeMap<u64, u64>,
}

impl Bench {
    fn with(change: impl FnOnce(&mut WorkerConfig)) -> Self {
        let config = config(change);
        let writer = Writer::new(&config, &ConsumerName::new("pod.1"), "pod", None);
        let birth = Birth {
            seed: 7,
            now: Duration::ZERO,
            epoch_ms: 1_700_000_000_000,
        };
        let core = Core::new(Arc::new(config), writer, birth);
        let mut bench = Self {
            core,
            now: Duration::ZERO,
            seen: Vec::new(),
            runs: BTreeMap::new(),
        };
        bench.turn();
        bench
    }

    fn new() -> Self {
        Self::with(|_| {})
    }

    /// Performs orders until nothing is left but what tests care about.
    fn turn(&mut self) {
        let mut last = Vec::new();
        for _ in 0..50 {
            let orders = self.core.orders(self.now);
            if orders.is_empty() {
                return;
            }
            last.clone_from(&orders);
            for order in orders {
                self.perform(order);
            }
        }
        panic!("the core never comes to rest: {last:?}, {:?}", self.seen);
    }

    fn perform(&mut self, order: Order) {
        let now = self.now;
        match order {
            Order::Connect => self.core.connected(Ok(Opened::default()), now),
            Order::Report => self.core.reported(Ok(Reported::default()), now),
            Order::Promote => self.core.promoted(Ok(Promoted::default()), now),
            Order::ReadRetry { .. } => self.core.arrived(Arrival::default(), true, now),
            Order::Reclaim { .. } => {
                self.core
                    .reclaimed((Reclaimed::default(), Vec::new()), now, now);
            }
            Order::Retire { own } => self.core.retired(own, Ok(0), now),
            Order::SetCounts(counts) => {
                self.core
                    .counted(&counts, Ok(vec![true; counts.len()]), now);
                self.seen.push(Order::SetCounts(counts));
            }
            Order::Renew(places) => {
                self.core
                    .renewed(&places, Ok(vec![LeaseState::Held; places.len()]), now, now);
                self.seen.push(Order::Renew(places));
            }
            Order::Unblock => {
                self.core.unblocked(now);
                self.seen.push(Order::Unblock);
            }
            other @ (Order::Read { .. }
            | Order::Call(_)
            | Order::Cancel(_)
            | Order::Settle(_)
            | Order::Probe) => {
                if let Order::Call(call) = &other {
                    self.runs.insert(call.entry.place.id.millis, call.run);
                }
                self.seen.push(other);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.turn();
    }

    /// The parked read brings entries of the source, with these keys.
    fn deliver(&mut self, keys: &[(u64, &str)]) {
        self.deliver_known(keys, &[]);
    }

    fn deliver_known(&mut self, keys: &[(u64, &str)], known: &[bool]) {
        let deliveries = keys.iter().map(|(id, key)| delivery(*id, key, 1)).collect();
        self.arrive(deliveries, known.to_vec());
    }

    fn arrive(&mut self, deliveries: Vec<Delivery>, known: Vec<bool>) {
        let arrival = Arrival {
            deliveries,
            known,
            sent_at: self.now,
        };
        self.core.arrived(arrival, false, self.now);
        self.turn();
    }

    /// A reclaim brings entries at these delivery counts.
    fn claim(&mut self, counts: &[(u64, u32)]) {
        let claimed = counts
            .iter()
            .map(|(id, n)| delivery(*id, &id.to_string(), *n))
            .collect();
        let page = Reclaimed {
            claimed,
            ..Reclaimed::default()
        };
        self.core.reclaimed((page, Vec::new()), self.now, self.now);
        self.turn();
    }

    fn answer(&mut self, id: u64, outcome: Outcome) {
        let run = self.runs.get(&id).copied().unwrap_or_default();
        self.core.answered(place(id), run, outcome, self.now);
        self.turn();
    }

    /// The calls made since the last look.
    fn calls(&mut self) -> Vec<u64> {
        let mut calls = Vec::new();
        self.seen.retain(|order| {
            let Order::Call(call) = order else {
                return true;
            };
            calls.push(call.entry.place.id.millis);
            false
        });
        calls
    }

    /// The settlements sent since the last look, all answered with `reply`.
    fn settle_with(&mut self, reply: &Settled) -> Vec<(u64, Settlement)> {
        let mut settled = Vec::new();
        while let Some(index) = self.seen.iter().position(|o| matches!(o, Order::Settle(_))) {
            let Order::Settle(batch) = self.seen.remove(index) else {
                unreachable!()
            };
            let places: Vec<_> = batch.iter().map(|settle| settle.entry.place).collect();
            self.core
                .settled(&places, Ok(vec![reply.clone(); batch.len()]), self.now);
            settled.extend(
                batch
                    .into_iter()
                    .map(|s| (s.entry.place.id.millis, s.settlement)),
            );
            self.turn();
        }
        settled
    }

    fn settle(&mut self) -> Vec<(u64, Settlement)> {
        self.settle_with(&Settled::Applied)
    }

    fn counts(&mut self) -> Vec<(u64, u32)> {
        let mut counts = Vec::new();
        self.seen.retain(|order| {
            let Order::SetCounts(set) = order else {
                return true;
            };
            counts.extend(set.iter().map(|count| (count.place.id.millis, count.count)));
            false
        });
        counts
    }

    fn has(&mut self, wanted: impl Fn(&Order) -> bool) -> bool {
        let found = self.seen.iter().any(&wanted);
        self.seen.retain(|order| !wanted(order));
        found
    }
}

fn place(id: u64) -> Place {
    Place::source(EntryId::new(id, 0))
}

fn delivery(id: u64, key: &str, count: u32) -> Delivery {
    let entry = Entry {
        place: place(id),
        fields: vec![(b"k".to_vec(), key.as_bytes().to_vec())],
        meta: Meta::fresh(EntryId::new(id, 0), 1_700_000_000_000),
    };
    Delivery {
        entry: Arc::new(entry),
        count,
    }
}

fn done() -> Outcome {
    Outcome::Done {
        outputs: Vec::new(),
    }
}

fn retry() -> Outcome {
    Outcome::Retry {
        error: Failure::new("Boom", "no"),
        after: None,
    }
}

fn crashed(alone: bool) -> Outcome {
    Outcome::Crashed {
        error: Failure::new("Exit", "signal 9"),
        alone,
    }
}

fn context(settlement: &Settlement, name: &str) -> String {
    let Settlement::DeadLetter { context } = settlement else {
        panic!("{settlement:?}")
    };
    context
        .iter()
        .find(|(n, _)| n == name)
        .map(|(_, v)| v.clone())
        .unwrap()
}

#[test]
fn a_fresh_entry_starts_at_once_without_a_start_script_and_is_committed() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    assert_eq!(bench.calls(), [1]);
    assert_eq!(bench.counts(), NO_COUNTS);
    bench.answer(1, done());
    let settled = bench.settle();
    assert!(matches!(
        &settled[..],
        [(
            1,
            Settlement::Commit {
                key: Some(_),
                force: false,
                ..
            }
        )]
    ));
    assert_eq!(bench.core.tallies().settled_as(SettledKind::Done), 1);
    assert_eq!(bench.core.held_entries(), 0);
}

#[test]
fn what_exceeds_the_slots_waits_at_count_zero_and_is_charged_when_it_starts() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]);
    assert_eq!(bench.calls(), [1, 2, 3, 4]);
    assert_eq!(bench.counts(), [(5, 0)]);
    bench.answer(2, done());
    assert_eq!(bench.counts(), [(5, 1)]);
    assert_eq!(bench.calls(), [5]);
}

#[test]
fn an_entry_that_the_ledger_knows_is_acknowledged_without_a_run() {
    let mut bench = Bench::new();
    bench.deliver_known(&[(1, "a"), (2, "b")], &[true, false]);
    assert_eq!(bench.calls(), [2]);
    assert_eq!(bench.settle_with(&Settled::AlreadyDone).len(), 1);
    assert_eq!(bench.core.tallies().settled_as(SettledKind::Skipped), 1);
}

#[test]
fn twins_in_one_worker_run_one_after_the_other_and_the_second_is_skipped() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "same"), (2, "same"), (3, "other")]);
    assert_eq!(bench.calls(), [1, 3]);
    bench.answer(1, done());
    assert_eq!(bench.calls(), NONE, "the first is not committed yet");
    bench.settle();
    assert_eq!(bench.calls(), NONE);
    assert_eq!(bench.settle_with(&Settled::AlreadyDone), []);
    assert_eq!(bench.core.held_entries(), 1, "only the other one is left");
}

#[test]
fn a_twin_runs_when_the_first_failed() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "same"), (2, "same")]);
    assert_eq!(bench.calls(), [1]);
    bench.answer(1, retry());
    bench.settle();
    assert_eq!(bench.calls(), [2]);
}

#[test]
fn an_error_waits_with_backoff_and_the_last_attempt_is_a_dead_letter() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, retry());
    let settled = bench.settle();
    let [(1, Settlement::RetryAfter { delay, meta })] = &settled[..] else {
        panic!("{settled:?}")
    };
    assert_eq!((*delay, meta.attempts, meta.crashes), (5 * SECOND, 1, 0));

    let mut third = delivery(2, "a", 1);
    let mut entry = (*third.entry).clone();
    entry.meta.attempts = 2;
    third.entry = Arc::new(entry);
    bench.arrive(vec![third], vec![]);
    bench.answer(2, retry());
    let settled = bench.settle();
    assert_eq!(context(&settled[0].1, "reason"), "AttemptsExhausted");
    assert_eq!(context(&settled[0].1, "attempts"), "3");
}

#[test]
fn a_known_culprit_is_charged_and_condemned_as_poison_at_the_limit() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, crashed(true));
    let settled = bench.settle();
    let [(1, Settlement::RetryAfter { meta, .. })] = &settled[..] else {
        panic!("{settled:?}")
    };
    assert_eq!((meta.crashes, meta.attempts), (1, 0));

    assert_eq!(bench.calls(), [1]);
    let mut last = delivery(2, "a", 1);
    let mut entry = (*last.entry).clone();
    entry.meta.crashes = 2;
    last.entry = Arc::new(entry);
    bench.arrive(vec![last], vec![]);
    assert_eq!(
        bench.counts(),
        [(2, 2)],
        "a last start goes through the script, beyond the 1 of a read"
    );
    assert_eq!(bench.calls(), [2]);
    bench.answer(2, crashed(true));
    let settled = bench.settle();
    assert_eq!(context(&settled[0].1, "reason"), "Poison");
    assert_eq!(context(&settled[0].1, "crashes"), "3");
}

#[test]
fn the_one_that_a_read_alone_gave_never_condemns() {
    let mut bench = Bench::with(|config| config.delivery.max_deliveries = 1);
    bench.claim(&[(1, 1)]);
    assert_eq!(bench.counts(), [(1, 2)]);
    assert_eq!(bench.calls(), [1]);
    bench.claim(&[(2, 2)]);
    assert_eq!(
        context(&bench.settle()[0].1, "reason"),
        "DeliveriesExhausted"
    );
}

#[test]
fn a_claimed_entry_over_the_limit_never_reaches_the_handler() {
    let mut bench = Bench::new();
    bench.claim(&[(1, 3), (2, 2), (3, 1)]);
    let settled = bench.settle();
    assert_eq!(context(&settled[0].1, "reason"), "Poison");
    assert_eq!(bench.calls(), [2], "the last start of 2 is alone");
    assert_eq!(bench.counts(), [(2, 3)]);
    bench.answer(2, done());
    assert_eq!(bench.calls(), [3]);
    assert_eq!(bench.counts(), [(3, 2)]);
}

#[test]
fn several_connections_that_break_together_make_suspects_that_run_alone_uncharged() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(bench.calls(), [1, 2, 3]);
    bench.answer(1, crashed(false));
    bench.answer(2, crashed(false));
    bench.answer(3, done());
    assert_eq!(bench.calls(), NONE, "nobody knows yet who did it");
    bench.pass(SECOND);
    assert_eq!(bench.calls(), [1]);
    assert_eq!(
        bench.counts(),
        [(1, 1)],
        "back to what it was before, and charged once"
    );
    bench.answer(1, done());
    bench.pass(SECOND);
    assert_eq!(bench.calls(), [2]);
    bench.answer(2, crashed(false));
    let settled = bench.settle();
    let retried = settled.iter().find(|(id, _)| *id == 2).unwrap();
    let Settlement::RetryAfter { meta, .. } = &retried.1 else {
        panic!("{retried:?}")
    };
    assert_eq!(
        (meta.crashes, meta.suspect),
        (1, false),
        "it ran alone: it is the culprit"
    );
}

#[test]
fn one_connection_that_breaks_alone_within_a_second_was_the_culprit() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b")]);
    bench.answer(1, crashed(false));
    assert_eq!(bench.settle(), []);
    bench.pass(SECOND);
    let settled = bench.settle();
    assert!(
        matches!(&settled[..], [(1, Settlement::RetryAfter { meta, .. })] if meta.crashes == 1)
    );
}

#[test]
fn after_a_solitary_run_normal_load_has_its_turn_for_as_long() {
    let mut bench = Bench::new();
    bench.claim(&[(1, 2), (2, 2)]);
    assert_eq!(bench.calls(), [1], "alone");
    bench.now += 2 * SECOND;
    bench.deliver(&[(10, "x"), (11, "y")]);
    assert_eq!(bench.calls(), NONE);
    bench.now += 3 * SECOND;
    bench.answer(1, done());
    assert_eq!(bench.calls(), [10, 11], "the next solitary run waits");
    bench.answer(10, done());
    bench.answer(11, done());
    bench.settle();
    assert_eq!(bench.calls(), NONE);
    bench.pass(5 * SECOND);
    assert_eq!(bench.calls(), [2]);
}

#[test]
fn an_unavailable_handler_opens_the_breaker_and_costs_nothing() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b")]);
    bench.calls();
    let refused = UnavailableReason::ConnectionRefused;
    bench.answer(1, Outcome::Unavailable { reason: refused });
    assert_eq!(bench.counts(), [(1, 0)], "the charge is taken back");
    bench.seen.clear();
    bench.pass(SECOND);
    assert!(bench.has(|order| *order == Order::Probe));
    assert!(!bench.has(|order| matches!(order, Order::Read { .. } | Order::Call(_))));
    bench.core.probed(Ok(()), bench.now);
    bench.turn();
    assert_eq!(bench.calls(), [1]);
}

#[test]
fn entries_that_wait_behind_an_open_breaker_go_to_others_after_a_visibility_timeout() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    let reason = UnavailableReason::SpawnFailed;
    bench.answer(1, Outcome::Unavailable { reason });
    bench.core.probed(Err(reason), bench.now);
    for _ in 0..4 {
        bench.pass(2 * SECOND);
        assert_eq!(bench.settle(), []);
    }
    bench.pass(SECOND);
    let settled = bench.settle();
    assert!(matches!(&settled[..], [(1, Settlement::Release { meta })] if meta.crashes == 0));
}

#[test]
fn everything_held_is_renewed_at_a_third_of_the_visibility_timeout() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b")]);
    bench.pass(Duration::from_millis(2999));
    assert!(!bench.has(|order| matches!(order, Order::Renew(_))));
    bench.pass(Duration::from_millis(1));
    assert!(bench.has(|order| *order == Order::Renew(vec![place(1), place(2)])));
}

#[test]
fn a_worker_whose_lease_is_stale_starts_and_settles_nothing_before_it_has_renewed() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]);
    bench.calls();
    bench.now += 25 * SECOND;
    bench
        .core
        .answered(place(1), bench.runs[&1], done(), bench.now);
    let orders = bench.core.orders(bench.now);
    assert!(
        matches!(&orders[..], [Order::Renew(places)] if places.len() == 5),
        "{orders:?}"
    );
    let now = bench.now;
    let mut found = vec![LeaseState::Stolen; 5];
    found[4] = LeaseState::Held;
    let places: Vec<_> = (1..=5).map(place).collect();
    bench.core.renewed(&places, Ok(found), now, now);
    let orders = bench.core.orders(now);
    assert!(
        !orders.iter().any(|order| matches!(order, Order::Settle(_))),
        "{orders:?}"
    );
    assert_eq!(
        orders
            .iter()
            .filter(|order| matches!(order, Order::Cancel(_)))
            .count(),
        3
    );
    assert_eq!(bench.core.tallies().leases_lost, 4);
}

#[test]
fn an_entry_trimmed_while_it_ran_is_settled_without_an_owner() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.now += 3 * SECOND;
    let orders = bench.core.orders(bench.now);
    assert!(orders.contains(&Order::Renew(vec![place(1)])));
    bench.core.renewed(
        &[place(1)],
        Ok(vec![LeaseState::Gone]),
        bench.now,
        bench.now,
    );
    bench.answer(1, done());
    let unowned = bench.seen.iter().any(
        |order| matches!(order, Order::Settle(batch) if batch.iter().all(|settle| settle.unowned)),
    );
    assert!(unowned, "{:?}", bench.seen);
}

#[test]
fn a_settlement_whose_reply_was_lost_counts_once_when_it_is_found_settled() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, done());
    assert!(bench.has(|order| matches!(order, Order::Settle(_))));
    let error = Error::Disconnected {
        address: "r".to_owned(),
        detail: "reset".to_owned(),
    };
    bench.core.settled(&[place(1)], Err(error), bench.now);
    bench.now += SECOND;
    let orders = bench.core.orders(bench.now);
    assert_eq!(orders, [Order::Connect]);
    bench.core.connected(Ok(Opened::default()), bench.now);
    let orders = bench.core.orders(bench.now);
    assert_eq!(
        orders,
        [Order::Renew(vec![place(1)])],
        "renewed before anything else"
    );
    bench.core.renewed(
        &[place(1)],
        Ok(vec![LeaseState::Settled]),
        bench.now,
        bench.now,
    );
    bench.turn();
    assert_eq!(bench.core.tallies().settled_as(SettledKind::Done), 1);
    assert_eq!(bench.core.tallies().leases_lost, 0);
}

#[test]
fn a_refused_settlement_is_kept_tried_again_and_stops_the_reading_of_a_full_worker() {
    let mut bench = Bench::with(|config| config.delivery.concurrency = 1);
    bench.deliver(&[(1, "a")]);
    bench.answer(1, done());
    bench
        .seen
        .retain(|order| !matches!(order, Order::Read { .. }));
    let refusal = Refusal {
        key: "out".to_owned(),
        reason: RefusalReason::WrongKeyType,
    };
    // A slot that is free once the handler is done may have been promised to a read.
    bench.core.arrived(Arrival::default(), false, bench.now);
    assert_eq!(
        bench.settle_with(&Settled::Refused(refusal.clone())).len(),
        1
    );
    let report = bench.core.report(bench.now);
    assert_eq!(report.refused[0].refusal, refusal);
    bench.core.arrived(Arrival::default(), false, bench.now);
    bench.seen.clear();
    bench.turn();
    assert!(
        !bench.has(|order| matches!(order, Order::Read { .. })),
        "nothing new is read"
    );
    bench.pass(SECOND);
    assert_eq!(bench.settle().len(), 1);
    assert_eq!(bench.core.report(bench.now).refused, []);
}

#[test]
fn a_drain_hands_back_what_waits_lets_finish_what_runs_and_retires() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f")]);
    bench.calls();
    bench.core.drain(false, bench.now);
    bench.turn();
    assert!(bench.has(|order| *order == Order::Unblock) || bench.core.out.read.is_none());
    let released: Vec<_> = bench.settle();
    assert!(
        matches!(&released[..], [(5, Settlement::Release { meta }), (6, _)] if meta.crashes == 0),
        "{released:?}"
    );
    for id in 1..=4 {
        bench.answer(id, done());
    }
    bench.settle();
    if bench.core.out.read.is_some() {
        bench.arrive(vec![], vec![]);
    }
    bench.turn();
    assert!(bench.core.is_finished());
}

#[test]
fn a_handler_that_outlives_the_drain_is_cancelled_and_its_entry_released_uncharged() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.core.drain(false, bench.now);
    bench.turn();
    bench.pass(30 * SECOND);
    assert!(bench.has(|order| matches!(order, Order::Cancel(_))));
    bench.answer(1, Outcome::Cancelled);
    assert_eq!(bench.counts(), [(1, 0)]);
    let settled = bench.settle();
    assert!(matches!(&settled[..], [(1, Settlement::Release { meta })] if meta.crashes == 0));
}

#[test]
fn a_redelivered_entry_that_is_held_goes_on_at_its_count_and_is_not_started_again() {
    let mut bench = Bench::new();
    bench.claim(&[(1, 1)]);
    assert_eq!(bench.calls(), [1]);
    assert_eq!(bench.counts(), [(1, 2)]);
    bench.deliver(&[(1, "1")]);
    assert_eq!(bench.calls(), NONE);
    assert_eq!(bench.counts(), [(1, 2)], "the read had set it to 1");
}

#[test]
fn twenty_errors_in_a_row_slow_a_worker_down_to_one_entry_at_a_time() {
    let mut bench = Bench::new();
    for round in 0..5_u64 {
        let ids: Vec<u64> = (0..4).map(|i| round * 4 + i + 1).collect();
        let keys: Vec<String> = ids.iter().map(u64::to_string).collect();
        let entries: Vec<_> = ids
            .iter()
            .zip(&keys)
            .map(|(id, key)| (*id, key.as_str()))
            .collect();
        bench.deliver(&entries);
        for id in ids {
            bench.answer(id, retry());
        }
        bench.settle();
    }
    bench.calls();
    bench.deliver(&[(100, "x"), (101, "y")]);
    assert_eq!(bench.calls(), NONE, "starts are spaced");
    bench.pass(5 * SECOND);
    assert_eq!(bench.calls(), [100]);
    assert_eq!(
        bench.core.report(bench.now).breaker.reason.as_deref(),
        Some("FailingAll")
    );
    bench.answer(100, done());
    assert_eq!(bench.calls(), [101]);
}

#[test]
fn a_due_reclaim_ends_a_parked_read_that_holds_every_slot() {
    let mut bench = Bench::new();
    bench.seen.clear();
    bench.pass(5 * SECOND);
    assert!(bench.has(|order| *order == Order::Unblock));
    bench.core.arrived(
        Arrival {
            sent_at: bench.now,
            ..Arrival::default()
        },
        false,
        bench.now,
    );
    let orders = bench.core.orders(bench.now);
    assert!(
        orders
            .iter()
            .any(|order| matches!(order, Order::Reclaim { limit: 4, .. })),
        "reclaim before the next read: {orders:?}"
    );
}

#[test]
fn a_worker_never_wakes_without_reason() {
    let mut bench = Bench::new();
    let mut turns = 0;
    while bench.now < 60 * SECOND {
        let at = bench.core.wake_at(bench.now);
        assert!(at > bench.now);
        bench.now = at;
        bench.turn();
        if bench.has(|order| *order == Order::Unblock) {
            bench.arrive(vec![], vec![]);
        }
        turns += 1;
    }
    assert!(turns < 100, "{turns} turns in a minute of idleness");
}

#[test]
fn a_settlement_that_finds_no_owner_waits_for_the_entry_to_be_delivered_again() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    assert_eq!(bench.calls(), [1]);
    bench.answer(1, done());
    assert!(bench.has(|order| matches!(order, Order::Settle(_))));
    bench
        .core
        .settled(&[place(1)], Ok(vec![Settled::NotOurs]), bench.now);
    let orders = bench.core.orders(bench.now);
    assert!(orders.contains(&Order::Renew(vec![place(1)])), "{orders:?}");
    let undelivered = Ok(vec![LeaseState::Undelivered]);
    bench
        .core
        .renewed(&[place(1)], undelivered, bench.now, bench.now);
    bench.turn();
    assert!(!bench.has(|order| matches!(order, Order::Settle(_) | Order::Call(_))));
    bench.deliver(&[(1, "a")]);
    assert_eq!(bench.calls(), NONE, "it is not started again");
    assert_eq!(bench.settle().len(), 1);
}

#[test]
fn a_settlement_that_finds_no_owner_is_given_up_when_another_has_the_entry() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, done());
    assert!(bench.has(|order| matches!(order, Order::Settle(_))));
    bench
        .core
        .settled(&[place(1)], Ok(vec![Settled::NotOurs]), bench.now);
    bench.core.orders(bench.now);
    bench.core.renewed(
        &[place(1)],
        Ok(vec![LeaseState::Stolen]),
        bench.now,
        bench.now,
    );
    bench.turn();
    assert_eq!(bench.core.held_entries(), 0);
    assert_eq!(bench.core.tallies().leases_lost, 1);
}
