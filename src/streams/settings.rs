//! What a broker must know of a stage before it connects. Pure data.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConsumerName, EntryId, Keys, StreamKey};

/// One stage and one consumer, as a broker sees them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `host:port` of the server.
    pub address: String,
    /// The database's number.
    pub database: u32,
    /// User and password.
    pub credentials: Credentials,
    /// The limit of one connect attempt.
    pub connect_timeout: Duration,
    /// The limit of one command (beyond BLOCK for a blocking read).
    pub command_timeout: Duration,
    /// Every key of the stage.
    pub keys: Keys,
    /// This consumer.
    pub consumer: ConsumerName,
    /// Whether we may create the group.
    pub group_creation: GroupCreation,
    /// Where a group that we create starts.
    pub start_from: StartFrom,
    /// Where outputs go.
    pub output: Option<StreamKey>,
    /// The output stream is trimmed (approximately) to this many entries; 0 = never.
    pub output_max_length: u64,
    /// The dead-letter stream is trimmed (approximately) to this many entries; 0 = never.
    pub dead_max_length: u64,
    /// How long a committed key is remembered; `None` = no ledger.
    pub ledger_window: Option<Duration>,
}

/// Whether we may create the group (and the stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupCreation {
    /// Yes.
    IfMissing,
    /// No: the group is waited for.
    Never,
}

/// Where a group that we create starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFrom {
    /// At the first entry.
    Beginning,
    /// After the last entry.
    End,
    /// After this entry.
    After(EntryId),
}

/// User and password. In a pod they are files, read again at every connect, so that a rotation needs no restart.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Credentials {
    /// None: the default user without a password.
    #[default]
    None,
    /// Files that hold them.
    Files {
        /// The user's name; none = the default user.
        username: Option<PathBuf>,
        /// The password.
        password: PathBuf,
    },
    /// The words themselves: for a local run only, never written into a pod.
    #[serde(skip)]
    Inline {
        /// The user's name; none = the default user.
        username: Option<String>,
        /// The password.
        password: String,
    },
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Files { username, password } => f
                .debug_struct("Files")
                .field("username", username)
                .field("password", password)
                .finish(),
            Self::Inline { .. } => f.write_str("Inline(redacted)"),
        }
    }
}
