//! The dead letters of a stage: listed, grouped, shown, replayed, purged, exported.
//!
//! [`run`] opens the stage and its stream; what the verbs do is in `read.rs` (they change nothing) and `change.rs`. What is
//! decided about a letter is in the pure files beside them: `select`, `replay`, `render`, `group`. A letter's form is in
//! `streams/letter.rs`. No letter is held in memory beyond the page it came in.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::manifest::{self, ManifestError};
use crate::manifest_file::{self, CannotRead};
use crate::printable::escaped;
use crate::stage::Stage;
use crate::streams::redis::Target;
use crate::streams::redis::dead_letters::DeadLetters;
use crate::streams::{self, Credentials};

mod change;
mod group;
mod read;
mod render;
mod replay;
pub mod request;
mod scan;
mod select;

use request::{Request, Server, Verb};
use select::Owner;

/// How an order ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it was done.
    Done,
    /// No letter matched.
    NothingMatched,
    /// It stopped half-way, or some letters could not be replayed: what remains is where it was.
    Incomplete,
}

/// Why an order failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest cannot be read.
    #[error(transparent)]
    ManifestUnreadable(#[from] CannotRead),
    /// The manifest is no valid stage.
    #[error("{} is not a valid stage", manifest_file::name(path))]
    ManifestInvalid {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ManifestError,
    },
    /// The manifest names a Secret, and there is no password in its place.
    #[error(
        "the manifest takes the Redis password from a Secret: set REDIS_PASSWORD, or give --redis"
    )]
    PasswordMissing,
    /// A purge was not confirmed.
    #[error("nothing was deleted: the stage's name was not typed; --yes goes without asking")]
    NotConfirmed,
    /// Redis did not do it.
    #[error("Redis failed")]
    Redis(#[from] streams::Error),
    /// The answer cannot be printed, or signals not heard.
    #[error("cannot print the answer")]
    Output(#[from] io::Error),
}

impl Error {
    /// Whether the user can mend it in the words of the order, or in the manifest.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::ManifestUnreadable(_)
            | Self::ManifestInvalid { .. }
            | Self::PasswordMissing
            | Self::NotConfirmed => true,
            Self::Redis(_) | Self::Output(_) => false,
        }
    }
}

/// An open dead-letter stream, and whose letters of it are meant.
struct Desk {
    stage: Stage,
    /// The server as people name it: `host:port/database`.
    server: String,
    owner: Owner,
    letters: DeadLetters,
}

impl Desk {
    fn nothing_matched(&self) -> String {
        format!(
            "no dead letter matches (stage {}/{}, stream {} at {})",
            escaped(&self.stage.namespace),
            escaped(&self.stage.name),
            escaped(self.stage.keys().dead.as_str()),
            escaped(&self.server),
        )
    }
}

/// Carries out an order; answers go to stdout, warnings to the log.
pub async fn run(request: Request) -> Result<End, Error> {
    let desk = open(&request).await?;
    let out = &mut io::BufWriter::new(io::stdout());
    let done = match &request.verb {
        Verb::List { selection, output } => read::list(&desk, selection, *output, out).await,
        Verb::Group { selection, output } => read::group(&desk, selection, *output, out).await,
        Verb::Show { selection, output } => read::show(&desk, selection, *output, out).await,
        Verb::Export { selection } => read::export(&desk, selection, out).await,
        Verb::Replay {
            selection,
            replay,
            output,
        } => change::replay(&desk, selection, *replay, *output, out).await,
        Verb::Purge {
            selection,
            purge,
            output,
        } => change::purge(&desk, selection, *purge, *output, out).await,
    };
    match done {
        // Whoever read our output has seen enough, as `head` does.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(End::Done),
        Ok(End::NothingMatched) if !request.verb.has_summary() => {
            writeln!(io::stderr(), "{}", desk.nothing_matched())?;
            Ok(End::NothingMatched)
        }
        done => done,
    }
}

async fn open(request: &Request) -> Result<Desk, Error> {
    let path = request.manifest.clone();
    let text = manifest_file::read(&path)?;
    let stage = manifest::parse(&text).map_err(|source| Error::ManifestInvalid { path, source })?;
    let target = target(&stage, &request.server)?;
    let keys = stage.keys();
    let owner = Owner {
        stream: keys.source.clone(),
        group: keys.group.clone(),
    };
    let letters = DeadLetters::connect(&target, keys).await?;
    Ok(Desk {
        stage,
        server: format!("{}/{}", target.address, target.database),
        owner,
        letters,
    })
}

/// Where to connect. Timeouts are the stage's own.
fn target(stage: &Stage, server: &Server) -> Result<Target, Error> {
    let spec = &stage.redis;
    let (address, database, credentials) = match server {
        Server::Url(url) => (url.address.clone(), url.database, url.credentials.clone()),
        Server::Manifest(Credentials::None) if spec.auth.is_some() => {
            return Err(Error::PasswordMissing);
        }
        Server::Manifest(credentials) => (
            spec.addresses.first().cloned().unwrap_or_default(),
            spec.database,
            credentials.clone(),
        ),
    };
    Ok(Target {
        address,
        database,
        credentials,
        connect_timeout: spec.connect_timeout,
        command_timeout: spec.command_timeout,
    })
}
