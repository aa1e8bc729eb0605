//! Text of others made fit for a terminal or a log line.
//!
//! Payloads and error texts are written by whoever feeds a stage. Printed raw, they could clear a screen, forge lines, or
//! turn text around. Pure.

use std::fmt::Write;

/// Characters that are no control characters to Unicode but still move text or lines about.
const MISLEADING: [char; 15] = [
    '\u{061c}', '\u{200b}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}', '\u{202b}',
    '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

/// Whether `character` may go to a terminal as it is.
fn is_printable(character: char) -> bool {
    !character.is_control() && !MISLEADING.contains(&character)
}

/// `text` with every character that could act on a terminal written as an escape, such as `\n` or `\u{1b}`.
///
/// The answer is one line. A backslash stays as it is: this is for eyes, not for parsers.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_printable(character) {
            safe.push(character);
        } else {
            // Writing to a string cannot fail.
            write!(safe, "{}", character.escape_default()).unwrap_or_default();
        }
    }
    safe
}

/// [`escaped`], cut to `width` characters; a cut is shown by `…`.
pub fn escaped_to(text: &str, width: usize) -> String {
    let safe = escaped(text);
    if safe.chars().count() <= width {
        return safe;
    }
    let mut cut: String = safe.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_comes_through() {
        let attacks = [
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("\u{1b}]8;;http://x\u{7}y", "\\u{1b}]8;;http://x\\u{7}y"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\rb\nc\td", "a\\rb\\nc\\td"),
            ("x\u{202e}gnp.exe", "x\\u{202e}gnp.exe"),
            ("del\u{7f}", "del\\u{7f}"),
            ("line\u{2028}two", "line\\u{2028}two"),
        ];
        for (raw, safe) in attacks {
            assert_eq!(escaped(raw), safe);
            assert!(escaped(raw).chars().all(is_printable));
        }
    }

    #[test]
    fn ordinary_text_of_any_script_is_left_alone() {
        for text in ["", "plain", "naïve ñ", "日本語", "emoji 🦀", r"C:\new"] {
            assert_eq!(escaped(text), text);
        }
    }

    #[test]
    fn a_cut_counts_characters_and_shows_itself() {
        assert_eq!(escaped_to("日本語テキスト", 4), "日本語…");
        assert_eq!(escaped_to("four", 4), "four");
        assert_eq!(escaped_to("\u{1b}", 4), "\\u{…");
    }
}
