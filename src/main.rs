//! The program: words to an order, the order to whoever carries it out, the end to an exit code.

use std::io::Write;
use std::process::ExitCode;

use streamstage::cli::{self, Command};
use streamstage::deadletters::{self, End};
use streamstage::telemetry::{self, LogFormat};
use streamstage::{api, dev, printable};

/// Something could not be done, or not all of it.
const FAILURE: u8 = 1;
/// Wrong use or a bad manifest.
const USAGE: u8 = 2;
/// There was nothing to do it to.
const NOTHING_MATCHED: u8 = 3;

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
        return failed(&error, USAGE);
    }
    match invocation.command {
        Command::Crd => {
            print_crd().map_or_else(|error| failed(&error, FAILURE), |()| ExitCode::SUCCESS)
        }
        Command::Dev(args) => dev::run(args).await,
        Command::Dlq(request) => match deadletters::run(request).await {
            Ok(End::Done) => ExitCode::SUCCESS,
            Ok(End::Incomplete) => FAILURE.into(),
            Ok(End::NothingMatched) => NOTHING_MATCHED.into(),
            Err(error) if error.is_usage() => failed(&error, USAGE),
            Err(error) => failed(&error, FAILURE),
        },
    }
}

fn print_crd() -> std::io::Result<()> {
    let yaml = api::crd_yaml().map_err(std::io::Error::other)?;
    std::io::stdout().write_all(yaml.as_bytes())
}

/// Prints an error and what caused it on stderr.
fn failed(error: &dyn std::error::Error, code: u8) -> ExitCode {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let text: Vec<String> = causes.map(ToString::to_string).collect();
    let lines: Vec<String> = text.join(": ").lines().map(printable::escaped).collect();
    eprintln!("error: {}", lines.join("\n  "));
    code.into()
}
