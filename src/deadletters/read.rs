//! The verbs that change nothing: ls, groups, show, export.

use std::io::{IsTerminal, Write};

use super::group::Groups;
use super::render::{Export, heads, row, row_json, whole};
use super::request::{Output, Selection};
use super::scan::Scan;
use super::{Desk, End, Error};

/// A line for each letter.
pub(super) async fn list(
    desk: &Desk,
    selection: &Selection,
    output: Output,
    out: &mut impl Write,
) -> Result<End, Error> {
    let width = width();
    let mut scan = Scan::begin(&desk.letters, &desk.owner, selection).await?;
    let mut any = false;
    while let Some(page) = scan.next().await? {
        for (id, letter) in page {
            match output {
                Output::Text if !any => writeln!(out, "{}\n{}", heads(), row(id, &letter, width))?,
                Output::Text => writeln!(out, "{}", row(id, &letter, width))?,
                Output::Json => writeln!(out, "{}", row_json(id, &letter))?,
            }
            any = true;
        }
        out.flush()?;
    }
    Ok(end(&scan, any))
}

/// A line for each kind of failure.
pub(super) async fn group(
    desk: &Desk,
    selection: &Selection,
    output: Output,
    out: &mut impl Write,
) -> Result<End, Error> {
    let mut groups = Groups::default();
    let mut scan = Scan::begin(&desk.letters, &desk.owner, selection).await?;
    while let Some(page) = scan.next().await? {
        for (id, letter) in page {
            groups.add(id, &letter);
        }
    }
    let lines = groups.lines();
    if output == Output::Text && !lines.is_empty() {
        writeln!(out, "{}", Groups::heads())?;
    }
    let width = width();
    for line in &lines {
        match output {
            Output::Text => writeln!(out, "{}", line.row(width))?,
            Output::Json => writeln!(out, "{}", json(line)?)?,
        }
    }
    out.flush()?;
    Ok(end(&scan, !lines.is_empty()))
}

/// Everything about some letters.
pub(super) async fn show(
    desk: &Desk,
    selection: &Selection,
    output: Output,
    out: &mut impl Write,
) -> Result<End, Error> {
    let mut scan = Scan::begin(&desk.letters, &desk.owner, selection).await?;
    let mut any = false;
    while let Some(page) = scan.next().await? {
        for (id, letter) in page {
            any = true;
            match output {
                Output::Text => writeln!(out, "{}", whole(id, &letter).join("\n"))?,
                Output::Json => writeln!(out, "{}", json(&Export::of(id, &letter))?)?,
            }
        }
    }
    out.flush()?;
    Ok(end(&scan, any))
}

/// A JSON object for each letter, nothing left out.
pub(super) async fn export(
    desk: &Desk,
    selection: &Selection,
    out: &mut impl Write,
) -> Result<End, Error> {
    let mut scan = Scan::begin(&desk.letters, &desk.owner, selection).await?;
    let mut any = false;
    while let Some(page) = scan.next().await? {
        for (id, letter) in page {
            writeln!(out, "{}", json(&Export::of(id, &letter))?)?;
            any = true;
        }
    }
    out.flush()?;
    Ok(end(&scan, any))
}

/// How a scan ended that saw `any` letter.
pub(super) fn end(scan: &Scan<'_>, any: bool) -> End {
    for id in scan.missing() {
        tracing::warn!(%id, "no such dead letter of this stage");
    }
    if scan.strangers() > 0 {
        tracing::warn!(
            entries = scan.strangers(),
            "entries of the stream are no dead letters and were left alone"
        );
    }
    if any { End::Done } else { End::NothingMatched }
}

/// One JSON object on one line.
pub(super) fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Output(error.into()))
}

/// The terminal's width; without a terminal no line is cut.
fn width() -> usize {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return usize::MAX;
    }
    rustix::termios::tcgetwinsize(&out)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
        .unwrap_or(usize::MAX)
}
