//! The selected letters of a stage, a page at a time, oldest first. It changes nothing.

use std::collections::VecDeque;

use super::request::Selection;
use super::select::{FIRST_PAGE, Owner, Range, next_page, passes};
use crate::streams::entry::size_of;
use crate::streams::redis::dead_letters::DeadLetters;
use crate::streams::{EntryId, Error, Fields, Letter};

/// A walk over the letters that were there when it began.
pub(super) struct Scan<'a> {
    letters: &'a DeadLetters,
    owner: &'a Owner,
    selection: &'a Selection,
    rest: Rest,
    page: usize,
    left: u64,
    strangers: u64,
    /// Named ids at which no letter of the stage was found.
    missing: Vec<EntryId>,
}

/// What was not looked at yet.
enum Rest {
    Ids(VecDeque<EntryId>),
    Range(Option<Range>),
}

impl<'a> Scan<'a> {
    /// A walk over what `selection` names of `owner`'s letters.
    pub(super) async fn begin(
        letters: &'a DeadLetters,
        owner: &'a Owner,
        selection: &'a Selection,
    ) -> Result<Self, Error> {
        let mut missing = Vec::new();
        let rest = match letters.last_id().await? {
            None => {
                missing.extend(&selection.ids);
                Rest::Range(None)
            }
            Some(last) => {
                let range = Range::of(selection, letters.now().await?, last);
                if selection.ids.is_empty() {
                    Rest::Range((range.from <= range.until).then_some(range))
                } else {
                    let ids = selection.ids.iter().copied();
                    missing.extend(ids.clone().filter(|id| *id > last));
                    Rest::Ids(ids.filter(|id| range.contains(*id)).collect())
                }
            }
        };
        Ok(Self {
            letters,
            owner,
            selection,
            rest,
            page: FIRST_PAGE,
            left: selection.limit.unwrap_or(u64::MAX),
            strangers: 0,
            missing,
        })
    }

    /// The next selected letters, which may be none; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<(EntryId, Letter)>>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(entries) = self.fetch().await? else {
            return Ok(None);
        };
        let mut selected = Vec::new();
        for (id, pairs) in entries {
            let Ok(letter) = Letter::parse(&pairs) else {
                self.strangers += 1;
                continue;
            };
            if !self.owner.owns(&letter) {
                continue;
            }
            self.missing.retain(|missing| *missing != id);
            if passes(self.selection, &letter) && self.left > 0 {
                self.left -= 1;
                selected.push((id, letter));
            }
        }
        Ok(Some(selected))
    }

    /// Entries of the stream that are no dead letters, so far.
    pub(super) fn strangers(&self) -> u64 {
        self.strangers
    }

    /// The ids among those looked for that are no dead letters of the stage.
    pub(super) fn missing(&self) -> &[EntryId] {
        &self.missing
    }

    async fn fetch(&mut self) -> Result<Option<Vec<(EntryId, Fields)>>, Error> {
        match &mut self.rest {
            Rest::Ids(ids) => {
                let Some(id) = ids.pop_front() else {
                    return Ok(None);
                };
                self.missing.push(id);
                self.letters.page(id, id, 1).await.map(Some)
            }
            Rest::Range(range) => {
                let Some(now) = *range else {
                    return Ok(None);
                };
                let entries = self.letters.page(now.from, now.until, self.page).await?;
                let bytes = entries.iter().map(|(_, pairs)| size_of(pairs)).sum();
                *range = entries.last().and_then(|(id, _)| now.behind(*id));
                self.page = next_page(entries.len(), bytes);
                Ok(Some(entries))
            }
        }
    }
}
