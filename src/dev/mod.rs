//! The local run: a manifest in, the engine in the foreground, a summary out.
//!
//! Without `--redis` it has a redis-server of its own, never the manifest's: a laptop must not eat production.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::{DevArgs, DevRedis};
use crate::clock::Clock;
use crate::deadletters::request::Output;
use crate::engine::handler::exec::{ExecHandler, ExecSettings};
use crate::engine::handler::http::{HttpHandler, HttpSettings};
use crate::engine::observer::Health;
use crate::engine::{self, Identity, Summary, Surroundings};
use crate::manifest::{self, ManifestError};
use crate::manifest_file::{self, CannotRead};
use crate::printable::escaped;
use crate::serve::{self, CannotListen, Endpoints};
use crate::shutdown::Shutdown;
use crate::stage::{HandlerSpec, Stage};
use crate::streams::redis::RedisBroker;
use crate::streams::{Broker, ConsumerName, Credentials, NoPrefix};
use crate::worker_config::WorkerConfig;

mod ephemeral;
mod feed;
mod input;

use ephemeral::{EphemeralServer, NoServer};
use feed::{NotFed, accompany};
use input::{BadInput, Entries};

/// A bad manifest exits like a wrong use.
const USAGE: u8 = 2;

/// Why a local run failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Unreadable(#[from] CannotRead),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Server(#[from] NoServer),
    #[error(transparent)]
    Listen(#[from] CannotListen),
    #[error(transparent)]
    Input(#[from] BadInput),
    #[error(transparent)]
    NotFed(#[from] NotFed),
    #[error("adding the input broke off")]
    Feeder(#[source] tokio::task::JoinError),
    #[error(
        "spec.redis.auth names secrets, and --redis spec has none to put in their place: set REDIS_PASSWORD (and REDIS_USERNAME)"
    )]
    NoCredentials,
    #[error("cannot hear signals")]
    Signals(#[source] std::io::Error),
    #[error("the source stream's name leaves no room for derived keys")]
    Keys(#[from] NoPrefix),
    #[error("the handler's path cannot be asked for")]
    Path(#[from] engine::handler::http::InvalidPath),
    #[error(transparent)]
    Engine(#[from] engine::Failed),
    #[error("cannot print the summary")]
    Print(#[source] std::io::Error),
}

impl Failure {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unreadable(_) | Self::Manifest(_) | Self::NoCredentials => USAGE.into(),
            Self::Server(_)
            | Self::Listen(_)
            | Self::Input(_)
            | Self::NotFed(_)
            | Self::Feeder(_)
            | Self::Signals(_)
            | Self::Keys(_)
            | Self::Path(_)
            | Self::Engine(_)
            | Self::Print(_) => ExitCode::FAILURE,
        }
    }
}

/// Runs a stage until a signal, or until it is idle where that was asked for.
pub async fn run(args: DevArgs) -> ExitCode {
    let begun = read_manifest(&args.manifest).and_then(|stage| {
        let shutdown = Shutdown::on_signals().map_err(Failure::Signals)?;
        Ok((stage, shutdown))
    });
    let (stage, shutdown) = match begun {
        Ok(begun) => begun,
        Err(failure) => return fail(&failure),
    };
    let ran = Box::pin(run_stage(args, stage, shutdown.clone())).await;
    let aborted = shutdown.exit_code().map(ExitCode::from);
    match ran {
        Ok(()) => aborted.unwrap_or(ExitCode::SUCCESS),
        Err(failure) => {
            let code = fail(&failure);
            aborted.unwrap_or(code)
        }
    }
}

fn fail(failure: &Failure) -> ExitCode {
    let causes = std::iter::successors(Some(failure as &dyn std::error::Error), |e| e.source());
    let text: Vec<String> = causes.map(ToString::to_string).collect();
    for line in text.join(": ").lines() {
        eprintln!("error: {}", escaped(line));
    }
    failure.exit_code()
}

async fn run_stage(args: DevArgs, stage: Stage, shutdown: Shutdown) -> Result<(), Failure> {
    let clock = Clock::start();
    let entries = match &args.input {
        Some(input) => Some(Entries::open(input)?),
        None => None,
    };
    let (config, server) = aim(&stage, &args.redis, clock).await?;
    let identity = identity();
    let broker = Arc::new(RedisBroker::new(engine::settings(
        &config,
        identity.consumer.clone(),
    )?));
    let around = Surroundings {
        clock,
        registry: prometheus::Registry::new(),
        health: Arc::new(Health::default()),
        shutdown: shutdown.clone(),
    };
    if let Some(address) = args.listen {
        let bound = serve::serve(address, endpoints(&around), shutdown.abort.clone()).await?;
        tracing::info!(address = %bound, "serving /livez, /readyz and /metrics");
    }
    let companion = tokio::spawn(accompany(
        Arc::clone(&broker),
        entries,
        args.until_idle,
        shutdown.clone(),
        clock,
    ));
    let summary = Box::pin(work(config, Arc::clone(&broker), &identity, around)).await?;
    // It ends with the order to stop, which the worker has carried out.
    shutdown.drain.cancel();
    let fed = companion.await;
    if let Some(server) = server {
        tell_what_ends(&broker).await;
        server.end().await;
    }
    print(summary, args.output).map_err(Failure::Print)?;
    Ok(fed.map_err(Failure::Feeder)??)
}

fn read_manifest(path: &Path) -> Result<Stage, Failure> {
    Ok(manifest::parse(&manifest_file::read(path)?)?)
}

/// The config, aimed at the Redis that was asked for; a server of our own lives as long as what is returned.
async fn aim(
    stage: &Stage,
    redis: &DevRedis,
    clock: Clock,
) -> Result<(WorkerConfig, Option<EphemeralServer>), Failure> {
    let mut config = WorkerConfig::of(stage, Credentials::None);
    let mut server = None;
    match redis {
        DevRedis::Manifest(Credentials::None) if stage.redis.auth.is_some() => {
            return Err(Failure::NoCredentials);
        }
        DevRedis::Manifest(credentials) => config.redis.credentials = credentials.clone(),
        DevRedis::Url(url) => {
            config.redis.address.clone_from(&url.address);
            config.redis.database = url.database;
            config.redis.credentials = url.credentials.clone();
        }
        DevRedis::Ephemeral => {
            let own = EphemeralServer::start(clock).await?;
            config.redis.address = own.address().to_string();
            config.redis.database = 0;
            tracing::info!(
                address = config.redis.address,
                "started a redis-server for this run"
            );
            server = Some(own);
        }
    }
    Ok((config, server))
}

fn identity() -> Identity {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let consumer = ConsumerName::unique(&host, fastrand::u32(..));
    Identity {
        consumer,
        pod: host,
        image: None,
    }
}

fn endpoints(around: &Surroundings) -> Endpoints {
    let (live, ready) = (Arc::clone(&around.health), Arc::clone(&around.health));
    let clock = around.clock;
    Endpoints {
        registry: around.registry.clone(),
        live: Arc::new(move || live.is_live(clock.now())),
        ready: Arc::new(move || ready.is_ready()),
    }
}

async fn work(
    config: WorkerConfig,
    broker: Arc<RedisBroker>,
    identity: &Identity,
    around: Surroundings,
) -> Result<Summary, Failure> {
    let has_output = config.output.is_some();
    let concurrency = config.delivery.concurrency;
    let (namespace, stage) = (config.namespace.clone(), config.stage.clone());
    match config.handler.clone() {
        HandlerSpec::Http { port, path } => {
            let handler = HttpHandler::new(HttpSettings {
                host: "127.0.0.1".to_owned(),
                port,
                path,
                namespace,
                stage,
                source: config.source.stream.clone(),
                has_output,
                concurrency,
                clock: around.clock,
            })?;
            Ok(engine::run(config, broker, handler, identity, around).await?)
        }
        HandlerSpec::Exec { command } => {
            let settings = ExecSettings {
                command,
                concurrency,
                namespace,
                stage,
                has_output,
            };
            let handler = ExecHandler::new(settings);
            Ok(engine::run(config, broker, handler, identity, around).await?)
        }
    }
}

/// Says what a redis-server of our own takes with it.
async fn tell_what_ends(broker: &RedisBroker) {
    match broker.backlog().await {
        Ok(backlog) if backlog.is_idle() && backlog.dead_letters == 0 => {}
        Ok(backlog) => {
            let held = backlog.pending + backlog.delayed;
            let undone = match backlog.undelivered {
                Some(waiting) => counted(waiting + held, "undone entry", "undone entries"),
                None => format!("more than {held} undone entries"),
            };
            let letters = counted(backlog.dead_letters, "dead letter", "dead letters");
            tracing::warn!(
                "the redis-server of this run ends, and with it {undone} and {letters}: name a lasting one with --redis"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "the redis-server of this run ends; what is left in it could not be counted");
        }
    }
}

fn counted(count: u64, one: &str, several: &str) -> String {
    let noun = if count == 1 { one } else { several };
    format!("{count} {noun}")
}

fn print(summary: Summary, output: Output) -> std::io::Result<()> {
    let Summary {
        done,
        skipped,
        retried,
        dead_lettered,
        released,
        lost,
    } = summary;
    let mut out = std::io::stdout();
    match output {
        Output::Json => writeln!(
            out,
            "{}",
            serde_json::json!({
                "done": done, "skipped": skipped, "retried": retried,
                "deadLettered": dead_lettered, "released": released, "lost": lost,
            })
        ),
        Output::Text => writeln!(
            out,
            "done {done}, skipped {skipped}, retried {retried}, dead-lettered {dead_lettered}, \
             released {released}, lost {lost}"
        ),
    }
}
