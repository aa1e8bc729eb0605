//! Logs: one line an event, on stderr, as text or JSON.
//!
//! stdout belongs to what a command was asked for. A log line never acts on a terminal: whatever it quotes is escaped.

use std::io::{self, Write};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::printable::escaped;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "--log-level (or STREAMSTAGE_LOG) `{filter}`: must be off, error, warn, info, debug or trace, or target=level pairs such as streamstage=debug,redis=warn"
)]
pub struct BadFilter {
    /// What was given.
    filter: String,
}

/// The levels that a word alone may name.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Sends every event that passes `filter` to stderr, for the rest of this process.
///
/// Only the first call of a process has an effect.
pub fn start(format: LogFormat, filter: &str) -> Result<(), BadFilter> {
    let parsed = parse(filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(parsed);
    let started = match format {
        LogFormat::Text => lines.with_ansi(false).with_writer(EscapedStderr).try_init(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_writer(io::stderr)
            .try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging had been started before");
    }
    Ok(())
}

/// A word alone is a level: the library would take any other for a target with all of its lines.
fn parse(filter: &str) -> Result<EnvFilter, BadFilter> {
    let is_known = |word: &str| {
        word.contains('=') || LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
    };
    let parsed = filter
        .split(',')
        .map(str::trim)
        .all(is_known)
        .then(|| EnvFilter::try_new(filter).ok())
        .flatten();
    parsed.ok_or_else(|| BadFilter {
        filter: escaped(filter),
    })
}

/// Stderr behind [`EscapedLine`].
#[derive(Clone, Copy)]
struct EscapedStderr;

impl<'a> MakeWriter<'a> for EscapedStderr {
    type Writer = EscapedLine<io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapedLine(io::stderr())
    }
}

/// Passes on one event a write, everything but its closing line break escaped.
struct EscapedLine<W>(W);

impl<W: Write> Write for EscapedLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let safe = match text.strip_suffix('\n') {
            Some(text) => escaped(text) + "\n",
            None => escaped(&text),
        };
        self.0.write_all(safe.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_cannot_forge_another_or_touch_the_terminal() {
        let mut lines = EscapedLine(Vec::new());
        lines
            .write_all(b"INFO entry failed error=\x1b[2J\nINFO all is well\n")
            .unwrap();
        assert_eq!(
            String::from_utf8(lines.0).unwrap(),
            "INFO entry failed error=\\u{1b}[2J\\nINFO all is well\n"
        );
    }

    #[test]
    fn a_filter_that_is_none_is_refused_with_the_words_that_are() {
        for filter in ["streamstage=loud", "foo", "", "info,foo", "info,"] {
            let error = start(LogFormat::Text, filter).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("error, warn, info"), "{text}");
            assert!(std::error::Error::source(&error).is_none());
        }
    }

    #[test]
    fn levels_and_pairs_are_filters() {
        for filter in [
            "info",
            "WARN",
            "off",
            "streamstage=debug",
            "warn,redis=info",
        ] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
    }
}
