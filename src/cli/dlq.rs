//! The flags of `streamstage dlq` and their help texts. What they mean is in `deadletters/request.rs`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Misuse;
use super::flags::Form;
use crate::deadletters::request::{Purge, Replay, Selection, Verb};
use crate::streams::EntryId;
use crate::streams::letter::REASONS;

/// List, group, show, replay, purge or export the dead letters of a stage
///
/// Exit codes: 0 done, 1 failed, 2 wrong use or bad manifest, 3 nothing matched.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  streamstage dlq ls -f stage.yaml --reason Poison
  streamstage dlq groups -f stage.yaml --redis redis://localhost:6379
  streamstage dlq show -f stage.yaml 1764585600000-0
  streamstage dlq replay -f stage.yaml --error-type Timeout --rate 50
  streamstage dlq purge -f stage.yaml --older-than 30d --yes")]
pub(super) struct Dlq {
    #[command(subcommand)]
    pub(super) verb: DlqVerb,
}

/// Whose dead letters
#[derive(Args, Debug)]
pub(super) struct Target {
    /// The stage's manifest (YAML); `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,

    /// The Redis to use in place of the manifest's: redis://[user[:password]@]host[:port][/database]. Without it, or
    /// as `spec`, it is the manifest's, with REDIS_USERNAME and REDIS_PASSWORD in place of its Secrets
    #[arg(long, value_name = "URL|spec")]
    pub(super) redis: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum DlqVerb {
    /// One line for each dead letter, oldest first
    ///
    /// Example: streamstage dlq ls -f stage.yaml --reason AttemptsExhausted --newer-than 1h
    Ls(Listing),
    /// Count dead letters by reason, error type and error text (words with digits in them count as equal)
    ///
    /// Example: streamstage dlq groups -f stage.yaml
    Groups(Listing),
    /// Everything about some dead letters: context, error, traceback and the entry's fields
    ///
    /// Example: streamstage dlq show -f stage.yaml 1764585600000-0
    Show(ShowFlags),
    /// Give dead letters back to the stage, with fresh attempts and their original fields
    ///
    /// Each moves in one atomic step, so an interrupted replay leaves every one in exactly one place: run it again for the
    /// rest. Dead letters that arrive meanwhile are left alone.
    ///
    /// Example: streamstage dlq replay -f stage.yaml --error-type Timeout --rate 50
    Replay(ReplayFlags),
    /// Delete dead letters for good
    ///
    /// Asks first, unless ids are named or --yes is given.
    ///
    /// Example: streamstage dlq purge -f stage.yaml --older-than 30d --yes
    Purge(PurgeFlags),
    /// Print dead letters as JSON, one object a line, with nothing left out
    ///
    /// `fields` is a list of [name, value]. What is not UTF-8 is written {"base64": "..."}.
    ///
    /// Example: streamstage dlq export -f stage.yaml > letters.ndjson
    Export(ExportFlags),
}

#[derive(Args, Debug)]
pub(super) struct Listing {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    which: Which,
    /// How it is printed; json is one object a line
    #[arg(
        short,
        long,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text"
    )]
    output: Form,
}

#[derive(Args, Debug)]
pub(super) struct ShowFlags {
    #[command(flatten)]
    target: Target,
    /// Ids of dead letters
    #[arg(required = true, value_name = "ID")]
    ids: Vec<EntryId>,
    /// How it is printed; json is one object a line, as `dlq export` prints it
    #[arg(
        short,
        long,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text"
    )]
    output: Form,
}

#[derive(Args, Debug)]
pub(super) struct ReplayFlags {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    which: Which,
    /// All of the stage's
    #[arg(long)]
    all: bool,
    /// Run it even if the ledger says that the same work was committed before
    #[arg(long)]
    force: bool,
    /// Count what would be replayed, change nothing
    #[arg(long)]
    dry_run: bool,
    /// At most N a second; as fast as Redis takes them without it
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<NonZeroU32>,
    /// How the summary is printed
    #[arg(
        short,
        long,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text"
    )]
    output: Form,
}

#[derive(Args, Debug)]
pub(super) struct PurgeFlags {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    which: Which,
    /// All of the stage's
    #[arg(long)]
    all: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Count what would be deleted, change nothing
    #[arg(long)]
    dry_run: bool,
    /// How the summary is printed
    #[arg(
        short,
        long,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text"
    )]
    output: Form,
}

#[derive(Args, Debug)]
pub(super) struct ExportFlags {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    which: Which,
}

/// Which dead letters; several filters must all hold
#[derive(Args, Debug)]
pub(super) struct Which {
    /// Ids of dead letters
    #[arg(value_name = "ID")]
    ids: Vec<EntryId>,
    /// Given up for this reason
    #[arg(long, value_name = "REASON", value_parser = REASONS)]
    reason: Option<String>,
    /// Last failed with this error type, such as Timeout
    #[arg(long, value_name = "TYPE")]
    error_type: Option<String>,
    /// Among the dead letters for longer than this, such as 90s, 15m, 12h or 30d
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<Duration>,
    /// Among the dead letters for less than this
    #[arg(long, value_name = "AGE", value_parser = age)]
    newer_than: Option<Duration>,
    /// Only the oldest N of them
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<u64>,
}

impl DlqVerb {
    /// The verb's own word.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Ls(_) => "ls",
            Self::Groups(_) => "groups",
            Self::Show(_) => "show",
            Self::Replay(_) => "replay",
            Self::Purge(_) => "purge",
            Self::Export(_) => "export",
        }
    }

    /// The order, and whose letters it is for.
    pub(super) fn read(self) -> Result<(Verb, Target), Misuse> {
        Ok(match self {
            Self::Ls(flags) => {
                let (selection, output) = (flags.which.into(), flags.output.into());
                (Verb::List { selection, output }, flags.target)
            }
            Self::Groups(flags) => {
                let (selection, output) = (flags.which.into(), flags.output.into());
                (Verb::Group { selection, output }, flags.target)
            }
            Self::Show(flags) => {
                let selection = Selection {
                    ids: flags.ids.into_iter().collect(),
                    ..Selection::default()
                };
                let output = flags.output.into();
                (Verb::Show { selection, output }, flags.target)
            }
            Self::Replay(flags) => flags.read()?,
            Self::Purge(flags) => flags.read()?,
            Self::Export(flags) => {
                let selection = flags.which.into();
                (Verb::Export { selection }, flags.target)
            }
        })
    }
}

impl ReplayFlags {
    fn read(self) -> Result<(Verb, Target), Misuse> {
        let verb = Verb::Replay {
            selection: self.which.deliberate(self.all)?,
            replay: Replay {
                force: self.force,
                dry_run: self.dry_run,
                rate: self.rate,
            },
            output: self.output.into(),
        };
        Ok((verb, self.target))
    }
}

impl PurgeFlags {
    fn read(self) -> Result<(Verb, Target), Misuse> {
        let purge = Purge {
            confirmed: self.yes || !self.which.ids.is_empty(),
            dry_run: self.dry_run,
        };
        if self.target.file.as_os_str() == "-" && !purge.confirmed && !purge.dry_run {
            return Err(Misuse::new(
                "-f - leaves no standard input to confirm a purge on: add --yes",
            ));
        }
        let verb = Verb::Purge {
            selection: self.which.deliberate(self.all)?,
            purge,
            output: self.output.into(),
        };
        Ok((verb, self.target))
    }
}

impl Which {
    /// The selection of a verb that changes something: never everything by omission.
    fn deliberate(self, all: bool) -> Result<Selection, Misuse> {
        let selection = Selection::from(self);
        let narrowed = Selection {
            limit: None,
            ..selection.clone()
        } != Selection::default();
        match (all, narrowed) {
            (true, true) => Err(Misuse::new(
                "--all goes with no id and no filter: leave one out",
            )),
            (false, false) => Err(Misuse::new(
                "say which dead letters: ids, --reason, --error-type, --older-than, --newer-than, or --all",
            )),
            (true, false) | (false, true) => Ok(selection),
        }
    }
}

impl From<Which> for Selection {
    fn from(which: Which) -> Self {
        Self {
            ids: which.ids.into_iter().collect(),
            reason: which.reason,
            error_type: which.error_type,
            older_than: which.older_than,
            newer_than: which.newer_than,
            limit: which.limit,
        }
    }
}

fn rate(text: &str) -> Result<NonZeroU32, &'static str> {
    text.parse()
        .map_err(|_| "write a whole number from 1, or leave --rate out to go as fast as Redis does")
}

fn limit(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .ok()
        .filter(|limit| *limit > 0)
        .ok_or("write a whole number from 1, or leave --limit out for all of them")
}

/// Reads an age: a whole number and one of `s`, `m`, `h`, `d`.
fn age(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "write a whole number and a unit, such as 90s, 15m, 12h or 30d";
    let (number, unit) = text
        .char_indices()
        .next_back()
        .and_then(|(at, _)| text.split_at_checked(at))
        .ok_or(WRONG)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(WRONG),
    };
    let number = number
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| number.parse::<u64>().ok())
        .flatten()
        .ok_or(WRONG)?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or(WRONG)
}
