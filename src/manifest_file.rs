//! A manifest's text, from a file or from standard input: never more of it than a manifest may have.
//!
//! What the text means is up to [`crate::manifest`].

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::manifest::MAX_BYTES;

/// The path that means standard input.
const STDIN: &str = "-";

/// The manifest cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", name(path))]
pub struct CannotRead {
    /// The file.
    path: PathBuf,
    /// Why.
    source: io::Error,
}

/// What people call the file.
pub fn name(path: &Path) -> Cow<'_, str> {
    if path.as_os_str() == STDIN {
        "standard input".into()
    } else {
        path.to_string_lossy()
    }
}

/// Reads a manifest; `-` is standard input.
///
/// It blocks for as long as a pipe has nothing to say: read before signals are handled, so that a Ctrl-C ends it.
pub fn read(path: &Path) -> Result<String, CannotRead> {
    let text = if path.as_os_str() == STDIN {
        bounded(io::stdin().lock())
    } else {
        File::open(path).and_then(bounded)
    };
    text.map_err(|source| CannotRead {
        path: path.to_owned(),
        source,
    })
}

fn bounded(from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::other(format!(
            "it has more than {MAX_BYTES} bytes, the most that a manifest may have: keep one stage in the file"
        )));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /dev/zero");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("more than 1048576 bytes"), "{cause}");
    }

    #[test]
    fn the_largest_manifest_is_read_whole() {
        let largest = MAX_BYTES;
        let text = bounded(io::repeat(b' ').take(MAX_BYTES as u64)).unwrap();
        assert_eq!(text.len(), largest);
        assert!(bounded(&b"\xff"[..]).is_err());
    }
}
