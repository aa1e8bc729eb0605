//! What a handler's logs have said already: a handler that is away is tried again and again, and each try fails alike.
//!
//! Pure.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A program may give another reason each time: no more of them are told than this.
const MOST_REASONS: usize = 8;

/// The reasons that were told since the handler last was well.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<BTreeSet<String>>);

impl Told {
    /// Whether this reason is still to be told; from now on it is not.
    pub(super) fn is_news(&self, reason: &str) -> bool {
        let mut told = self.reasons();
        told.len() < MOST_REASONS && told.insert(reason.to_owned())
    }

    /// The handler is well: whatever comes next is news.
    pub(super) fn forget(&self) {
        self.reasons().clear();
    }

    fn reasons(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // Nothing under this lock leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_until_the_handler_is_well() {
        let told = Told::default();
        assert!(told.is_news("a"));
        assert!(told.is_news("b"));
        assert!(!told.is_news("a"));
        told.forget();
        assert!(told.is_news("a"));
    }

    #[test]
    fn reasons_without_end_are_not_told_without_end() {
        let told = Told::default();
        let news = (0..100).filter(|number| told.is_news(&number.to_string()));
        assert_eq!(news.count(), MOST_REASONS);
    }
}
