//! Durations as users write them: the strings of GEP-2257, kept as given. Pure.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What the schema demands; [`DurationText::parse`] reads exactly this.
pub const PATTERN: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";
/// The longest text that fits the pattern.
const MAX_LENGTH: usize = 28;
const MAX_GROUPS: usize = 4;
const MAX_DIGITS: usize = 5;

/// A duration such as `30s` or `1h30m`, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(String);

/// The text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a duration such as `30s`, `500ms` or `1h30m`: whole numbers, each with its unit (h, m, s or ms)"
)]
pub struct NotADuration;

impl DurationText {
    /// The text as given; [`DurationText::parse`] judges it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The time it names.
    ///
    /// # Errors
    /// [`NotADuration`] for every text that [`PATTERN`] does not match.
    pub fn parse(&self) -> Result<Duration, NotADuration> {
        let mut rest = self.0.as_str();
        let mut sum = Duration::ZERO;
        for _ in 0..MAX_GROUPS {
            let (time, after) = group(rest).ok_or(NotADuration)?;
            sum = sum.saturating_add(time);
            rest = after;
            if rest.is_empty() {
                return Ok(sum);
            }
        }
        Err(NotADuration)
    }
}

/// One number with its unit, and what follows.
fn group(text: &str) -> Option<(Duration, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    if digits > MAX_DIGITS {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    // `ms` before `m`, or it would read as minutes and a stray `s`.
    let units = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let (rest, millis) = units
        .iter()
        .find_map(|(unit, millis)| Some((rest.strip_prefix(unit)?, millis)))?;
    Some((Duration::from_millis(number.saturating_mul(*millis)), rest))
}

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": PATTERN, "maxLength": MAX_LENGTH})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u128> {
        DurationText::new(text)
            .parse()
            .ok()
            .map(|time| time.as_millis())
    }

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        assert_eq!(millis("30s"), Some(30_000));
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("1h30m"), Some(5_400_000));
        assert_eq!(millis("1m1ms"), Some(60_001));
        assert_eq!(
            millis("99999h99999h99999h99999h"),
            Some(399_996 * 3_600_000)
        );
        assert_eq!(millis("00001s"), Some(1000));
        assert_eq!(millis("0s"), Some(0));
    }

    #[test]
    fn everything_else_is_refused() {
        let wrong = [
            "",
            "30",
            "-1s",
            "+1s",
            "PT30S",
            "0.5s",
            "1d",
            " 1s",
            "1s ",
            "1 s",
            "s",
            "100000s",
            "1s1s1s1s1s",
            "1S",
            "1sm",
            "1us",
            "١s",
        ];
        for text in wrong {
            assert_eq!(millis(text), None, "{text:?}");
        }
    }
}
