//! The verbs that change something: replay and purge.
//!
//! Each letter moves or goes in one step of its own, so an end at any moment (a signal, a kill, a lost connection) leaves every
//! letter in exactly one place. Letters that arrive meanwhile are left alone.

use std::io::Write;

use serde::Serialize;

use super::read::{end, json};
use super::replay::{Pace, meta};
use super::request::{Output, Purge, Replay, Selection};
use super::scan::Scan;
use super::{Desk, End, Error};
use crate::clock::Clock;
use crate::printable::escaped;
use crate::shutdown::Shutdown;
use crate::streams::redis::dead_letters::Replayed;
use crate::streams::{EntryId, Letter};

/// A person waiting is told so often how far it came.
const TELL_EVERY: u64 = 1_000;

/// How far a replay or a purge came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    /// Letters that matched so far.
    matched: u64,
    /// Letters replayed or deleted.
    done: u64,
    /// Letters that somebody else had taken meanwhile.
    gone: u64,
    /// Letters that cannot be replayed: they stay.
    refused: u64,
    /// Nothing was to be changed.
    dry_run: bool,
    /// A signal ended it before all were looked at.
    interrupted: bool,
}

/// A summary for programs.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    progress: Progress,
    /// `host:port/database`.
    server: &'a str,
}

/// Gives letters back to the stage.
pub(super) async fn replay(
    desk: &Desk,
    selection: &Selection,
    order: Replay,
    output: Output,
    out: &mut impl Write,
) -> Result<End, Error> {
    let mut progress = Progress {
        dry_run: order.dry_run,
        ..Progress::default()
    };
    let went = replay_all(desk, selection, order, &mut progress).await;
    tell(
        desk,
        progress,
        ["replayed", "would be replayed"],
        output,
        out,
    )?;
    went.map(|end| progress.rate(end))
}

async fn replay_all(
    desk: &Desk,
    selection: &Selection,
    order: Replay,
    progress: &mut Progress,
) -> Result<End, Error> {
    let shutdown = Shutdown::on_signals()?;
    let clock = Clock::start();
    let mut pace = Pace::from(order.rate, clock.now());
    let mut scan = Scan::begin(&desk.letters, &desk.owner, selection).await?;
    while let Some(page) = scan.next().await? {
        for (id, letter) in page {
            if !order.dry_run {
                let due = pace.next(clock.now());
                tokio::select! {
                    biased;
                    () = shutdown.drain.cancelled() => {
                        progress.interrupted = true;
                        return Ok(End::Incomplete);
                    }
                    () = clock.until(due) => {}
                }
            }
            progress.matched += 1;
            replay_one(desk, id, &letter, order, progress).await?;
        }
    }
    Ok(end(&scan, progress.matched > 0))
}

async fn replay_one(
    desk: &Desk,
    id: EntryId,
    letter: &Letter,
    order: Replay,
    progress: &mut Progress,
) -> Result<(), Error> {
    let meta = match meta(id, letter, order.force) {
        Ok(meta) => meta,
        Err(reason) => {
            tracing::warn!(%id, %reason, "this dead letter cannot be replayed");
            progress.refused += 1;
            return Ok(());
        }
    };
    if order.dry_run {
        progress.done += 1;
        return Ok(());
    }
    match desk.letters.replay(id, &meta).await? {
        Replayed::Moved => progress.done += 1,
        Replayed::Gone => progress.gone += 1,
    }
    if progress.done.is_multiple_of(TELL_EVERY) {
        tracing::info!(replayed = progress.done, "replaying");
    }
    Ok(())
}

/// Deletes letters.
pub(super) async fn purge(
    desk: &Desk,
    selection: &Selection,
    order: Purge,
    output: Output,
    out: &mut impl Write,
) -> Result<End, Error> {
    if !order.confirmed && !order.dry_run {
        let mut counted = Progress::default();
        purge_all(desk, selection, Deletion::Count, &mut counted).await?;
        if counted.matched == 0 {
            tell(desk, counted, ["deleted", ""], output, out)?;
            return Ok(End::NothingMatched);
        }
        confirm(desk, counted.matched)?;
    }
    let mut progress = Progress {
        dry_run: order.dry_run,
        ..Progress::default()
    };
    let deletion = if order.dry_run {
        Deletion::Count
    } else {
        Deletion::Delete(Shutdown::on_signals()?)
    };
    let went = purge_all(desk, selection, deletion, &mut progress).await;
    tell(desk, progress, ["deleted", "would be deleted"], output, out)?;
    went.map(|end| progress.rate(end))
}

/// What a purge does with what it finds.
enum Deletion {
    Count,
    Delete(Shutdown),
}

async fn purge_all(
    desk: &Desk,
    selection: &Selection,
    deletion: Deletion,
    progress: &mut Progress,
) -> Result<End, Error> {
    let mut scan = Scan::begin(&desk.letters, &desk.owner, selection).await?;
    while let Some(page) = scan.next().await? {
        let ids: Vec<EntryId> = page.iter().map(|(id, _)| *id).collect();
        let found = u64::try_from(ids.len()).unwrap_or(u64::MAX);
        let deleted = match &deletion {
            Deletion::Count => found,
            Deletion::Delete(shutdown) if shutdown.drain.is_cancelled() => {
                progress.interrupted = true;
                return Ok(End::Incomplete);
            }
            Deletion::Delete(_) => desk.letters.delete(&ids).await?,
        };
        progress.matched += found;
        progress.done += deleted;
        progress.gone += found.saturating_sub(deleted);
    }
    Ok(end(&scan, progress.matched > 0))
}

/// Has the stage's name typed by whoever wants `count` letters gone.
fn confirm(desk: &Desk, count: u64) -> Result<(), Error> {
    let name = &desk.stage.name;
    write!(
        std::io::stderr(),
        "{} of {}/{} at {} will be deleted for good. Type the stage's name to go on: ",
        letters(count),
        escaped(&desk.stage.namespace),
        escaped(name),
        escaped(&desk.server),
    )?;
    let mut typed = String::new();
    std::io::stdin().read_line(&mut typed)?;
    if typed.trim() == name {
        Ok(())
    } else {
        Err(Error::NotConfirmed)
    }
}

impl Progress {
    /// The end of an order that came this far.
    fn rate(self, end: End) -> End {
        match end {
            End::Done if self.refused > 0 => End::Incomplete,
            End::Done | End::NothingMatched | End::Incomplete => end,
        }
    }
}

/// Prints how far it came; `verbs` say what was done, and what would be.
fn tell(
    desk: &Desk,
    progress: Progress,
    verbs: [&str; 2],
    output: Output,
    out: &mut impl Write,
) -> Result<(), Error> {
    if output == Output::Json {
        let server = &desk.server;
        writeln!(out, "{}", json(&Summary { progress, server })?)?;
        return Ok(out.flush()?);
    }
    let [done, would] = verbs;
    let verb = if progress.dry_run { would } else { done };
    let server = escaped(&desk.server);
    write!(out, "{server}: {} {verb}", letters(progress.done))?;
    if progress.gone > 0 {
        write!(out, ", {} gone already", progress.gone)?;
    }
    if progress.refused > 0 {
        write!(out, ", {} cannot be and stay", progress.refused)?;
    }
    if progress.interrupted {
        write!(out, "; interrupted: run it again for the rest")?;
    }
    writeln!(out)?;
    Ok(out.flush()?)
}

fn letters(count: u64) -> String {
    match count {
        1 => "1 dead letter".to_owned(),
        several => format!("{several} dead letters"),
    }
}
