//! What the core says: orders to carry out, and facts to show. Pure data.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::session::SessionEnd;
use crate::streams::{
    Entry, EntryId, IdempotencyKey, Opened, Place, ReclaimCursor, Refusal, SetCount, Settle,
};

/// Something to do. What comes back is told to the [`super::Core`] by the method named.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Open a session; [`super::Core::connected`].
    Connect,
    /// Read from `P:retry` without waiting; [`super::Core::arrived`].
    ReadRetry {
        /// At most so many.
        count: usize,
    },
    /// Read from both streams; [`super::Core::arrived`].
    Read {
        /// At most so many of each.
        count: usize,
    },
    /// End the parked read; [`super::Core::unblocked`].
    Unblock,
    /// Claim entries of silent workers; [`super::Core::reclaimed`].
    Reclaim {
        /// Where to go on.
        cursor: ReclaimCursor,
        /// At most so many.
        limit: usize,
    },
    /// Write delivery counts; [`super::Core::counted`].
    SetCounts(Vec<SetCount>),
    /// Call the handler; [`super::Core::answered`].
    Call(Call),
    /// Tell the handler to stop this run; its answer follows as for every call.
    Cancel(u64),
    /// Settle entries; [`super::Core::settled`].
    Settle(Vec<Settle>),
    /// Renew leases; [`super::Core::renewed`].
    Renew(Vec<Place>),
    /// Move due entries to `P:retry`; [`super::Core::promoted`].
    Promote,
    /// Write the report; [`super::Core::reported`].
    Report,
    /// Delete consumers that left nothing behind; [`super::Core::retired`].
    Retire {
        /// This one, as the last thing it does.
        own: bool,
    },
    /// See whether the handler can be reached; [`super::Core::probed`].
    Probe,
}

/// One run of the handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The run's number.
    pub run: u64,
    /// The entry.
    pub entry: Arc<Entry>,
    /// Its key.
    pub key: IdempotencyKey,
    /// Errors so far + 1.
    pub attempt: u32,
    /// Starts so far that ended in nothing + 1.
    pub deliveries: u32,
    /// It runs alone, or for the last time: on a fresh connection, in a fresh child.
    pub fresh: bool,
}

/// Something that happened, for logs, metrics and the summary.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A run ended.
    Ended {
        /// The entry's id in the source stream.
        origin: EntryId,
        /// `Done`, `Retry`, ...
        outcome: &'static str,
        /// How long it ran.
        took: Duration,
        /// The error's type, if any.
        error_type: String,
    },
    /// An entry was settled.
    Settled {
        /// Its id in the source stream.
        origin: EntryId,
        /// What became of it.
        kind: SettledKind,
    },
    /// An entry is among the dead letters now.
    DeadLettered {
        /// Its id in the source stream.
        origin: EntryId,
        /// Why.
        reason: String,
        /// The type of its last error.
        error_type: String,
        /// The text of that error.
        error: String,
    },
    /// An entry waited so long from its adding to its first start.
    Waited(Duration),
    /// Entries of silent workers were claimed.
    Reclaimed(u64),
    /// Entries were trimmed before anybody was done with them.
    Lost {
        /// How many.
        entries: u64,
        /// They had been delivered, and were pending.
        pending: bool,
    },
    /// Due entries were moved to `P:retry`.
    Promoted(u64),
    /// An entry was taken from this worker, or settled elsewhere.
    LeaseLost(Place),
    /// The first entry with none of the fields that make its key.
    Keyless {
        /// Its id in the source stream.
        origin: EntryId,
    },
    /// The order to stop was given.
    Draining {
        /// Entries that the handler has: they may finish within `within`.
        running: usize,
        /// Then they are cancelled.
        within: Duration,
    },
    /// The drain is over, and so many entries stay pending: others take them over.
    Left(usize),
    /// A renewal came late.
    LeaseLate,
    /// A settlement was refused.
    Refused {
        /// The entry.
        place: Place,
        /// What was refused: `Commit`, `RetryAfter`, `DeadLetter`.
        settlement: &'static str,
        /// The key and the reason.
        refusal: Refusal,
    },
    /// No settlement is refused any more.
    Unblocked,
    /// A session began.
    SessionBegan(Opened),
    /// A session ended, or did not begin.
    SessionEnded {
        /// How.
        end: SessionEnd,
        /// In words.
        detail: String,
        /// Attempts that came to nothing, in a row.
        failures: u32,
        /// The next attempt comes after this.
        wait: Duration,
    },
    /// The handler is of no help, and why; or it is again.
    Handler(Option<&'static str>),
}

/// What became of an entry, as the summary counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SettledKind {
    /// The work is done and committed.
    Done,
    /// It had been done before: acknowledged only.
    Skipped,
    /// It will be tried again.
    Retried,
    /// It is a dead letter.
    DeadLettered,
    /// It was handed back.
    Released,
}

impl SettledKind {
    /// The label of metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Retried => "retried",
            Self::DeadLettered => "deadLettered",
            Self::Released => "released",
        }
    }
}
