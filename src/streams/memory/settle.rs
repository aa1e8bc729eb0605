//! Settlements and promotion.

use super::server::millis;
use super::store::{Member, Store};
use super::{Duration, Error, MemoryBroker, Promoted, Settle, Settled};
use crate::streams::entry::META_FIELD;
use crate::streams::{
    Fields, IdempotencyKey, Lane, MAX_BATCH, MAX_VALUES, Meta, Place, Refusal, RefusalReason,
    Settlement, letter,
};

/// A key that takes no add, and why.
type Refused = (String, RefusalReason);

impl MemoryBroker {
    pub(super) fn settle_batch(
        &self,
        store: &mut Store,
        batch: &[Settle],
        now: u64,
    ) -> Result<Vec<Settled>, Error> {
        let mut settled = Vec::with_capacity(batch.len());
        for settle in batch {
            match self.has_group(store, settle.entry.place.lane) {
                Ok(()) => settled.push(self.settle_one(store, settle, now)),
                Err(error) if settled.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        settled.resize(batch.len(), Settled::Unanswered);
        Ok(settled)
    }

    fn settle_one(&self, store: &mut Store, settle: &Settle, now: u64) -> Settled {
        let place = settle.entry.place;
        let stream = self.settings.keys.stream(place.lane).as_str();
        let group = store.group(stream, self.group());
        let pending = group
            .as_ref()
            .and_then(|group| group.pending.get(&place.id));
        let ours = match (pending, self.is_plain(settle)) {
            // A plain XACK asks for no owner: the work was done, whoever holds the entry now.
            (Some(_), true) => true,
            (Some(pending), false) => pending.owner == self.consumer(),
            (None, _) => false,
        };
        if !ours && !settle.unowned {
            return Settled::NotOurs;
        }
        match self.carry_out(store, settle, now) {
            Ok(settled) => {
                self.acknowledge(store, place);
                settled
            }
            Err((key, reason)) => Settled::Refused(Refusal { key, reason }),
        }
    }

    /// A commit in the source stream that adds nothing.
    fn is_plain(&self, settle: &Settle) -> bool {
        match &settle.settlement {
            Settlement::Commit { outputs, key, .. } => {
                let unrecorded = key.is_none() || self.settings.ledger_window.is_none();
                settle.entry.place.lane == Lane::Source && outputs.is_empty() && unrecorded
            }
            Settlement::RetryAfter { .. }
            | Settlement::DeadLetter { .. }
            | Settlement::Release { .. } => false,
        }
    }

    fn carry_out(&self, store: &mut Store, settle: &Settle, now: u64) -> Result<Settled, Refused> {
        let (keys, fields) = (&self.settings.keys, &settle.entry.fields);
        match &settle.settlement {
            Settlement::Commit {
                outputs,
                key,
                force,
            } => {
                let window = self.settings.ledger_window;
                let record = window.zip(key.as_ref());
                return self.commit(store, outputs, record, *force, now);
            }
            Settlement::RetryAfter { delay, meta } => {
                fits(&keys.delayed, fields)?;
                let due = now.saturating_add(millis(*delay));
                let member = Member::Entry(meta.clone(), fields.clone());
                let delayed = store.delay(&keys.delayed, due, member);
                delayed.map_err(|reason| (keys.delayed.clone(), reason))?;
            }
            Settlement::DeadLetter { context } => {
                let pair = |name: &str, value: &str| (name.into(), value.into());
                let mut letter: Fields = context.iter().map(|(n, v)| pair(n, v)).collect();
                letter.push(pair("fields", &fields.len().to_string()));
                letter.extend(fields.iter().cloned());
                let longest = self.settings.dead_max_length;
                add(store, keys.dead.as_str(), letter, longest, now)?;
            }
            Settlement::Release { meta } => {
                fits(keys.retry.as_str(), fields)?;
                add(store, keys.retry.as_str(), with_meta(meta, fields), 0, now)?;
            }
        }
        Ok(Settled::Applied)
    }

    fn commit(
        &self,
        store: &mut Store,
        outputs: &[Fields],
        record: Option<(Duration, &IdempotencyKey)>,
        force: bool,
        now: u64,
    ) -> Result<Settled, Refused> {
        let record = record.map(|(window, key)| (window, self.ledger_key(key)));
        if let Some((_, key)) = &record
            && !force
            && store.knows(key, now)
        {
            return Ok(Settled::AlreadyDone);
        }
        let output = self
            .settings
            .output
            .as_ref()
            .map_or("", |output| output.as_str());
        if outputs.iter().any(|output| 2 * output.len() > MAX_VALUES) {
            return Err((output.to_owned(), RefusalReason::TooLarge));
        }
        // An entry without fields is none: a server refuses the add.
        if outputs.iter().any(Vec::is_empty) {
            return Err((output.to_owned(), RefusalReason::Other));
        }
        // All are asked before the first is added: a refused entry leaves nothing behind.
        if !outputs.is_empty() {
            let refusal = match output {
                "" => Some(RefusalReason::Other),
                output => store.refusal(output),
            };
            refusal.map_or(Ok(()), |reason| Err((output.to_owned(), reason)))?;
        }
        if let Some((window, key)) = record {
            if let Some(reason) = store.refusal(&key) {
                return Err((key, reason));
            }
            store.ledger.insert(key, now.saturating_add(millis(window)));
        }
        for fields in outputs {
            let longest = self.settings.output_max_length;
            add(store, output, fields.clone(), longest, now)?;
        }
        Ok(Settled::Applied)
    }

    fn acknowledge(&self, store: &mut Store, place: Place) {
        let stream = self.settings.keys.stream(place.lane).as_str();
        if let Some(group) = store.group(stream, self.group()) {
            group.pending.remove(&place.id);
        }
        if place.lane == Lane::Retry
            && let Some(stream) = store.streams.get_mut(stream)
        {
            stream.entries.remove(&place.id);
        }
    }

    pub(super) fn promote_due(&self, store: &mut Store, now: u64) -> Result<Promoted, Error> {
        self.check_types(store)?;
        let delayed = &self.settings.keys.delayed;
        let all = store.delayed.entry(delayed.clone()).or_default();
        let all = all.iter().map(|(at, member)| (*at, member.clone()));
        let all = all.collect::<Vec<_>>();
        let (mut promoted, mut odd, mut left) = (Promoted::default(), Vec::new(), Vec::new());
        for ((due, salt), member) in all {
            let has_room = due <= now && promoted.moved < MAX_BATCH as u64;
            match readable(member) {
                Ok((meta, fields)) if has_room => {
                    self.add_retry(store, with_meta(&meta, &fields), now)?;
                    promoted.moved += 1;
                    store.remove_delayed(delayed, (due, salt));
                }
                Err(bytes) if has_room => odd.push(((due, salt), bytes)),
                Ok(_) | Err(_) => left.push(due),
            }
        }
        let stays = odd.len() > MAX_BATCH;
        for (at, bytes) in odd.into_iter().take(MAX_BATCH) {
            if self.bury(store, &bytes, now) {
                promoted.undecodable += 1;
                store.remove_delayed(delayed, at);
            }
        }
        let next = left.first();
        promoted.next_in = next.map(|due| Duration::from_millis(due.saturating_sub(now)));
        let more = stays || promoted.next_in == Some(Duration::ZERO);
        promoted.more = more && promoted.moved + promoted.undecodable > 0;
        Ok(promoted)
    }

    fn add_retry(&self, store: &mut Store, entry: Fields, now: u64) -> Result<(), Error> {
        let key = self.settings.keys.retry.as_str();
        match store.append(key, entry, 0, now) {
            Ok(_) => Ok(()),
            Err(RefusalReason::OutOfMemory) => Err(Error::Full),
            Err(RefusalReason::PermissionDenied) => Err(Error::Denied {
                what: format!("promote: {key}"),
            }),
            Err(RefusalReason::WrongKeyType) => Err(Error::WrongType {
                key: key.to_owned(),
                expected: "stream",
            }),
            Err(RefusalReason::TooLarge | RefusalReason::Other) => Err(Error::Protocol {
                command: "promote",
                detail: format!("{key} takes no add"),
            }),
        }
    }

    /// Whether the dead letters took it.
    fn bury(&self, store: &mut Store, member: &[u8], now: u64) -> bool {
        let letter = letter::undecodable(&self.settings, now, member);
        let (dead, longest) = (&self.settings.keys.dead, self.settings.dead_max_length);
        store.append(dead.as_str(), letter, longest, now).is_ok()
    }
}

/// An entry's meta and fields; the bytes of what nobody can read.
fn readable(member: Member) -> Result<(Meta, Fields), Vec<u8>> {
    match member {
        Member::Entry(meta, fields) => match Meta::parse(&meta.render()) {
            Some(_) => Ok((meta, fields)),
            None => Err(meta.render()),
        },
        Member::Raw(bytes) => Err(bytes),
    }
}

fn add(
    store: &mut Store,
    key: &str,
    fields: Fields,
    longest: u64,
    now: u64,
) -> Result<(), Refused> {
    let added = store.append(key, fields, longest, now);
    added.map(|_| ()).map_err(|reason| (key.to_owned(), reason))
}

/// Whether a script on a real server could carry the entry and its meta.
fn fits(key: &str, fields: &Fields) -> Result<(), Refused> {
    if 2 * fields.len() + 2 > MAX_VALUES {
        return Err((key.to_owned(), RefusalReason::TooLarge));
    }
    Ok(())
}

fn with_meta(meta: &Meta, fields: &Fields) -> Fields {
    let mut all = vec![(META_FIELD.to_vec(), meta.render())];
    all.extend(fields.iter().cloned());
    all
}
