//! The connections that wait for their next entry.
//!
//! The one used last is used next, so that the others grow old and go: a server closes idle connections after 5 s or more
//! (the shortest default in use), and one that it closes just as we write costs the entry a second POST.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use crate::clock::Clock;

/// How long a connection may wait: below the shortest keep-alive of common servers.
const KEEP_FOR: Duration = Duration::from_secs(4);

/// How often old connections are looked for, while there are any.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Idle connections, the one used last at the end.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    clock: Clock,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    connections: Vec<(Duration, Connection)>,
    is_swept: bool,
    is_closed: bool,
}

impl Pool {
    /// A pool that keeps at most `most` connections.
    pub(super) fn new(most: usize, clock: Clock) -> Self {
        Self {
            most,
            clock,
            idle: Mutex::default(),
        }
    }

    /// The connection used last, unless all have ended or grown old.
    pub(super) fn take(&self) -> Option<Connection> {
        loop {
            let (since, mut connection) = self.idle().connections.pop()?;
            if self.is_young(since) && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next entry.
    pub(super) fn keep(self: &Arc<Self>, mut connection: Connection) {
        if !connection.is_usable() {
            return;
        }
        let mut idle = self.idle();
        if idle.is_closed || idle.connections.len() >= self.most {
            return;
        }
        idle.connections.push((self.clock.now(), connection));
        if !idle.is_swept {
            idle.is_swept = true;
            let pool = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(SWEEP_EVERY).await;
                    match pool.upgrade() {
                        Some(pool) if pool.sweep() => {}
                        Some(_) | None => break,
                    }
                }
            });
        }
    }

    /// Drops all connections, and keeps none from now on.
    pub(super) fn close(&self) {
        let mut idle = self.idle();
        idle.is_closed = true;
        idle.connections.clear();
    }

    /// Drops what has grown old; whether anything is left to sweep.
    fn sweep(&self) -> bool {
        let mut idle = self.idle();
        idle.connections.retain(|(since, _)| self.is_young(*since));
        idle.is_swept = !idle.connections.is_empty();
        idle.is_swept
    }

    fn is_young(&self, since: Duration) -> bool {
        self.clock.now().saturating_sub(since) < KEEP_FOR
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Nothing under this lock leaves it half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
