//! Which condition a fact makes true or false, under the names that a StreamStage's status gives them. Pure.
//!
//! The operator raises these conditions from reports, with thresholds over time; a worker shows each change at once.

use super::core::Fact;
use super::letter_context::Reason;
use super::session::SessionEnd;
use crate::streams::{Opened, RefusalReason};

/// A condition that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its type.
    pub condition: &'static str,
    /// Its status.
    pub status: bool,
    /// Why.
    pub reason: &'static str,
    /// It asks for somebody's attention.
    pub is_trouble: bool,
}

const fn trouble(condition: &'static str, status: bool, reason: &'static str) -> Shown {
    Shown {
        condition,
        status,
        reason,
        is_trouble: true,
    }
}

const fn fine(condition: &'static str, status: bool, reason: &'static str) -> Shown {
    Shown {
        condition,
        status,
        reason,
        is_trouble: false,
    }
}

/// Nothing that a stage lives from can be evicted.
const SAFE: Shown = fine("UnsafeEviction", false, "NothingEvictable");

/// The conditions that a fact changes.
pub fn conditions(fact: &Fact) -> Vec<Shown> {
    match fact {
        Fact::SessionBegan(opened) => of_session(opened),
        Fact::SessionEnded { end, failures, .. } => of_end(*end, *failures).into_iter().collect(),
        Fact::Handler(Some(reason)) => vec![trouble("HandlerUnavailable", true, reason)],
        Fact::Handler(None) => vec![fine("HandlerUnavailable", false, "Answering")],
        Fact::Refused {
            refusal,
            settlement,
            ..
        } => {
            vec![trouble(
                "SettlementBlocked",
                true,
                of_refusal(refusal.reason, settlement),
            )]
        }
        Fact::Unblocked => vec![fine("SettlementBlocked", false, "Settled")],
        Fact::Lost { pending: true, .. } => {
            vec![trouble("EntriesLost", true, "TrimmedWhilePending")]
        }
        Fact::Lost { pending: false, .. } => {
            vec![trouble("EntriesLost", true, "TrimmedBeforeDelivery")]
        }
        Fact::DeadLettered { reason, .. } if is_poison(reason) => {
            vec![trouble("PoisonEntries", true, "DeliveryLimitReached")]
        }
        Fact::DeadLettered { .. }
        | Fact::Ended { .. }
        | Fact::Settled { .. }
        | Fact::Waited(_)
        | Fact::Reclaimed(_)
        | Fact::Promoted(_)
        | Fact::LeaseLost(_)
        | Fact::LeaseLate
        | Fact::Keyless { .. }
        | Fact::Draining { .. }
        | Fact::Left(_) => Vec::new(),
    }
}

fn of_session(opened: &Opened) -> Vec<Shown> {
    let group = if opened.group_created_at.is_some() {
        "GroupCreated"
    } else {
        "GroupExists"
    };
    let mut shown = vec![
        fine("RedisAvailable", true, "Connected"),
        fine("ConsumerGroupReady", true, group),
    ];
    shown.push(opened.unsafe_eviction.as_deref().map_or(SAFE, of_policy));
    shown
}

fn is_poison(reason: &str) -> bool {
    [Reason::Poison, Reason::DeliveriesExhausted]
        .iter()
        .any(|poison| poison.as_str() == reason)
}

/// A broken connection is no condition yet: the next attempt tells what is wrong, if anything is.
fn of_end(end: SessionEnd, failures: u32) -> Option<Shown> {
    match end {
        // It accepts connections, and answers nothing.
        SessionEnd::Disconnected if failures > 1 => Some(trouble(
            "RedisAvailable",
            false,
            SessionEnd::Timeout.as_str(),
        )),
        SessionEnd::ConnectionRefused
        | SessionEnd::DnsFailure
        | SessionEnd::Timeout
        | SessionEnd::AuthenticationFailed
        | SessionEnd::ReadOnly
        | SessionEnd::Denied
        | SessionEnd::Loading => Some(trouble("RedisAvailable", false, end.as_str())),
        SessionEnd::GroupMissing | SessionEnd::WrongType => {
            Some(trouble("ConsumerGroupReady", false, end.as_str()))
        }
        SessionEnd::Shutdown
        | SessionEnd::Disconnected
        | SessionEnd::Full
        | SessionEnd::Protocol => None,
    }
}

/// `allkeys-*` can evict the streams, `volatile-*` the ledger.
fn of_policy(policy: &str) -> Shown {
    let reason = if policy.starts_with("allkeys") {
        "StreamsEvictable"
    } else {
        "LedgerEvictable"
    };
    trouble("UnsafeEviction", true, reason)
}

fn of_refusal(reason: RefusalReason, settlement: &str) -> &'static str {
    match (reason, settlement) {
        (RefusalReason::OutOfMemory, _) => "OutOfMemory",
        (RefusalReason::PermissionDenied, _) => "PermissionDenied",
        (_, "DeadLetter") => "DeadLetterRefused",
        (_, "Commit") => "OutputRefused",
        (_, _) => "RetryRefused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::outcome::UnavailableReason;
    use crate::streams::EntryId;

    fn named(fact: &Fact) -> Vec<(&'static str, bool, &'static str)> {
        let shown = conditions(fact).into_iter();
        shown
            .map(|shown| (shown.condition, shown.status, shown.reason))
            .collect()
    }

    #[test]
    fn a_session_says_what_it_found() {
        let opened = Opened {
            unsafe_eviction: Some("volatile-lru".to_owned()),
            ..Opened::default()
        };
        assert_eq!(
            named(&Fact::SessionBegan(opened)),
            [
                ("RedisAvailable", true, "Connected"),
                ("ConsumerGroupReady", true, "GroupExists"),
                ("UnsafeEviction", true, "LedgerEvictable"),
            ]
        );
    }

    #[test]
    fn an_end_names_the_condition_it_belongs_to_and_a_broken_connection_none() {
        let ended = |end| Fact::SessionEnded {
            end,
            detail: String::new(),
            failures: 1,
            wait: std::time::Duration::ZERO,
        };
        let of = |end| named(&ended(end));
        assert_eq!(
            of(SessionEnd::Denied),
            [("RedisAvailable", false, "PermissionDenied")]
        );
        assert_eq!(
            of(SessionEnd::WrongType),
            [("ConsumerGroupReady", false, "WrongKeyType")]
        );
        assert_eq!(of(SessionEnd::Disconnected), []);
    }

    #[test]
    fn a_refusal_names_what_is_refused_unless_the_server_is_full_or_forbids_it() {
        let of = |reason, settlement| of_refusal(reason, settlement);
        assert_eq!(of(RefusalReason::WrongKeyType, "Commit"), "OutputRefused");
        assert_eq!(
            of(RefusalReason::WrongKeyType, "DeadLetter"),
            "DeadLetterRefused"
        );
        assert_eq!(of(RefusalReason::Other, "RetryAfter"), "RetryRefused");
        assert_eq!(of(RefusalReason::OutOfMemory, "Commit"), "OutOfMemory");
    }

    #[test]
    fn only_poison_is_poison() {
        let letter = |reason: &str| Fact::DeadLettered {
            origin: EntryId::ZERO,
            reason: reason.to_owned(),
            error_type: String::new(),
            error: String::new(),
        };
        assert_eq!(named(&letter("Rejected")), []);
        let poison = [("PoisonEntries", true, "DeliveryLimitReached")];
        assert_eq!(named(&letter("Poison")), poison);
    }

    #[test]
    fn every_condition_has_a_name_and_a_reason_that_a_status_may_have() {
        use crate::api::conditions::{ConditionType, Reason};
        let ends = [
            SessionEnd::ConnectionRefused,
            SessionEnd::DnsFailure,
            SessionEnd::Timeout,
            SessionEnd::AuthenticationFailed,
            SessionEnd::ReadOnly,
            SessionEnd::Denied,
            SessionEnd::Loading,
            SessionEnd::GroupMissing,
            SessionEnd::WrongType,
        ];
        let mut shown: Vec<Shown> = ends.into_iter().filter_map(|end| of_end(end, 1)).collect();
        for reason in [
            UnavailableReason::ConnectionRefused,
            UnavailableReason::DnsFailure,
            UnavailableReason::SpawnFailed,
            UnavailableReason::ProcessExiting,
        ] {
            shown.extend(conditions(&Fact::Handler(Some(reason.as_str()))));
        }
        shown.extend(conditions(&Fact::Handler(Some("FailingAll"))));
        for pending in [true, false] {
            shown.extend(conditions(&Fact::Lost {
                entries: 1,
                pending,
            }));
        }
        for policy in ["allkeys-lru", "volatile-ttl"] {
            shown.push(of_policy(policy));
        }
        for Shown {
            condition, reason, ..
        } in shown
        {
            let kind = ConditionType::ALL
                .into_iter()
                .find(|kind| kind.as_str() == condition);
            let reasons = kind.unwrap_or_else(|| panic!("{condition}")).reasons();
            let known: Vec<_> = reasons.iter().copied().map(Reason::as_str).collect();
            assert!(
                known.contains(&reason),
                "{condition} has no reason {reason}"
            );
        }
    }
}
