//! The command line: every flag and every environment variable of `streamstage`.
//!
//! [`parse`] turns words into an [`Invocation`]; nothing else in the crate reads arguments or the environment. It opens
//! nothing and starts nothing. The flags with their help texts are in `cli/`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::deadletters::request::{Output, Request, Server};
use crate::redis_url::RedisUrl;
use crate::streams::Credentials;

mod dlq;
mod flags;

use flags::{Flags, Order};

/// The user's name at the manifest's Redis, in place of its Secret.
const USERNAME_VARIABLE: &str = "REDIS_USERNAME";

/// The password at the manifest's Redis, in place of its Secret.
const PASSWORD_VARIABLE: &str = "REDIS_PASSWORD";

/// One call of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Log lines are JSON.
    pub log_json: bool,
    /// Which log lines are wanted.
    pub log_filter: String,
    /// What to do.
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the CRD.
    Crd,
    /// Run a stage here, in the foreground.
    Dev(DevArgs),
    /// Work on a stage's dead letters.
    Dlq(Request),
}

/// A local run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevArgs {
    /// The file with the stage's manifest.
    pub manifest: PathBuf,
    /// Where Redis is.
    pub redis: DevRedis,
    /// Where entries to add come from: NDJSON objects.
    pub input: Option<Input>,
    /// End as soon as backlog, pending and delayed are all 0.
    pub until_idle: bool,
    /// Where `/livez`, `/readyz` and `/metrics` are served.
    pub listen: Option<SocketAddr>,
    /// How the summary is printed.
    pub output: Output,
}

/// The Redis of a local run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevRedis {
    /// A redis-server of its own, gone with it.
    Ephemeral,
    /// At this URL, whatever the manifest says.
    Url(RedisUrl),
    /// Where the manifest says, with these credentials in place of its Secrets.
    Manifest(Credentials),
}

/// Where entries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// Reads the words after the program's name, and the variables of `environment`.
///
/// # Errors
/// What clap says: a wrong use, or a text that was asked for (`--help`, `--version`).
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Invocation, clap::Error> {
    let flags = Flags::try_parse_from(words)?;
    let command = match flags.order {
        Order::Crd => Command::Crd,
        Order::Dev(dev) => {
            let args = dev.read(&environment);
            Command::Dev(args.map_err(|misuse| misuse.at(&["dev"]))?)
        }
        Order::Dlq(dlq) => {
            let verb = dlq.verb.name();
            let request = dlq.read(&environment);
            Command::Dlq(request.map_err(|misuse| misuse.at(&["dlq", verb]))?)
        }
    };
    Ok(Invocation {
        log_json: flags.log_format == flags::LogForm::Json,
        log_filter: flags.log_level,
        command,
    })
}

/// Reads this process's own words and variables.
///
/// # Errors
/// As [`parse`].
#[allow(
    clippy::disallowed_methods,
    reason = "this file is the one that may ask for variables"
)]
pub fn parse_own() -> Result<Invocation, clap::Error> {
    parse(std::env::args_os(), |name| std::env::var_os(name))
}

/// A wrong use that clap itself does not see.
#[derive(Debug)]
struct Misuse(String);

impl Misuse {
    fn new(message: impl std::fmt::Display) -> Self {
        Self(message.to_string())
    }

    /// Told with the usage of the subcommand at `path`.
    fn at(self, path: &[&str]) -> clap::Error {
        let mut command = Flags::command();
        command.build();
        for name in path {
            if let Some(below) = command.find_subcommand(name).cloned() {
                command = below;
            }
        }
        command.error(ErrorKind::ValueValidation, self.0)
    }
}

/// The value of `--redis`. Not a value parser of clap's: those repeat a bad value, and with it the password.
fn redis_url(text: &str) -> Result<RedisUrl, Misuse> {
    RedisUrl::parse(text).map_err(|error| Misuse::new(format_args!("--redis: {error}")))
}

/// What the environment gives in place of a manifest's Secrets.
fn credentials(environment: &impl Fn(&str) -> Option<OsString>) -> Result<Credentials, Misuse> {
    let read = |name: &str| {
        environment(name)
            .filter(|value| !value.is_empty())
            .map(|value| {
                value
                    .into_string()
                    .map_err(|_| Misuse::new(format_args!("{name} must be UTF-8")))
            })
            .transpose()
    };
    match (read(USERNAME_VARIABLE)?, read(PASSWORD_VARIABLE)?) {
        (None, None) => Ok(Credentials::None),
        (Some(_), None) => Err(Misuse::new(format_args!(
            "{USERNAME_VARIABLE} is set, and {PASSWORD_VARIABLE} is not: set both"
        ))),
        (username, Some(password)) => Ok(Credentials::Inline { username, password }),
    }
}

impl flags::Dev {
    fn read(self, environment: &impl Fn(&str) -> Option<OsString>) -> Result<DevArgs, Misuse> {
        let is_stdin = |path: &PathBuf| path.as_os_str() == "-";
        if is_stdin(&self.file) && self.input.as_ref().is_some_and(is_stdin) {
            return Err(Misuse::new(
                "-f - and --input -: only one of them can be standard input",
            ));
        }
        let redis = match self.redis.as_deref() {
            None => DevRedis::Ephemeral,
            Some("spec") => DevRedis::Manifest(credentials(environment)?),
            Some(url) => DevRedis::Url(redis_url(url)?),
        };
        Ok(DevArgs {
            manifest: self.file,
            redis,
            input: self.input.map(|path| {
                if is_stdin(&path) {
                    Input::Stdin
                } else {
                    Input::File(path)
                }
            }),
            until_idle: self.until_idle,
            listen: self.listen,
            output: self.output.into(),
        })
    }
}

impl dlq::Dlq {
    fn read(self, environment: &impl Fn(&str) -> Option<OsString>) -> Result<Request, Misuse> {
        let (verb, target) = self.verb.read()?;
        let server = match target.redis.as_deref() {
            None | Some("spec") => Server::Manifest(credentials(environment)?),
            Some(url) => Server::Url(redis_url(url)?),
        };
        Ok(Request {
            manifest: target.file,
            server,
            verb,
        })
    }
}

#[cfg(test)]
mod tests;
