//! The flags and their help texts, as clap reads them; those of `dlq` are in `dlq.rs`. What they mean is in `cli.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::dlq::Dlq;
use crate::deadletters::request::Output;

/// Redis Streams consumers that are correct: durable retries, dead letters with context, and reclaim of what the dead
/// left behind.
///
/// A stage is a `StreamStage` manifest: a stream, a consumer group, a handler in any language, and their policies.
#[derive(Debug, Parser)]
#[command(
    name = "streamstage",
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done, 1 failed, 2 wrong use or bad manifest, 3 nothing matched (dlq), 128 + signal when ended by a second signal (dev)."
)]
pub(super) struct Flags {
    /// How log lines on stderr look
    #[arg(
        long,
        global = true,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text"
    )]
    pub(super) log_format: LogForm,

    /// Which log lines are written: error, warn, info, debug, trace, or pairs such as streamstage=debug,redis=warn
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "STREAMSTAGE_LOG",
        default_value = "info"
    )]
    pub(super) log_level: String,

    #[command(subcommand)]
    pub(super) order: Order,
}

#[derive(Debug, Subcommand)]
pub(super) enum Order {
    /// Print the CustomResourceDefinition of StreamStage as YAML
    ///
    /// Example: streamstage crd | kubectl apply --server-side -f -
    Crd,
    Dev(Dev),
    Dlq(Dlq),
}

/// Run a stage here, in the foreground, without a cluster
///
/// Without --redis, a redis-server of its own is started on a free port and ends with the run: the manifest's Redis is
/// never touched unless asked for. The first SIGINT, SIGTERM or SIGHUP drains, the second aborts. Logs go to stderr, the summary
/// to stdout.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  streamstage dev -f stage.yaml --input entries.ndjson --until-idle
  streamstage dev -f stage.yaml --redis redis://localhost:6379/1 --listen 127.0.0.1:9300
  REDIS_PASSWORD=... streamstage dev -f stage.yaml --redis spec")]
pub(super) struct Dev {
    /// The stage's manifest (YAML); `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,

    /// A Redis to use: redis://[user[:password]@]host[:port][/database] replaces what the manifest says, `spec` is what
    /// the manifest says, with REDIS_USERNAME and REDIS_PASSWORD in place of its Secrets
    #[arg(long, value_name = "URL|spec")]
    pub(super) redis: Option<String>,

    /// Add these entries to the source stream: one JSON object of fields a line; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub(super) input: Option<PathBuf>,

    /// End with exit code 0 once nothing is undelivered, pending or delayed
    #[arg(long)]
    pub(super) until_idle: bool,

    /// Serve /livez, /readyz and /metrics here, such as 127.0.0.1:9300; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    pub(super) listen: Option<SocketAddr>,

    /// How the summary is printed; json is one object on the last line
    #[arg(
        short,
        long,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text"
    )]
    pub(super) output: Form,
}

/// Reads an address to listen at. Names are not looked up.
fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text
            .rsplit(':')
            .next()
            .and_then(|port| port.parse::<u16>().ok());
        let port = port.unwrap_or(9300);
        format!("write an IP address and a port, such as 127.0.0.1:{port} or [::]:{port}")
    })
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogForm {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// How a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For people
    Text,
    /// For programs
    Json,
}

impl From<Form> for Output {
    fn from(form: Form) -> Self {
        match form {
            Form::Text => Self::Text,
            Form::Json => Self::Json,
        }
    }
}
