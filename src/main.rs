//! The program: words to an order, the order to whoever carries it out, the end to an exit code.

use std::io::Write;
use std::process::ExitCode;

use streamstage::cli::{self, Command};
use streamstage::telemetry::{self, LogFormat};
use streamstage::{api, dev, printable};

/// Wrong use or a bad manifest.
const USAGE: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let invocation = match cli::parse_own() {
        Ok(invocation) => invocation,
        Err(error) => error.exit(),
    };
    let format = if invocation.log_json {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    if let Err(error) = telemetry::start(format, &invocation.log_filter) {
        report(&error);
        return USAGE.into();
    }
    match invocation.command {
        Command::Crd => print_crd(),
        Command::Dev(args) => dev::run(args).await,
        Command::Dlq(_) => ExitCode::FAILURE,
    }
}

fn print_crd() -> ExitCode {
    let printed = api::crd_yaml()
        .map_err(std::io::Error::other)
        .and_then(|yaml| std::io::stdout().write_all(yaml.as_bytes()));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints an error and what caused it, on one line of stderr.
fn report(error: &dyn std::error::Error) {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let line: Vec<String> = causes.map(ToString::to_string).collect();
    eprintln!("error: {}", printable::escaped(&line.join(": ")));
}
