//! What is asked of the dead letters: which stage, which letters, what to do with them.
//!
//! Pure. Filled by `cli.rs`; carried out by the other files here.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::redis_url::RedisUrl;
use crate::streams::{Credentials, EntryId};

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The file with the stage's manifest.
    pub manifest: PathBuf,
    /// Where its Redis is.
    pub server: Server,
    /// What to do.
    pub verb: Verb,
}

/// Where a stage's Redis is, seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// At this URL, whatever the manifest says.
    Url(RedisUrl),
    /// Where the manifest says, with these credentials in place of its Secrets.
    Manifest(Credentials),
}

/// What to do with the letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A line for each.
    List {
        /// Which.
        selection: Selection,
        /// How it is printed.
        output: Output,
    },
    /// A line for each kind of failure.
    Group {
        /// Which.
        selection: Selection,
        /// How it is printed.
        output: Output,
    },
    /// Everything about some.
    Show {
        /// Which: by their ids.
        selection: Selection,
        /// How it is printed.
        output: Output,
    },
    /// Back to the stage.
    Replay {
        /// Which.
        selection: Selection,
        /// How.
        replay: Replay,
        /// How the summary is printed.
        output: Output,
    },
    /// Away for good.
    Purge {
        /// Which.
        selection: Selection,
        /// How.
        purge: Purge,
        /// How the summary is printed.
        output: Output,
    },
    /// A JSON object a line, nothing left out.
    Export {
        /// Which.
        selection: Selection,
    },
}

impl Verb {
    /// Whether it ends with a summary of what it changed, or would change.
    pub fn has_summary(&self) -> bool {
        match self {
            Self::Replay { .. } | Self::Purge { .. } => true,
            Self::List { .. } | Self::Group { .. } | Self::Show { .. } | Self::Export { .. } => {
                false
            }
        }
    }
}

/// How letters are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The ledger is not asked.
    pub force: bool,
    /// Only count.
    pub dry_run: bool,
    /// At most this many a second.
    pub rate: Option<NonZeroU32>,
}

/// How letters are purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The user has said yes beforehand.
    pub confirmed: bool,
    /// Only count.
    pub dry_run: bool,
}

/// Which letters of the stage are meant: those that pass every filter given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those with these ids; empty = any.
    pub ids: BTreeSet<EntryId>,
    /// Those given up for this reason.
    pub reason: Option<String>,
    /// Those whose last error was of this type.
    pub error_type: Option<String>,
    /// Those that lie there for longer than this.
    pub older_than: Option<Duration>,
    /// Those that lie there for less than this.
    pub newer_than: Option<Duration>,
    /// The oldest so many of them.
    pub limit: Option<u64>,
}

/// For whom a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// People.
    Text,
    /// Programs: one JSON object a line.
    Json,
}
