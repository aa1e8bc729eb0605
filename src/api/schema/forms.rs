//! The patterns of the schema that are Kubernetes' own, and the same forms in code, with the words for what breaks them. Pure.

/// A quantity that is not negative.
pub(crate) const QUANTITY: &str =
    "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";
/// The value of a label.
pub(crate) const LABEL_VALUE: &str = "^([0-9A-Za-z]([0-9A-Za-z._-]*[0-9A-Za-z])?)?$";

/// What is said of a text that breaks `pattern`; nothing where the pattern is none of these.
pub(super) fn broken(pattern: &str, text: &str) -> Option<&'static str> {
    let (holds, message) = match pattern {
        QUANTITY => (
            is_quantity(text),
            "must be a quantity such as `500m`, `2` or `128Mi`: a number, and perhaps a unit (n, u, m, k, M, G, T, P, E, or Ki to Ei)",
        ),
        LABEL_VALUE => (
            text.is_empty() || is_word(text),
            "must be letters, digits, `-`, `_` and `.`, with a letter or digit at each end",
        ),
        _ => return None,
    };
    (!holds).then_some(message)
}

fn is_quantity(text: &str) -> bool {
    let text = text.strip_prefix('+').unwrap_or(text);
    let in_number = |c: char| c.is_ascii_digit() || c == '.';
    let unit = text.trim_start_matches(in_number);
    let number = text.strip_suffix(unit).unwrap_or_default();
    let points = number.bytes().filter(|byte| *byte == b'.').count();
    number.len() > points && points <= 1 && is_unit(unit)
}

fn is_unit(unit: &str) -> bool {
    match unit {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti"
        | "Pi" | "Ei" => true,
        _ => {
            let exponent = unit.strip_prefix(['e', 'E']).unwrap_or_default();
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
    }
}

/// Whether a text is a word as labels are made of: letters, digits, `-`, `_` and `.`, a letter or digit at each end.
pub(crate) fn is_word(text: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.starts_with(is_edge) && text.ends_with(is_edge) && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for good in [
            "0", "2", "+1", "0.5", ".5", "5.", "100m", "128Mi", "1E", "1e3", "1E-3", "12k",
        ] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in [
            "", ".", "-1", "1.2.3", "128MB", "128mi", "1 Gi", "1Ki2", "e3", "1e", "1e+", "lots",
            "1K",
        ] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    #[test]
    fn words_have_a_letter_or_digit_at_each_end() {
        for good in ["a", "7", "a-b_c.d", "A1"] {
            assert!(is_word(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "ä", "a/b"] {
            assert!(!is_word(bad), "{bad}");
        }
    }
}
