//! What a worker decides when faults meet: lost leases, broken processes, full servers, groups that were re-created.

use super::*;
fn lost_connection() -> Error {
    Error::Disconnected {
        address: "r".into(),
        detail: "reset".into(),
    }
}
fn oom() -> Settled {
    Settled::Refused(Refusal {
        key: "{orders}:mail:delayed".into(),
        reason: RefusalReason::OutOfMemory,
    })
}
/// Performs orders until nothing is left; renewals find what `f` says of each entry.
fn renew_with(bench: &mut Bench, f: impl Fn(u64) -> LeaseState) {
    for _ in 0..20 {
        let orders = bench.core.orders(bench.now);
        if orders.is_empty() {
            return;
        }
        for o in orders {
            match o {
                Order::Renew(p) => {
                    let v = p.iter().map(|p| f(p.id.millis)).collect();
                    let now = bench.now;
                    bench.core.renewed(&p, Ok(v), now, now);
                }
                Order::SetCounts(c) => {
                    let now = bench.now;
                    let ok = c
                        .iter()
                        .map(|c| f(c.place.id.millis) == LeaseState::Held)
                        .collect();
                    bench.core.counted(&c, Ok(ok), now);
                    bench.seen.push(Order::SetCounts(c));
                }
                o @ (Order::Connect
                | Order::ReadRetry { .. }
                | Order::Read { .. }
                | Order::Unblock
                | Order::Reclaim { .. }
                | Order::Call(_)
                | Order::Cancel(_)
                | Order::Settle(_)
                | Order::Promote
                | Order::Report
                | Order::Retire { .. }
                | Order::Probe) => bench.perform(o),
            }
        }
    }
    panic!("the core never comes to rest");
}

#[test]
fn an_entry_lost_in_limbo_holds_up_nobody() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b")]);
    bench.calls();
    bench.answer(1, crashed(false)); // limbo
    let now = bench.now;
    bench.core.renewed(
        &[place(1), place(2)],
        Ok(vec![LeaseState::Stolen, LeaseState::Held]),
        now,
        now,
    );
    bench.turn();
    bench.answer(2, done());
    bench.settle();
    assert_eq!(bench.core.held_entries(), 0);
    bench.pass(5 * SECOND);
    if bench.core.out.read.is_some() {
        bench.arrive(vec![], vec![]);
    }
    bench.claim(&[(3, 2)]);
    for _ in 0..100 {
        bench.pass(SECOND);
        if bench.core.out.read.is_some() {
            bench.arrive(vec![], vec![]);
        }
    }
    assert_eq!(bench.calls(), [3]);
}

#[test]
fn an_entry_lost_in_limbo_makes_no_suspect_of_a_later_lone_culprit() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b"), (3, "c")]);
    bench.answer(1, crashed(false));
    let now = bench.now;
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Stolen]), now, now);
    bench.turn();
    bench.pass(60 * SECOND);
    bench.answer(2, crashed(false));
    bench.pass(2 * SECOND);
    let s = bench.settle();
    assert!(
        matches!(&s[..], [(2, Settlement::RetryAfter { meta, .. })] if meta.crashes == 1),
        "{s:?}"
    );
}

#[test]
fn reading_goes_on_when_the_entry_that_waited_for_memory_is_lost() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, retry());
    if bench.core.out.read.is_some() {
        bench.arrive(vec![], vec![]);
    }
    bench.settle_with(&oom());
    if bench.core.out.read.is_some() {
        bench.arrive(vec![], vec![]);
    }
    let now = bench.now;
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Stolen]), now, now);
    bench.turn();
    assert_eq!(bench.core.held_entries(), 0);
    bench.seen.clear();
    for _ in 0..600 {
        bench.pass(SECOND);
    }
    assert!(bench.core.out.read.is_some(), "no read in ten minutes");
}

#[test]
fn a_solitary_entry_that_is_not_delivered_yet_stops_no_reads() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    assert_eq!(bench.calls(), [1]);
    if bench.core.out.read.is_some() {
        bench.arrive(vec![], vec![]);
    }
    bench.core.out.read = None;
    let now = bench.now;
    bench.core.reclaimed(
        (
            Reclaimed {
                claimed: vec![delivery(2, "2", 2)],
                ..Reclaimed::default()
            },
            vec![],
        ),
        now,
        now,
    );
    bench.turn();
    assert_eq!(bench.calls(), NONE);
    bench.core.session_ended(
        &Error::GroupMissing {
            stream: "orders".into(),
            group: "mail".into(),
        },
        now,
    );
    bench.core.out.read = None;
    bench.seen.clear();
    bench.now += SECOND;
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    bench
        .core
        .answered(place(1), bench.runs[&1], done(), bench.now);
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    for _ in 0..120 {
        bench.now += SECOND;
        renew_with(&mut bench, |_| LeaseState::Undelivered);
    }
    let reads = bench
        .seen
        .iter()
        .filter(|o| matches!(o, Order::Read { .. }))
        .count();
    assert!(
        reads > 0,
        "no read in two minutes after the group was made again"
    );
}

#[test]
fn an_undelivered_entry_behind_an_open_breaker_is_not_counted_again_and_again() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    let now = bench.now;
    if bench.core.out.read.is_some() {
        bench.arrive(vec![], vec![]);
    }
    bench.core.session_ended(
        &Error::GroupMissing {
            stream: "orders".into(),
            group: "mail".into(),
        },
        now,
    );
    bench.now += SECOND;
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    bench.core.answered(
        place(1),
        bench.runs[&1],
        Outcome::Unavailable {
            reason: UnavailableReason::ConnectionRefused,
        },
        bench.now,
    );
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    bench.now += 10 * SECOND;
    renew_with(&mut bench, |_| LeaseState::Undelivered);
}

#[test]
fn a_drain_lets_go_of_what_nobody_holds() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    let now = bench.now;
    bench.core.session_ended(
        &Error::GroupMissing {
            stream: "orders".into(),
            group: "mail".into(),
        },
        now,
    );
    bench.now += SECOND;
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    bench.core.drain(true, bench.now);
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    bench
        .core
        .answered(place(1), bench.runs[&1], Outcome::Cancelled, bench.now);
    renew_with(&mut bench, |_| LeaseState::Undelivered);
}

#[test]
fn connections_that_break_together_during_a_drain_make_suspects_too() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a"), (2, "b"), (3, "c")]);
    bench.core.drain(false, bench.now);
    bench.turn();
    for id in 1..=3 {
        bench.now += Duration::from_millis(1);
        bench.answer(id, crashed(false));
    }
    bench.pass(2 * SECOND);
    let s = bench.settle();
    let charged: Vec<_> = s
        .iter()
        .map(|(id, s)| match s {
            Settlement::RetryAfter { meta, .. } | Settlement::Release { meta } => {
                (*id, meta.crashes, meta.suspect)
            }
            Settlement::Commit { .. } | Settlement::DeadLetter { .. } => panic!("{s:?}"),
        })
        .collect();
    assert!(
        charged.iter().all(|(_, _, suspect)| *suspect),
        "judged as known culprits: {s:?}"
    );
}

#[test]
fn a_commit_that_may_not_have_gone_through_skips_no_twin() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "same"), (2, "same")]);
    assert_eq!(bench.calls(), [1]);
    bench.answer(
        1,
        Outcome::Done {
            outputs: vec![vec![(b"o".to_vec(), b"v".to_vec())]],
        },
    );
    assert!(bench.has(|o| matches!(o, Order::Settle(_))));
    bench
        .core
        .settled(&[place(1)], Err(lost_connection()), bench.now);
    bench.now += SECOND;
    let now = bench.now;
    assert_eq!(bench.core.orders(now), [Order::Connect]);
    bench.core.connected(Ok(Opened::default()), now);
    bench.core.orders(now);
    // another worker has claimed 1 meanwhile: the commit never went through
    bench.core.renewed(
        &[place(1), place(2)],
        Ok(vec![LeaseState::Stolen, LeaseState::Held]),
        now,
        now,
    );
    bench.turn();
    let s = bench.settle();
    assert!(
        !s.iter().any(|(id, s)| *id == 2
            && matches!(s, Settlement::Commit { outputs, key: Some(_), .. } if outputs.is_empty())),
        "2 is committed without outputs and without a run: {s:?}"
    );
}

#[test]
fn what_came_while_a_renewal_was_out_waits_for_the_next_one() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.calls();
    let sent_at = bench.core.out.read.unwrap().1;
    bench.now += 25 * SECOND; // SIGSTOP
    let now = bench.now;
    let orders = bench.core.orders(now);
    assert!(orders.contains(&Order::Renew(vec![place(1)])));
    bench.core.arrived(
        Arrival {
            deliveries: vec![delivery(2, "b", 1)],
            known: vec![],
            sent_at,
        },
        false,
        now,
    );
    assert!(
        !bench
            .core
            .orders(now)
            .iter()
            .any(|o| matches!(o, Order::Call(_)))
    );
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Held]), now, now);
    let orders = bench.core.orders(now);
    assert!(
        !orders.iter().any(|o| matches!(o, Order::Call(_))),
        "2 was delivered up to 25 s ago, was never renewed, and starts: {orders:?}"
    );
}

#[test]
fn a_refused_settlement_with_a_solitary_twin_leaves_the_other_slots_to_others() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "same")]);
    bench.answer(1, done());
    bench.settle_with(&Settled::Refused(Refusal {
        key: "out".into(),
        reason: RefusalReason::WrongKeyType,
    }));
    let mut twin = delivery(2, "same", 2);
    twin.count = 2;
    let now = bench.now;
    bench.core.reclaimed(
        (
            Reclaimed {
                claimed: vec![twin],
                ..Reclaimed::default()
            },
            vec![],
        ),
        now,
        now,
    );
    bench.turn();
    if bench.core.out.read.is_some() {
        bench.deliver(&[(10, "x")]);
    }
    let calls = bench.calls();
    bench.seen.clear();
    let mut reads = usize::from(bench.core.out.read.is_some());
    for _ in 0..120 {
        bench.pass(SECOND);
        bench.settle_with(&Settled::Refused(Refusal {
            key: "out".into(),
            reason: RefusalReason::WrongKeyType,
        }));
        if bench.has(|o| matches!(o, Order::Read { .. })) {
            reads += 1;
            bench.arrive(vec![], vec![]);
        }
    }
    assert!(
        reads > 0 && calls == [1, 10],
        "one refused settlement stops a worker with 3 free slots: calls {calls:?}, reads {reads}"
    );
}

#[test]
fn a_late_error_of_an_old_session_says_nothing_of_its_successor() {
    let mut bench = Bench::new();
    assert!(bench.core.out.read.is_some());
    bench.core.session_ended(&lost_connection(), bench.now);
    bench.pass(SECOND);
    assert!(bench.core.is_connected());
    bench.core.hear(1);
    bench.core.read_failed(&lost_connection(), bench.now);
    assert!(
        bench.core.is_connected(),
        "the old read's error ended the new session"
    );
}

#[test]
fn entries_go_to_others_also_when_probes_go_well_and_calls_do_not() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    let reason = UnavailableReason::ProcessExiting;
    bench.calls();
    bench.answer(1, Outcome::Unavailable { reason });
    let mut released = false;
    let start = bench.now;
    while bench.now < start + 300 * SECOND {
        bench.pass(Duration::from_millis(250));
        if bench.has(|o| *o == Order::Probe) {
            bench.core.probed(Ok(()), bench.now);
            bench.turn();
            if bench.calls() == [1] {
                bench.answer(1, Outcome::Unavailable { reason });
            }
        }
        if bench.core.out.read.is_some() {
            bench.arrive(vec![], vec![]);
        }
        released |= !bench.settle().is_empty();
    }
    assert!(
        released,
        "held unstarted for 5 minutes at a visibility timeout of 9 s"
    );
}

#[test]
fn many_entries_to_be_delivered_again_do_not_stop_the_reads_that_bring_them() {
    let mut bench = Bench::new();
    let keys: Vec<String> = (1..=140u64).map(|i| i.to_string()).collect();
    let e: Vec<(u64, &str)> = keys
        .iter()
        .enumerate()
        .map(|(i, k)| (i as u64 + 1, k.as_str()))
        .collect();
    bench.deliver(&e);
    let now = bench.now;
    bench.core.read_failed(
        &Error::GroupMissing {
            stream: "orders".into(),
            group: "mail".into(),
        },
        now,
    );
    bench.now += SECOND;
    bench.seen.clear();
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    bench.now += SECOND;
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    assert!(
        bench.has(|o| matches!(o, Order::Read { .. })),
        "nothing is read, so nothing is delivered again"
    );
}

#[test]
fn an_entry_that_is_not_delivered_yet_does_not_start() {
    let mut bench = Bench::with(|c| c.delivery.concurrency = 1);
    bench.deliver(&[(1, "a"), (2, "b")]);
    bench.calls();
    let now = bench.now;
    if bench.core.out.read.is_some() {
        bench.core.out.read = None;
    }
    bench.core.session_ended(
        &Error::GroupMissing {
            stream: "orders".into(),
            group: "mail".into(),
        },
        now,
    );
    bench.now += SECOND;
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    bench
        .core
        .answered(place(1), bench.runs[&1], done(), bench.now);
    renew_with(&mut bench, |_| LeaseState::Undelivered);
    let calls = bench.calls();
    assert_eq!(calls, NONE);
}

#[test]
fn an_entry_that_comes_back_waits_until_its_cancelled_run_has_answered() {
    let mut bench = Bench::new();
    bench.claim(&[(1, 0)]);
    assert_eq!(bench.calls(), [1]);
    let now = bench.now;
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Stolen]), now, now);
    bench.turn();
    assert!(bench.has(|o| matches!(o, Order::Cancel(_))));
    bench.claim(&[(1, 0)]); // the thief died: ours again, before the cancelled run has answered
    assert_eq!(
        bench.calls(),
        NONE,
        "a second run beside the first that is not over yet"
    );
    let first = bench.runs[&1];
    bench
        .core
        .answered(place(1), first, Outcome::Cancelled, bench.now);
    bench.turn();
    assert_eq!(bench.calls(), [1]);
}

#[test]
fn a_renewal_that_finds_an_entry_held_ends_the_doubt_about_its_settlement() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, retry());
    bench.has(|o| matches!(o, Order::Settle(_)));
    bench
        .core
        .settled(&[place(1)], Err(lost_connection()), bench.now);
    bench.pass(SECOND); // renewed: held, so the first try did not go through
    bench.settle_with(&oom());
    let now = bench.now;
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Stolen]), now, now);
    bench.turn();
    assert_eq!(
        (
            bench.core.tallies().settled_as(SettledKind::Retried),
            bench.core.tallies().leases_lost
        ),
        (0, 1)
    );
}

#[test]
fn no_report_follows_a_workers_own_retirement() {
    let mut bench = Bench::new();
    bench.core.drain(false, bench.now);
    bench.core.out.read = None;
    bench.now += 10 * SECOND;
    let orders = bench.core.orders(bench.now);
    let retire = orders
        .iter()
        .any(|o| matches!(o, Order::Retire { own: true }));
    let report = orders.iter().any(|o| matches!(o, Order::Report));
    assert!(!(retire && report), "{orders:?}");
}

#[test]
fn a_lost_entry_ends_the_block_that_its_settlement_was() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, done());
    bench.settle_with(&Settled::Refused(Refusal {
        key: "out".into(),
        reason: RefusalReason::WrongKeyType,
    }));
    let now = bench.now;
    bench.core.take_facts();
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Stolen]), now, now);
    bench.turn();
    assert!(bench.core.take_facts().contains(&Fact::Unblocked));
}

#[test]
fn a_repaired_program_is_given_its_entries_and_not_handed_them_back_for_ever() {
    let mut bench = Bench::with(|config| config.delivery.max_deliveries = 1);
    let reason = UnavailableReason::ProcessExiting;
    bench.deliver(&[(1, "a")]);
    bench.calls();
    bench.answer(1, Outcome::Unavailable { reason });
    bench.core.probed(Err(reason), bench.now);
    for _ in 0..5 {
        bench.pass(2 * SECOND);
    }
    assert_eq!(
        bench.settle().len(),
        1,
        "released after a visibility timeout"
    );
    bench.core.probed(Ok(()), bench.now);
    bench.turn();
    bench.deliver(&[(2, "a")]);
    assert_eq!(bench.calls(), [2]);
}

#[test]
fn an_entry_trimmed_under_a_sleeping_worker_keeps_its_run() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.calls();
    bench.now += 25 * SECOND;
    let now = bench.now;
    bench.core.orders(now);
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Trimmed]), now, now);
    bench.answer(1, done());
    let settled = bench.settle();
    assert!(
        matches!(&settled[..], [(1, Settlement::Commit { .. })]),
        "{settled:?}"
    );
}

#[test]
fn memory_that_an_undelivered_entry_waits_for_stops_no_reads() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, retry());
    bench.core.out.read = None;
    let refusal = Refusal {
        key: "{orders}:mail:delayed".to_owned(),
        reason: RefusalReason::OutOfMemory,
    };
    bench.settle_with(&Settled::Refused(refusal));
    bench.core.out.read = None;
    let now = bench.now;
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Undelivered]), now, now);
    bench.turn();
    assert!(bench.core.out.read.is_some());
}

#[test]
fn a_solitary_start_ends_the_parked_read() {
    let mut bench = Bench::new();
    bench.seen.clear();
    bench.pass(SECOND);
    bench.claim(&[(1, 2)]);
    assert_eq!(bench.calls(), [1]);
    assert!(bench.has(|order| *order == Order::Unblock));
}

#[test]
fn twins_of_an_undelivered_entry_do_not_keep_it_from_being_read() {
    let mut bench = Bench::with(|config| config.delivery.concurrency = 1);
    bench.deliver(&[(5, "same")]);
    assert_eq!(bench.calls(), [5]);
    bench.core.out.read = None;
    let now = bench.now;
    bench
        .core
        .renewed(&[place(5)], Ok(vec![LeaseState::Undelivered]), now, now);
    bench.turn();
    bench.deliver(&[(3, "same")]);
    bench.answer(5, done());
    assert!(bench.core.out.read.is_some(), "nothing brings 5 again");
}

#[test]
fn a_settlement_that_surely_failed_is_not_counted_as_done() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, done());
    assert!(bench.has(|order| matches!(order, Order::Settle(_))));
    let missing = Error::GroupMissing {
        stream: "orders".to_owned(),
        group: "mail".to_owned(),
    };
    bench.core.settled(&[place(1)], Err(missing), bench.now);
    bench.now += SECOND;
    renew_with(&mut bench, |_| LeaseState::Settled);
    assert_eq!(bench.core.tallies().settled_as(SettledKind::Done), 0);
    assert_eq!(bench.core.tallies().leases_lost, 1);
}

#[test]
fn a_renewal_that_was_cut_off_leaves_no_mark_on_the_next() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.core.out.read = None;
    bench.now += 3 * SECOND;
    let now = bench.now;
    assert!(
        bench
            .core
            .orders(now)
            .contains(&Order::Renew(vec![place(1)]))
    );
    let arrival = Arrival {
        deliveries: vec![delivery(2, "b", 1)],
        known: vec![],
        sent_at: SECOND,
    };
    bench.core.arrived(arrival, false, now);
    bench
        .core
        .renewed(&[place(1)], Err(lost_connection()), now, now);
    bench.pass(SECOND);
    let renewals = bench
        .seen
        .iter()
        .filter(|order| matches!(order, Order::Renew(_)))
        .count();
    assert_eq!((renewals, bench.core.tallies().leases_late), (1, 0));
}

#[test]
fn entries_without_any_field_of_their_key_are_told_of_once() {
    let mut bench = Bench::with(|config| config.idempotency.key_fields = vec!["nmae".to_owned()]);
    bench.deliver(&[(1, "a"), (2, "b")]);
    let facts = bench.core.take_facts();
    let told = facts
        .iter()
        .filter(|fact| matches!(fact, Fact::Keyless { .. }))
        .count();
    assert_eq!(told, 1);
}

#[test]
fn a_refused_settlement_is_tried_by_its_backoff_whatever_renewals_find() {
    let mut bench = Bench::new();
    bench.deliver(&[(1, "a")]);
    bench.answer(1, done());
    let refusal = Refusal {
        key: "out".to_owned(),
        reason: RefusalReason::WrongKeyType,
    };
    let mut tries = 0;
    for _ in 0..6_000 {
        bench.pass(Duration::from_millis(100));
        tries += bench.settle_with(&Settled::Refused(refusal.clone())).len();
        assert!(bench.core.refused.len() <= 1);
        if bench.core.out.read.is_some() {
            bench.core.out.read = None;
        }
    }
    assert!((55..80).contains(&tries), "{tries} tries in ten minutes");
}

#[test]
fn a_blip_of_the_handler_hands_nothing_back() {
    let mut bench = Bench::with(|config| config.delivery.concurrency = 1);
    bench.deliver(&[(1, "a"), (2, "b")]);
    for _ in 0..100 {
        bench.pass(SECOND);
    }
    let reason = UnavailableReason::ConnectionRefused;
    bench.answer(1, Outcome::Unavailable { reason });
    assert_eq!(bench.settle(), []);
    bench.core.probed(Ok(()), bench.now);
    bench.turn();
    assert_eq!(bench.settle(), []);
}

#[test]
fn what_must_be_read_again_is_read_by_a_full_worker_whose_reclaim_is_due() {
    let mut bench = Bench::with(|config| config.delivery.concurrency = 1);
    bench.deliver(&[(1, "a")]);
    bench.core.out.read = None;
    let now = bench.now;
    bench
        .core
        .renewed(&[place(1)], Ok(vec![LeaseState::Undelivered]), now, now);
    bench.deliver(&[(2, "b")]);
    bench.core.out.read = None;
    bench.now += 30 * SECOND;
    renew_with(&mut bench, |id| {
        if id == 1 {
            LeaseState::Undelivered
        } else {
            LeaseState::Held
        }
    });
    assert!(bench.core.out.read.is_some());
}
