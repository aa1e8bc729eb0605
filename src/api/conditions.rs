//! Condition types and reasons as closed enums: the words under which trouble is named everywhere. Pure.
//!
//! So far those that one engine can see by itself; the operator adds its own. What each says to users is in its doc line.

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionType {
    /// Redis answers. True is good.
    RedisAvailable,
    /// The group exists on a stream key. True is good.
    ConsumerGroupReady,
    /// The handler cannot be reached or started, or everything fails in it. True is bad.
    HandlerUnavailable,
    /// A settlement was refused, and its entry is held until it goes through. True is bad.
    SettlementBlocked,
    /// Redis may evict the streams or the ledger when it runs out of memory. True is bad.
    UnsafeEviction,
    /// An entry reached `delivery.maxDeliveries`. True is bad.
    PoisonEntries,
    /// Entries were trimmed before they were settled. True is bad.
    EntriesLost,
}

/// Why a condition is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Commands are answered.
    Connected,
    /// The host does not resolve.
    DnsFailure,
    /// Nobody listens on the port.
    ConnectionRefused,
    /// No answer in time.
    Timeout,
    /// User or password were refused.
    AuthenticationFailed,
    /// The user may not run a command, or touch a key.
    PermissionDenied,
    /// Redis is still reading its data.
    Loading,
    /// The server is a replica and takes no writes.
    ReadOnlyReplica,
    /// The group was there.
    GroupExists,
    /// The group was created by us.
    GroupCreated,
    /// The group is not there, and `source.groupCreation` is Never or it vanished.
    GroupMissing,
    /// The stream is not there, and `source.groupCreation` is Never.
    StreamMissing,
    /// A key holds another type than a stream.
    WrongKeyType,
    /// The handler's program cannot be started.
    SpawnFailed,
    /// The handler's process exits again and again while idle.
    ProcessExiting,
    /// The last outcomes of a worker were all errors.
    FailingAll,
    /// The dead-letter stream takes nothing.
    DeadLetterRefused,
    /// The output stream takes nothing.
    OutputRefused,
    /// The set of delayed entries, or the retry stream, takes nothing.
    RetryRefused,
    /// Redis is full.
    OutOfMemory,
    /// The eviction policy covers every key.
    StreamsEvictable,
    /// The eviction policy covers keys with an expiry.
    LedgerEvictable,
    /// The entry was started `delivery.maxDeliveries` times and no start ended.
    DeliveryLimitReached,
    /// A worker died alone with the entry.
    WorkerKilled,
    /// Entries left the stream before the group read them.
    TrimmedBeforeDelivery,
    /// Entries left the stream while they were pending.
    TrimmedWhilePending,
}

impl ConditionType {
    /// Every type.
    pub const ALL: [Self; 7] = [
        Self::RedisAvailable,
        Self::ConsumerGroupReady,
        Self::HandlerUnavailable,
        Self::SettlementBlocked,
        Self::UnsafeEviction,
        Self::PoisonEntries,
        Self::EntriesLost,
    ];

    /// The name in `status.conditions` and in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RedisAvailable => "RedisAvailable",
            Self::ConsumerGroupReady => "ConsumerGroupReady",
            Self::HandlerUnavailable => "HandlerUnavailable",
            Self::SettlementBlocked => "SettlementBlocked",
            Self::UnsafeEviction => "UnsafeEviction",
            Self::PoisonEntries => "PoisonEntries",
            Self::EntriesLost => "EntriesLost",
        }
    }

    /// Whether True is the good state.
    pub const fn is_normal_when_true(self) -> bool {
        match self {
            Self::RedisAvailable | Self::ConsumerGroupReady => true,
            Self::HandlerUnavailable
            | Self::SettlementBlocked
            | Self::UnsafeEviction
            | Self::PoisonEntries
            | Self::EntriesLost => false,
        }
    }

    /// The reasons it may carry.
    pub const fn reasons(self) -> &'static [Reason] {
        match self {
            Self::RedisAvailable => &[
                Reason::Connected,
                Reason::DnsFailure,
                Reason::ConnectionRefused,
                Reason::Timeout,
                Reason::AuthenticationFailed,
                Reason::PermissionDenied,
                Reason::Loading,
                Reason::ReadOnlyReplica,
            ],
            Self::ConsumerGroupReady => &[
                Reason::GroupExists,
                Reason::GroupCreated,
                Reason::GroupMissing,
                Reason::StreamMissing,
                Reason::WrongKeyType,
            ],
            Self::HandlerUnavailable => &[
                Reason::ConnectionRefused,
                Reason::DnsFailure,
                Reason::SpawnFailed,
                Reason::ProcessExiting,
                Reason::FailingAll,
            ],
            Self::SettlementBlocked => &[
                Reason::DeadLetterRefused,
                Reason::OutputRefused,
                Reason::RetryRefused,
                Reason::OutOfMemory,
                Reason::PermissionDenied,
            ],
            Self::UnsafeEviction => &[Reason::StreamsEvictable, Reason::LedgerEvictable],
            Self::PoisonEntries => &[Reason::DeliveryLimitReached, Reason::WorkerKilled],
            Self::EntriesLost => &[Reason::TrimmedBeforeDelivery, Reason::TrimmedWhilePending],
        }
    }
}

impl Reason {
    /// The name in `status.conditions` and in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "Connected",
            Self::DnsFailure => "DNSFailure",
            Self::ConnectionRefused => "ConnectionRefused",
            Self::Timeout => "Timeout",
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::PermissionDenied => "PermissionDenied",
            Self::Loading => "Loading",
            Self::ReadOnlyReplica => "ReadOnlyReplica",
            Self::GroupExists => "GroupExists",
            Self::GroupCreated => "GroupCreated",
            Self::GroupMissing => "GroupMissing",
            Self::StreamMissing => "StreamMissing",
            Self::WrongKeyType => "WrongKeyType",
            Self::SpawnFailed => "SpawnFailed",
            Self::ProcessExiting => "ProcessExiting",
            Self::FailingAll => "FailingAll",
            Self::DeadLetterRefused => "DeadLetterRefused",
            Self::OutputRefused => "OutputRefused",
            Self::RetryRefused => "RetryRefused",
            Self::OutOfMemory => "OutOfMemory",
            Self::StreamsEvictable => "StreamsEvictable",
            Self::LedgerEvictable => "LedgerEvictable",
            Self::DeliveryLimitReached => "DeliveryLimitReached",
            Self::WorkerKilled => "WorkerKilled",
            Self::TrimmedBeforeDelivery => "TrimmedBeforeDelivery",
            Self::TrimmedWhilePending => "TrimmedWhilePending",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_camel_case_and_unique_within_a_condition() {
        for condition in ConditionType::ALL {
            let mut names: Vec<_> = condition.reasons().iter().map(|r| r.as_str()).collect();
            assert!(names.iter().all(|name| name.starts_with(char::is_uppercase)
                && name.chars().all(char::is_alphanumeric)));
            names.sort_unstable();
            names.dedup();
            assert_eq!(
                names.len(),
                condition.reasons().len(),
                "{}",
                condition.as_str()
            );
        }
    }
}
