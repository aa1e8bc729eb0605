//! What a handler is given with an entry. Pure data.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::streams::{Entry, IdempotencyKey};

/// One run of the handler for one entry.
#[derive(Clone, Debug)]
pub struct Start {
    /// The entry.
    pub entry: Arc<Entry>,
    /// Its idempotency key.
    pub key: IdempotencyKey,
    /// Errors so far + 1.
    pub attempt: u32,
    /// Starts so far that ended in nothing + 1.
    pub deliveries: u32,
    /// When the engine gives the run up.
    pub deadline: Timestamp,
    /// The same, as a limit from now.
    pub timeout: Duration,
    /// Nothing else runs in this worker, or it is the entry's last allowed start: no reused connection.
    pub fresh: bool,
}
