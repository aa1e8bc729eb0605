//! Settles entries: sorts a batch by kind, cuts it to what one script call carries, and reads the answers.
//!
//! Every kind goes in calls of its own, so that a missing permission or a wrong key type hurts only entries that need
//! that key. In a cluster an output or dead-letter stream must lie in the slot of S: elsewhere its adds are refused.
//! Read next: `ours.lua`, `settle.lua`, `commit.lua`.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::{RedisBroker, Script, delayed, error, lua, millis_up, preflight};
use crate::streams::{
    EntryId, Error, Fields, IdempotencyKey, Lane, MAX_VALUES, Place, Refusal, RefusalReason,
    Settle, Settled, Settlement, StreamKey,
};

mod call;
mod sheet;
mod wide;

use call::{
    Answer, Numbered, appended_values, calls, commit_of, parse_answers, values_in, write_appended,
    write_place,
};
pub(super) use call::{MAX_BYTES, write_fields, write_lane};
use sheet::Sheet;

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
    /// Nothing can carry it: too wide for a script, or outputs of a stage that has nowhere to put them.
    Unfit,
}

const KINDS: [Kind; 8] = [
    Kind::Acknowledge,
    Kind::Commit,
    Kind::CommitOutputs,
    Kind::Retry,
    Kind::DeadLetter,
    Kind::WideDeadLetter,
    Kind::Release,
    Kind::Unfit,
];

/// An answer per entry of a call, or the error that ended the session before it.
type Answers = Vec<Result<Settled, Error>>;

impl RedisBroker {
    /// The first error ends it, and is the answer unless something had been answered before: that is never hidden.
    pub(super) async fn settle_batch(&self, batch: &[Settle]) -> Result<Vec<Settled>, Error> {
        let mut sheet = Sheet::of(batch.len());
        for kind in KINDS {
            let of_kind = batch
                .iter()
                .enumerate()
                .filter(|(_, settle)| self.kind_of(settle) == kind)
                .collect::<Vec<_>>();
            for call in calls(&of_kind) {
                if sheet.has_ended() {
                    break;
                }
                sheet.write(call, self.settle_call(kind, call).await);
            }
        }
        sheet.close()
    }

    fn kind_of(&self, settle: &Settle) -> Kind {
        let fields = &settle.entry.fields;
        match &settle.settlement {
            Settlement::Commit { outputs, key, .. } => {
                let plain = outputs.is_empty() && self.recorded(key.as_ref()).is_none();
                match settle.entry.place.lane {
                    _ if outputs.iter().any(|output| values_in(output) > MAX_VALUES) => Kind::Unfit,
                    _ if !outputs.is_empty() && self.settings.output.is_none() => Kind::Unfit,
                    Lane::Source if plain => Kind::Acknowledge,
                    Lane::Source | Lane::Retry if outputs.is_empty() => Kind::Commit,
                    Lane::Source | Lane::Retry => Kind::CommitOutputs,
                }
            }
            // What `P:retry` takes has the meta beside its own values.
            Settlement::RetryAfter { .. } | Settlement::Release { .. }
                if values_in(fields) + 2 > MAX_VALUES =>
            {
                Kind::Unfit
            }
            Settlement::RetryAfter { .. } => Kind::Retry,
            Settlement::Release { .. } => Kind::Release,
            Settlement::DeadLetter { .. } if appended_values(settle) > MAX_VALUES => {
                Kind::WideDeadLetter
            }
            Settlement::DeadLetter { .. } => Kind::DeadLetter,
        }
    }

    async fn settle_call(&self, kind: Kind, call: &[Numbered<'_>]) -> Answers {
        let keys = &self.settings.keys;
        match kind {
            Kind::Acknowledge => self.acknowledge(call).await,
            // These add nothing: S stands where the output stream would.
            Kind::Commit => self.commit(call, self.source()).await,
            Kind::Unfit => self.refuse(call).await,
            Kind::CommitOutputs => {
                let output = self.settings.output.as_ref();
                let output = output.map_or(self.source(), StreamKey::as_str);
                self.commit(call, output).await
            }
            Kind::Retry => self.delay(call).await,
            Kind::DeadLetter => {
                let longest = self.settings.dead_max_length;
                self.append(call, keys.dead.as_str(), longest).await
            }
            Kind::WideDeadLetter => {
                let mut answers = Vec::with_capacity(call.len());
                for (_, settle) in call {
                    answers.push(self.append_wide(settle).await);
                }
                answers
            }
            Kind::Release => self.append(call, self.retry(), 0).await,
        }
    }

    /// A plain XACK each: the work was done, whoever holds the entry now.
    async fn acknowledge(&self, call: &[Numbered<'_>]) -> Answers {
        let mut pipe = Pipeline::new();
        for (_, settle) in call {
            let id = settle.entry.place.id.to_string();
            pipe.cmd("XACK")
                .arg(self.source())
                .arg(self.group())
                .arg(id);
        }
        let replies = match self.run_all("XACK", &pipe).await {
            Ok(replies) => replies,
            Err(error) => return each(call, |_| Err(error.clone())),
        };
        // It answers 0 for an entry that is not pending, and for a group that is not there.
        let in_doubt = replies.contains(&Value::Int(0));
        let group = if in_doubt {
            self.meets_group().await
        } else {
            Ok(())
        };
        let mut answers = Vec::with_capacity(call.len());
        for (reply, (_, settle)) in replies.into_iter().zip(call) {
            answers.push(match preflight::server_error(&reply) {
                Some(error) => self.or_refused("XACK", &error, self.source()).await,
                None if reply != Value::Int(0) => Ok(Settled::Applied),
                None if settle.unowned => group.clone().map(|()| Settled::Applied),
                None => group.clone().map(|()| Settled::NotOurs),
            });
        }
        answers
    }

    async fn commit(&self, call: &[Numbered<'_>], output: &str) -> Answers {
        let outputs = |cmd: &mut Cmd, outputs: &[Fields]| {
            cmd.arg(outputs.len());
            for output in outputs {
                cmd.arg(values_in(output));
                write_fields(cmd, output);
            }
        };
        self.commit_script(call, output, outputs).await
    }

    /// Answers as a commit would that could add nothing: not ours, known, or refused.
    async fn refuse(&self, call: &[Numbered<'_>]) -> Answers {
        let unfit = |cmd: &mut Cmd, _: &[Fields]| {
            cmd.arg(-1);
        };
        self.commit_script(call, self.source(), unfit).await
    }

    async fn commit_script(
        &self,
        call: &[Numbered<'_>],
        output: &str,
        write_outputs: impl Fn(&mut Cmd, &[Fields]) + Send + Sync,
    ) -> Answers {
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
                cmd.arg(u8::from(force)).arg(*ledger);
                write_outputs(cmd, outputs);
            }
        };
        self.settle_script(&COMMIT, call, &keys, arguments).await
    }

    async fn delay(&self, call: &[Numbered<'_>]) -> Answers {
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

    async fn append(&self, call: &[Numbered<'_>], stream: &str, longest: u64) -> Answers {
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

    /// Runs a settlement script over S, `P:retry` and `more` keys. What refuses it as a whole refuses each entry.
    async fn settle_script(
        &self,
        script: &Script,
        call: &[Numbered<'_>],
        more: &[String],
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Answers {
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
        let answers = self.script(script, &keys, arguments).await;
        let answers = answers.and_then(|reply| {
            parse_answers(reply, call.len()).map_err(|odd| odd.in_reply_to(script.name()))
        });
        match answers {
            Ok(answers) => {
                let answers = answers.into_iter().zip(call);
                let one = |(answer, (_, settle)): (_, &Numbered<'_>)| {
                    self.answer(answer, settle, script.name())
                };
                answers.map(one).collect()
            }
            Err(error) => match error::refusal_of_call(&error) {
                Some(reason) => each(call, |settle| Ok(refused(self.target_of(settle), reason))),
                None => each(call, |_| Err(error.clone())),
            },
        }
    }

    fn answer(
        &self,
        answer: Answer,
        settle: &Settle,
        script: &'static str,
    ) -> Result<Settled, Error> {
        match answer {
            Answer::Settled(settled) => Ok(settled),
            Answer::Unfit => Ok(match self.target_of(settle) {
                // `engine/outcome.rs` turns outputs that have nowhere to go into errors of the handler.
                "" => refused("", RefusalReason::Other),
                key => refused(key, RefusalReason::TooLarge),
            }),
            Answer::Error { key, text } => {
                let error = error::of_text(&text, self.place(script));
                error::refusal(error).map(|reason| refused(&key, reason))
            }
        }
    }

    /// A refusal, where a single command was refused for its key alone; else the error that ends the session.
    async fn or_refused(
        &self,
        command: &'static str,
        error: &redis::RedisError,
        key: &str,
    ) -> Result<Settled, Error> {
        let error = self.named(command, error);
        // A key the stage lives in is the whole session's concern, a stream that is only added to is not.
        if matches!(error, Error::WrongType { .. })
            && let Some(error) = self.wrong_type(&mut self.link()?.committer).await
        {
            return Err(error);
        }
        error::refusal(error).map(|reason| refused(key, reason))
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

fn each(call: &[Numbered<'_>], answer: impl Fn(&Settle) -> Result<Settled, Error>) -> Answers {
    call.iter().map(|(_, settle)| answer(settle)).collect()
}

fn refused(key: &str, reason: RefusalReason) -> Settled {
    Settled::Refused(Refusal {
        key: key.to_owned(),
        reason,
    })
}
