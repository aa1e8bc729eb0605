//! STUB, to be replaced at the merge: the local run of a stage.

use std::process::ExitCode;

use crate::cli::DevArgs;

/// Runs a stage in the foreground.
#[allow(
    clippy::unused_async,
    reason = "a stub; the local run that replaces it awaits"
)]
pub async fn run(_args: DevArgs) -> ExitCode {
    tracing::error!("the local run is not there yet");
    ExitCode::FAILURE
}
