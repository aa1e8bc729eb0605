//! The sources as the architecture test sees them: without comments and tests, and with every path of ours resolved.

use std::fs;
use std::path::Path;

/// One source file.
pub(super) struct Source {
    /// Its path below `src/`.
    pub(super) file: String,
    /// Its module, such as `engine::settle`; `main` and `lib` for the roots.
    pub(super) module: String,
    /// Its code, without comments and tests.
    pub(super) code: String,
}

/// Every source of the crate, but for test modules.
pub(super) fn all() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            let file = path
                .strip_prefix(&root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if is_rust && !is_test(&file) {
                let text = fs::read_to_string(&path).unwrap();
                sources.push(Source {
                    module: module_of(&file),
                    code: code(&text),
                    file,
                });
            }
        }
    }
    sources.sort_by(|a, b| a.file.cmp(&b.file));
    sources
}

fn is_test(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace('/', "::")
}

/// A file's lines before its tests, and each without its comment.
fn code(text: &str) -> String {
    let production = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = production.lines().map(|line| {
        // `://` stands in texts, not before comments.
        let comment = line.match_indices("//").map(|(at, _)| at);
        let mut comment = comment.filter(|at| !line[..*at].ends_with(':'));
        comment.next().map_or(line, |at| &line[..at])
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Source {
    /// The module at the top that the file belongs to.
    pub(super) fn top(&self) -> &str {
        self.module.split("::").next().unwrap_or_default()
    }

    /// Every path of our crate that the code names, from the crate's root.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        for root in ["crate", "super", "self", "streamstage"] {
            for (at, _) in self.code.match_indices(&format!("{root}::")) {
                let before = self.code[..at].chars().next_back();
                if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
                    expand("", &self.code[at..], &mut found);
                }
            }
        }
        found
            .into_iter()
            .filter_map(|path| self.resolve(&path))
            .collect()
    }

    fn resolve(&self, path: &str) -> Option<String> {
        let mut at: Vec<&str> = self.module.split("::").collect();
        let mut rest = path;
        loop {
            let (first, after) = rest.split_once("::").unwrap_or((rest, ""));
            match first {
                "crate" | "streamstage" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                _ => break,
            }
            rest = after;
        }
        at.extend(rest.split("::").filter(|part| !part.is_empty()));
        Some(at.join("::"))
    }
}

/// The paths that begin in `text`, with their trees of braces spelled out.
fn expand(prefix: &str, text: &str, found: &mut Vec<String>) {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !is_path(c)).unwrap_or(text.len());
    let (path, rest) = text.split_at(end);
    let path = format!("{prefix}{path}");
    if !path.ends_with("::") || !rest.starts_with('{') {
        found.push(path.trim_end_matches("::").to_owned());
        return;
    }
    let mut depth = 0_usize;
    let mut start = 1;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            let branch = rest[start..at].trim();
            if !branch.is_empty() {
                expand(&path, branch, found);
            }
            start = at + 1;
        }
        if depth == 0 {
            return;
        }
    }
}

mod tests {
    use super::*;

    fn source(file: &str, code_text: &str) -> Source {
        Source {
            file: file.to_owned(),
            module: module_of(file),
            code: code(code_text),
        }
    }

    #[test]
    fn trees_and_relative_paths_are_resolved() {
        let text = "use crate::{a::{B, c::D}, e};\nuse super::held::Held; // crate::x\nlet y = \"redis://z\";";
        let paths = source("engine/core/mod.rs", text).paths();
        assert_eq!(paths, ["a::B", "a::c::D", "e", "engine::held::Held"]);
        let paths = source("engine/settle.rs", "super::super::f(); self::g();").paths();
        assert_eq!(paths, ["f", "engine::settle::g"]);
    }

    #[test]
    fn tests_and_comments_are_no_code() {
        let text = "a // b\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(code(text).trim_end(), "a");
        assert_eq!(code("\"redis://x\""), "\"redis://x\"");
    }
}
