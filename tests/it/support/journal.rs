//! What the scripted handler wrote down: every start and every answer, in order.

use std::collections::BTreeMap;
use std::path::Path;

/// What a line of the journal tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A handler began with an entry.
    Start,
    /// It answered that the work is done.
    Ok,
    /// It answered anything else.
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) what: What,
    pub(crate) key: String,
    /// The entry's origin id.
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) deliveries: u32,
    /// The worker's process id.
    pub(crate) worker: u32,
}

pub(crate) struct Journal(Vec<Line>);

impl Journal {
    /// What is in the file now; nothing while there is none.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Self(text.lines().map(line).collect())
    }

    pub(crate) fn lines(&self, what: What) -> impl Iterator<Item = &Line> {
        self.0.iter().filter(move |line| line.what == what)
    }

    pub(crate) fn starts(&self) -> usize {
        self.lines(What::Start).count()
    }

    /// Starts less answers: handlers at work, and those that died.
    pub(crate) fn running(&self) -> usize {
        self.starts() - (self.0.len() - self.starts())
    }

    pub(crate) fn starts_of(&self, key: &str) -> Vec<&Line> {
        self.lines(What::Start)
            .filter(|line| line.key == key)
            .collect()
    }

    /// How often each key was started.
    pub(crate) fn starts_by_key(&self) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for line in self.lines(What::Start) {
            *counts.entry(line.key.as_str()).or_insert(0) += 1;
        }
        counts
    }
}

fn line(text: &str) -> Line {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap_or_else(|_| panic!("{text}"));
    Line {
        at: words[0].parse().unwrap_or_else(|_| panic!("{text}")),
        what: match words[1] {
            "start" => What::Start,
            "ok" => What::Ok,
            _ => What::Failed,
        },
        key: words[2].to_owned(),
        id: words[3].to_owned(),
        attempt: number(4),
        deliveries: number(5),
        worker: number(7),
    }
}
