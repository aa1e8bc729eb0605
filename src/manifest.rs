//! A manifest's text into a stage. (Temporary.)
use crate::stage::Stage;
/// Bad.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(pub String);
/// Reads.
pub fn parse(text: &str) -> Result<Stage, ManifestError> {
    let stage: crate::api::v1alpha1::StreamStage =
        serde_saphyr::from_str(text).map_err(|e| ManifestError(e.to_string()))?;
    Stage::parse(&stage).map_err(|v| {
        ManifestError(
            v.iter()
                .map(|v| format!("{v}"))
                .collect::<Vec<_>>()
                .join("\n"),
        )
    })
}
