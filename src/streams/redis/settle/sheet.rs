//! The answers of a batch while its calls are under way. Pure.

use super::call::Numbered;
use crate::streams::{Error, Settled};

/// One line per settlement; those never written to were not answered.
#[derive(Debug)]
pub(super) struct Sheet {
    settled: Vec<Settled>,
    answered: bool,
    end: Option<Error>,
}

impl Sheet {
    /// A sheet of `entries` lines.
    pub(super) fn of(entries: usize) -> Self {
        Self {
            settled: vec![Settled::Unanswered; entries],
            answered: false,
            end: None,
        }
    }

    /// The session is over: nothing more can be asked.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Writes down what a call answered.
    pub(super) fn write(&mut self, call: &[Numbered<'_>], answers: Vec<Result<Settled, Error>>) {
        for ((line, _), answer) in call.iter().zip(answers) {
            match (answer, self.settled.get_mut(*line)) {
                (Ok(settled), Some(slot)) => {
                    *slot = settled;
                    self.answered = true;
                }
                (Ok(_), None) => {}
                (Err(error), _) => {
                    self.end.get_or_insert(error);
                }
            }
        }
    }

    /// What was answered; the error only where nothing was.
    pub(super) fn close(self) -> Result<Vec<Settled>, Error> {
        match self.end {
            Some(error) if !self.answered => Err(error),
            Some(_) | None => Ok(self.settled),
        }
    }
}
