//! The dead letter of something that never was an entry. Pure; the context of entries is made in `engine/settle.rs`.

use super::{Fields, Settings};

/// The pairs of a dead letter for a member of `P:delayed` that cannot be decoded, found at `now` (milliseconds since the
/// epoch): nothing is known of the entry but these bytes.
pub(super) fn undecodable(settings: &Settings, now: u64, member: &[u8]) -> Fields {
    let failed_at = i64::try_from(now)
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        .unwrap_or_default();
    let context = [
        ("failed_at", format!("{failed_at:.3}")),
        ("attempts", "0".to_owned()),
        ("error_type", "Undecodable".to_owned()),
        (
            "error",
            "a member of the delayed set is not an entry".to_owned(),
        ),
        ("reason", "Undecodable".to_owned()),
        ("stream", settings.keys.source.to_string()),
        ("group", settings.keys.group.to_string()),
        ("consumer", settings.consumer.to_string()),
        ("fields", "1".to_owned()),
    ];
    let mut letter = context
        .map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes()))
        .to_vec();
    letter.push((b"member".to_vec(), member.to_vec()));
    letter
}
