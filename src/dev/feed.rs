//! What goes on beside the engine of a local run: the input is added, then the stage is watched until it is idle.
//!
//! Input that was not added to its end is never passed over in silence.

use std::sync::Arc;
use std::time::Duration;

use super::input::{BadInput, Entries};
use crate::clock::Clock;
use crate::shutdown::Shutdown;
use crate::streams::redis::RedisBroker;
use crate::streams::{Broker, Error};

/// How often `--until-idle` looks, and how often it must find nothing.
const LOOKS_EVERY: Duration = Duration::from_millis(250);
const IDLE_LOOKS: u32 = 2;

/// An add that the server did not take is tried again after this long.
const ADDS_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Why the input was not added, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotFed {
    #[error("{problem}; {} added before it", were(*added, "entry", "entries"))]
    Input { problem: BadInput, added: u64 },
    #[error("the server takes no entry of the input ({} added before)", were(*added, "entry", "entries"))]
    Refused { source: Error, added: u64 },
    #[error(
        "{} added, the rest was not: the run was stopped",
        were(*added, "entry of the input", "entries of the input")
    )]
    Stopped { added: u64 },
}

/// Why an add loop ended early.
enum Halt {
    Input(BadInput),
    Refused(Error),
    Stopped,
}

fn were(count: u64, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one} was"),
        _ => format!("{count} {several} were"),
    }
}

/// Adds the input, then waits until the stage is idle where that is asked for, and has the run end.
///
/// An end of its own (bad input, idleness, a panic) is the order to drain.
pub(super) async fn accompany(
    broker: Arc<RedisBroker>,
    entries: Option<Entries>,
    until_idle: bool,
    shutdown: Shutdown,
    clock: Clock,
) -> Result<(), NotFed> {
    let stop = shutdown.drain.clone().drop_guard();
    if let Some(mut entries) = entries {
        feed(&broker, &mut entries, &shutdown, clock).await?;
    }
    if until_idle {
        tokio::select! {
            () = wait_until_idle(&broker, clock) => {}
            () = shutdown.drain.cancelled() => {}
        }
    } else {
        stop.disarm();
    }
    Ok(())
}

async fn feed(
    broker: &RedisBroker,
    entries: &mut Entries,
    shutdown: &Shutdown,
    clock: Clock,
) -> Result<(), NotFed> {
    let mut added = 0;
    let fed = tokio::select! {
        biased;
        () = shutdown.drain.cancelled() => Err(Halt::Stopped),
        fed = add_all(broker, entries, &mut added, clock) => fed,
    };
    fed.map_err(|halt| match halt {
        Halt::Input(problem) => NotFed::Input { problem, added },
        Halt::Refused(source) => NotFed::Refused { source, added },
        Halt::Stopped => NotFed::Stopped { added },
    })?;
    tracing::info!(added, "all of the input was added");
    Ok(())
}

async fn add_all(
    broker: &RedisBroker,
    entries: &mut Entries,
    added: &mut u64,
    clock: Clock,
) -> Result<(), Halt> {
    while let Some(fields) = entries.next().await.map_err(Halt::Input)? {
        // A Redis that is not there (yet) is waited for. An add whose reply was lost is made again: at least once.
        while let Err(error) = broker.add(&fields).await {
            match error {
                Error::Denied { .. } | Error::WrongType { .. } | Error::Protocol { .. } => {
                    return Err(Halt::Refused(error));
                }
                Error::Disconnected { .. }
                | Error::Unreachable { .. }
                | Error::AuthenticationFailed { .. }
                | Error::CredentialsUnreadable { .. }
                | Error::GroupMissing { .. }
                | Error::ReadOnly
                | Error::Loading { .. }
                | Error::Full => clock.until(clock.now() + ADDS_AGAIN_AFTER).await,
            }
        }
        *added += 1;
    }
    Ok(())
}

async fn wait_until_idle(broker: &RedisBroker, clock: Clock) {
    let mut idle = 0;
    while idle < IDLE_LOOKS {
        clock.until(clock.now() + LOOKS_EVERY).await;
        let seen = broker.backlog().await;
        idle = if seen.is_ok_and(|backlog| backlog.is_idle()) {
            idle + 1
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_told_in_the_right_number() {
        let stopped = |added| NotFed::Stopped { added }.to_string();
        assert_eq!(
            stopped(1),
            "1 entry of the input was added, the rest was not: the run was stopped"
        );
        assert_eq!(
            stopped(0),
            "0 entries of the input were added, the rest was not: the run was stopped"
        );
    }
}
