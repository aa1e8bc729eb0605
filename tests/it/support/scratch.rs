//! A directory that lives as long as the test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(purpose: &str) -> Self {
        let name = format!(
            "streamstage-it-{}-{}-{purpose}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A process that is just dying may still write here; what is left lies in the temporary directory.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The last lines of a file; empty when there is none.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all[from..].join("\n")
}
