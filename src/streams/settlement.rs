//! What the engine asks of a broker for entries it holds, and what comes back.
//!
//! Pure data. The decisions that make these are in `engine/settle.rs`; the guarantees are on [`super::Broker`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entry::{Entry, Fields, Meta, Place};

/// The identity of an entry's content: 32 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// A key from its 16 bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(format!("{:032x}", u128::from_be_bytes(bytes)))
    }

    /// The 32 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Append the outputs, record the key, acknowledge: one atomic step.
    Commit {
        /// What the handler gave out, appended to the output stream in order.
        outputs: Vec<Fields>,
        /// The key to look up and to record; `None` where no ledger is kept.
        key: Option<IdempotencyKey>,
        /// Commit although the ledger knows the key (a forced replay).
        force: bool,
    },
    /// Put it into `P:delayed` and acknowledge.
    RetryAfter {
        /// How long it waits, by the server's clock.
        delay: Duration,
        /// What it carries on.
        meta: Meta,
    },
    /// Append it to the dead letters and acknowledge.
    DeadLetter {
        /// The context pairs that come before the entry's own.
        context: Vec<(String, String)>,
    },
    /// Hand it back through `P:retry`, uncharged, and acknowledge.
    Release {
        /// What it carries on.
        meta: Meta,
    },
}

impl Settlement {
    /// Its name, as reports and logs give it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Commit { .. } => "Commit",
            Self::RetryAfter { .. } => "RetryAfter",
            Self::DeadLetter { .. } => "DeadLetter",
            Self::Release { .. } => "Release",
        }
    }
}

/// One entry and its settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The entry.
    pub entry: Arc<Entry>,
    /// What becomes of it.
    pub settlement: Settlement,
    /// It was trimmed while it ran under a good lease: nobody else can hold it, so ownership is not asked.
    pub unowned: bool,
}

/// How one settlement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is done, and the entry is acknowledged.
    Applied,
    /// The ledger knew the key: nothing was appended, the entry is acknowledged.
    AlreadyDone,
    /// The entry is not pending under this consumer any more: nothing was changed.
    NotOurs,
    /// The server refused an add: nothing was changed for this entry, it stays pending.
    Refused(Refusal),
    /// The session ended before this one was answered: it may have been applied or not.
    ///
    /// Only beside others that were answered; where none was, the error itself is returned.
    Unanswered,
}

/// An add that the server refused, for one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The key it was for.
    pub key: String,
    /// Why.
    pub reason: RefusalReason,
}

/// Why a server refuses an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RefusalReason {
    /// It is at `maxmemory` and evicts nothing.
    OutOfMemory,
    /// The key holds another type.
    WrongKeyType,
    /// The user may not do this.
    PermissionDenied,
    /// More than one script call can carry (7,000 values).
    TooLarge,
    /// Anything else; the text is in the log only.
    Other,
}

/// What a renewal found for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Pending under this consumer; its idle time starts again.
    Held,
    /// Pending under this consumer until now, and no longer in its stream: nobody else had it, and nobody can get it.
    Trimmed,
    /// Pending nowhere, and no longer in its stream: trimmed, and dropped from the pending list by somebody.
    Gone,
    /// Pending under another consumer.
    Stolen,
    /// Pending nowhere: it was settled.
    Settled,
    /// Pending nowhere, and beyond the position of a group that was re-created: it will be delivered again.
    Undelivered,
}

/// Where a reclaim goes on: after the last pending entry it looked at, per stream.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReclaimCursor {
    /// In the source stream; `None` = from the start.
    pub source: Option<super::EntryId>,
    /// In `P:retry`; `None` = from the start.
    pub retry: Option<super::EntryId>,
}

/// What one reclaim page brought.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Reclaimed {
    /// Entries now pending under this consumer, at the delivery count they had.
    pub claimed: Vec<super::Delivery>,
    /// Entries that had been trimmed while pending: acknowledged and counted as lost.
    pub lost: u64,
    /// Where the next page starts; both `None` once the end of both pending lists was reached.
    pub cursor: ReclaimCursor,
    /// The end of both pending lists was not reached yet.
    pub more: bool,
    /// Nothing may be reclaimed for this long: an outage has just ended.
    pub grace: Option<Duration>,
}

/// What one promotion brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Promoted {
    /// Entries moved to `P:retry`.
    pub moved: u64,
    /// Members that could not be decoded, now among the dead letters.
    pub undecodable: u64,
    /// Something was done, and more is due: asking again at once helps.
    pub more: bool,
    /// How long until the next one is due; `None` if nothing is delayed.
    pub next_in: Option<Duration>,
}

/// What writing a report brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reported {
    /// An outage has just ended: nothing is reclaimed for one visibility timeout.
    pub outage: bool,
    /// Entries that were trimmed before delivery, seen and counted as lost by this report.
    pub lost: u64,
}

/// One start (or its undoing): the delivery count an entry must have from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetCount {
    /// The entry.
    pub place: Place,
    /// The count to write.
    pub count: u32,
}

/// What waits and what is held, for a whole stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Never delivered to the group: in S (`None` = the server cannot say), or waiting in `P:retry`.
    pub undelivered: Option<u64>,
    /// Delivered and not acknowledged, in both streams.
    pub pending: u64,
    /// In `P:delayed`.
    pub delayed: u64,
    /// In the dead-letter stream.
    pub dead_letters: u64,
    /// Lost so far: trimmed while pending, or before delivery.
    pub lost: u64,
}

impl Backlog {
    /// Nothing waits, nothing is held, nothing is delayed.
    pub fn is_idle(&self) -> bool {
        self.undelivered == Some(0) && self.pending == 0 && self.delayed == 0
    }
}
