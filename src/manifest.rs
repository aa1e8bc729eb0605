//! STUB, to be replaced at the merge: a manifest's text into a [`Stage`].

use crate::api::v1alpha1::StreamStage;
use crate::stage::Stage;

/// The manifest is not a valid stage.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(pub String);

/// Reads a manifest.
pub fn parse(text: &str) -> Result<Stage, ManifestError> {
    let stage: StreamStage =
        serde_saphyr::from_str(text).map_err(|error| ManifestError(error.to_string()))?;
    Stage::parse(&stage).map_err(|violations| ManifestError(format!("{violations:?}")))
}
