//! Settles entries: sorts a batch by kind, cuts it to what one script call carries, and reads the answers.
//!
//! Every kind goes in calls of its own, so that a missing permission or a wrong key type hurts only entries that need
//! that key. Read next: `ours.lua`, `settle.lua`, `commit.lua`.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::reply;
use super::{RedisBroker, Script, delayed, error, lua, millis_up, preflight};
use crate::streams::{
    EntryId, Error, IdempotencyKey, Lane, MAX_VALUES, Place, Refusal, RefusalReason, Settle,
    Settled, Settlement, StreamKey,
};

mod call;

use call::{
    Answer, Numbered, appended_values, calls, commit_of, parse_answers, values_in, write_appended,
    write_place,
};
pub(super) use call::{MAX_BYTES, write_fields, write_lane};

static COMMIT: LazyLock<Script> = lua!("commit", after "ours", "settle");
static RETRY: LazyLock<Script> = lua!("retry", after "ours", "settle");
static APPEND: LazyLock<Script> = lua!("append", after "ours", "settle");
static CONFIRM: LazyLock<Script> = lua!("confirm", after "ours", "settle");

/// The longest ledger window that goes to the server: PX adds it to the date.
const MAX_WINDOW: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// What a settlement needs of the server; each kind is a call of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing is added: a plain XACK. Harmless after a lost lease, since the work was done.
    Acknowledge,
    /// Commit without outputs.
    Commit,
    /// Commit that appends to the output stream.
    CommitOutputs,
    Retry,
    DeadLetter,
    /// A dead letter too wide for a script.
    WideDeadLetter,
    Release,
    /// Too wide for a script, and nothing else can carry it.
    TooLarge,
}

const KINDS: [Kind; 8] = [
    Kind::Acknowledge,
    Kind::Commit,
    Kind::CommitOutputs,
    Kind::Retry,
    Kind::DeadLetter,
    Kind::WideDeadLetter,
    Kind::Release,
    Kind::TooLarge,
];

impl RedisBroker {
    pub(super) async fn settle_batch(&self, batch: &[Settle]) -> Result<Vec<Settled>, Error> {
        let mut settled = vec![Settled::NotOurs; batch.len()];
        for kind in KINDS {
            let of_kind = batch
                .iter()
                .enumerate()
                .filter(|(_, settle)| self.kind_of(settle) == kind)
                .collect::<Vec<_>>();
            for call in calls(&of_kind) {
                let answers = self.settle_call(kind, call).await?;
                for ((index, _), answer) in call.iter().zip(answers) {
                    if let Some(slot) = settled.get_mut(*index) {
                        *slot = answer;
                    }
                }
            }
        }
        Ok(settled)
    }

    fn kind_of(&self, settle: &Settle) -> Kind {
        let fields = &settle.entry.fields;
        match &settle.settlement {
            Settlement::Commit { outputs, key, .. } => {
                let plain = outputs.is_empty() && self.recorded(key.as_ref()).is_none();
                match settle.entry.place.lane {
                    _ if outputs.iter().any(|output| values_in(output) > MAX_VALUES) => {
                        Kind::TooLarge
                    }
                    Lane::Source if plain => Kind::Acknowledge,
                    Lane::Source | Lane::Retry if outputs.is_empty() => Kind::Commit,
                    Lane::Source | Lane::Retry => Kind::CommitOutputs,
                }
            }
            // What `P:retry` takes has the meta beside its own values.
            Settlement::RetryAfter { .. } | Settlement::Release { .. }
                if values_in(fields) + 2 > MAX_VALUES =>
            {
                Kind::TooLarge
            }
            Settlement::RetryAfter { .. } => Kind::Retry,
            Settlement::Release { .. } => Kind::Release,
            Settlement::DeadLetter { .. } if appended_values(settle) > MAX_VALUES => {
                Kind::WideDeadLetter
            }
            Settlement::DeadLetter { .. } => Kind::DeadLetter,
        }
    }

    async fn settle_call(&self, kind: Kind, call: &[Numbered<'_>]) -> Result<Vec<Settled>, Error> {
        match kind {
            Kind::Acknowledge => self.acknowledge(call).await,
            Kind::Commit => self.commit(call, self.source()).await,
            Kind::CommitOutputs => match &self.settings.output {
                Some(output) => self.commit(call, output.as_str()).await,
                // `engine/outcome.rs` turns outputs that have nowhere to go into errors of the handler.
                None => Ok(vec![refused("", RefusalReason::Other); call.len()]),
            },
            Kind::Retry => self.delay(call).await,
            Kind::DeadLetter => {
                let longest = self.settings.dead_max_length;
                self.append(call, self.settings.keys.dead.as_str(), longest)
                    .await
            }
            Kind::WideDeadLetter => {
                let mut answers = Vec::with_capacity(call.len());
                for (_, settle) in call {
                    answers.push(self.append_wide(settle).await?);
                }
                Ok(answers)
            }
            Kind::Release => self.append(call, self.retry(), 0).await,
            Kind::TooLarge => Ok(call
                .iter()
                .map(|(_, settle)| refused(self.target_of(settle), RefusalReason::TooLarge))
                .collect()),
        }
    }

    async fn acknowledge(&self, call: &[Numbered<'_>]) -> Result<Vec<Settled>, Error> {
        let mut pipe = Pipeline::new();
        for (_, settle) in call {
            let id = settle.entry.place.id.to_string();
            pipe.cmd("XACK")
                .arg(self.source())
                .arg(self.group())
                .arg(id);
        }
        let answers = self.run_all("XACK", &pipe).await?.into_iter().zip(call);
        answers
            .map(
                |(answer, (_, settle))| match preflight::server_error(&answer) {
                    None if answer == Value::Int(0) && !settle.unowned => Ok(Settled::NotOurs),
                    None => Ok(Settled::Applied),
                    Some(error) => self.or_refused("XACK", &error, self.source()),
                },
            )
            .collect()
    }

    async fn commit(&self, call: &[Numbered<'_>], output: &str) -> Result<Vec<Settled>, Error> {
        let window = self.settings.ledger_window.unwrap_or_default();
        let window = millis_up(window.min(MAX_WINDOW)).max(1);
        let (mut keys, mut ledger) = (vec![output.to_owned()], Vec::new());
        for (_, settle) in call {
            let key = commit_of(settle).and_then(|(_, key, _)| self.recorded(key));
            ledger.push(key.as_ref().map_or(0, |_| keys.len() + 3));
            keys.extend(key);
        }
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(window)
                .arg(self.settings.output_max_length)
                .arg(call.len());
            for ((_, settle), ledger) in call.iter().zip(&ledger) {
                let (outputs, _, force) = commit_of(settle).unwrap_or((&[], None, false));
                write_place(cmd, settle);
                cmd.arg(u8::from(force)).arg(*ledger).arg(outputs.len());
                for output in outputs {
                    cmd.arg(values_in(output));
                    write_fields(cmd, output);
                }
            }
        };
        self.settle_script(&COMMIT, call, &keys, arguments).await
    }

    async fn delay(&self, call: &[Numbered<'_>]) -> Result<Vec<Settled>, Error> {
        let mut members = Vec::with_capacity(call.len());
        for (_, settle) in call {
            if let Settlement::RetryAfter { delay, meta } = &settle.settlement {
                let salt = fastrand::u64(..).to_be_bytes();
                members.push((
                    millis_up(*delay),
                    delayed::encode(salt, meta, &settle.entry.fields),
                ));
            }
        }
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(call.len());
            for ((_, settle), (delay, member)) in call.iter().zip(&members) {
                write_place(cmd, settle);
                cmd.arg(*delay).arg(member);
            }
        };
        let keys = [self.settings.keys.delayed.clone()];
        self.settle_script(&RETRY, call, &keys, arguments).await
    }

    async fn append(
        &self,
        call: &[Numbered<'_>],
        stream: &str,
        longest: u64,
    ) -> Result<Vec<Settled>, Error> {
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(longest).arg(call.len());
            for (_, settle) in call {
                write_place(cmd, settle);
                cmd.arg(appended_values(settle));
                write_appended(cmd, settle);
            }
        };
        self.settle_script(&APPEND, call, &[stream.to_owned()], arguments)
            .await
    }

    /// Dead-letters an entry of more values than a script can pass on: added first, confirmed or taken back after.
    async fn append_wide(&self, settle: &Settle) -> Result<Settled, Error> {
        let (place, dead) = (settle.entry.place, self.settings.keys.dead.as_str());
        if !settle.unowned && !self.is_ours(place).await? {
            return Ok(Settled::NotOurs);
        }
        let mut add = redis::cmd("XADD");
        add.arg(dead);
        if self.settings.dead_max_length > 0 {
            add.arg("MAXLEN")
                .arg("~")
                .arg(self.settings.dead_max_length);
        }
        add.arg("*");
        write_appended(&mut add, settle);
        let mut pipe = Pipeline::new();
        pipe.add_command(add);
        let added = self.run_all("XADD", &pipe).await?.into_iter().next();
        let added = added.unwrap_or_default();
        if let Some(error) = preflight::server_error(&added) {
            return self.or_refused("XADD", &error, dead);
        }
        let letter = reply::text(added).map_err(|odd| odd.in_reply_to("XADD"))?;

        let arguments = |cmd: &mut Cmd| {
            self.write_batch(cmd, &[place]);
            write_place(cmd, settle);
            cmd.arg(&letter);
        };
        let keys = [self.source(), self.retry(), dead];
        let confirmed = self.script(&CONFIRM, &keys, arguments).await?;
        let settled = if confirmed == Value::Int(1) {
            Settled::Applied
        } else {
            Settled::NotOurs
        };
        Ok(settled)
    }

    async fn is_ours(&self, place: Place) -> Result<bool, Error> {
        let id = place.id.to_string();
        let mut pending = redis::cmd("XPENDING");
        pending
            .arg(self.settings.keys.stream(place.lane).as_str())
            .arg(self.group());
        pending.arg(&id).arg(&id).arg(1).arg(self.consumer());
        let rows = reply::items(self.run("XPENDING", &pending).await?);
        Ok(!rows.map_err(|odd| odd.in_reply_to("XPENDING"))?.is_empty())
    }

    /// Runs a settlement script over S, `P:retry` and `more` keys. What refuses it as a whole refuses each entry.
    async fn settle_script(
        &self,
        script: &Script,
        call: &[Numbered<'_>],
        more: &[String],
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Vec<Settled>, Error> {
        let places = call
            .iter()
            .map(|(_, settle)| settle.entry.place)
            .collect::<Vec<_>>();
        let keys = [self.source(), self.retry()].into_iter();
        let keys = keys
            .chain(more.iter().map(String::as_str))
            .collect::<Vec<_>>();
        let arguments = |cmd: &mut Cmd| {
            self.write_batch(cmd, &places);
            arguments(cmd);
        };
        let reply = match self.script(script, &keys, arguments).await {
            Err(error @ (Error::Denied { .. } | Error::Full)) => {
                let reason = error::refusal(error)?;
                let each = call
                    .iter()
                    .map(|(_, settle)| refused(self.target_of(settle), reason));
                return Ok(each.collect());
            }
            reply => reply?,
        };
        let answers = parse_answers(reply).map_err(|odd| odd.in_reply_to(script.name()))?;
        let settled = answers.into_iter().map(|answer| match answer {
            Answer::Settled(settled) => Ok(settled),
            Answer::Error { key, text } => {
                let error = error::of_text(&text, self.place(script.name()));
                Ok(refused(&key, error::refusal(error)?))
            }
        });
        settled.collect()
    }

    /// A refusal, where a single command was refused for its key alone; else the error that ends the session.
    fn or_refused(
        &self,
        command: &'static str,
        error: &redis::RedisError,
        key: &str,
    ) -> Result<Settled, Error> {
        let reason = error::refusal(self.named(command, error))?;
        Ok(refused(key, reason))
    }

    /// The key that a settlement adds to.
    fn target_of(&self, settle: &Settle) -> &str {
        let keys = &self.settings.keys;
        match &settle.settlement {
            Settlement::Commit { outputs, .. } if outputs.is_empty() => &keys.done_prefix,
            Settlement::Commit { .. } => {
                let output = self.settings.output.as_ref();
                output.map_or("", StreamKey::as_str)
            }
            Settlement::RetryAfter { .. } => &keys.delayed,
            Settlement::DeadLetter { .. } => keys.dead.as_str(),
            Settlement::Release { .. } => keys.retry.as_str(),
        }
    }

    /// The ledger key of a commit; `None` where no ledger is kept.
    fn recorded(&self, key: Option<&IdempotencyKey>) -> Option<String> {
        self.settings.ledger_window?;
        key.map(|key| self.ledger_key(key))
    }

    /// What `ours.lua` reads: the group, this consumer, and the span of ids per stream.
    pub(super) fn write_batch(&self, cmd: &mut Cmd, places: &[Place]) {
        cmd.arg(self.group()).arg(self.consumer());
        for lane in [Lane::Source, Lane::Retry] {
            let ids = places
                .iter()
                .filter(|place| place.lane == lane)
                .map(|place| place.id);
            let text = |id: Option<EntryId>| id.map_or_else(String::new, |id| id.to_string());
            cmd.arg(text(ids.clone().min())).arg(text(ids.max()));
        }
    }
}

fn refused(key: &str, reason: RefusalReason) -> Settled {
    Settled::Refused(Refusal {
        key: key.to_owned(),
        reason,
    })
}
