//! Dead-letters an entry of more values than a script can pass on: added first, confirmed or taken back after.

use redis::{Cmd, Pipeline, Value};

use super::call::{write_appended, write_place};
use super::{CONFIRM, RedisBroker, refused};
use crate::streams::redis::{error, preflight, reply};
use crate::streams::{Error, Lane, Settle, Settled};

/// An id that no entry has.
const NO_ENTRY: &str = "0-0";

impl RedisBroker {
    pub(super) async fn append_wide(&self, settle: &Settle) -> Result<Settled, Error> {
        if let Some(answer) = self.hindrance(settle).await? {
            return Ok(answer);
        }
        let dead = self.settings.keys.dead.as_str();
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
            return self.or_refused("XADD", &error, dead).await;
        }
        let letter = reply::text(added).map_err(|odd| odd.in_reply_to("XADD"))?;
        self.confirm(settle, &letter).await
    }

    /// Why nothing is to be added: the entry is not ours, or what comes after the add is forbidden.
    async fn hindrance(&self, settle: &Settle) -> Result<Option<Settled>, Error> {
        let (keys, place) = (&self.settings.keys, settle.entry.place);
        let stream = keys.stream(place.lane).as_str();
        let mut asked = vec![("XPENDING", stream), ("XACK", stream)];
        asked.push(("XDEL", keys.dead.as_str()));
        if place.lane == Lane::Retry {
            asked.push(("XDEL", stream));
        }
        let mut pipe = Pipeline::new();
        for (command, key) in &asked {
            let cmd = pipe.cmd(command).arg(*key);
            match *command {
                "XPENDING" => {
                    let id = place.id.to_string();
                    cmd.arg(self.group()).arg(&id).arg(&id).arg(1);
                    cmd.arg(self.consumer());
                }
                "XACK" => {
                    cmd.arg(self.group()).arg(NO_ENTRY);
                }
                _ => {
                    cmd.arg(NO_ENTRY);
                }
            }
        }
        let replies = self.run_all("XPENDING", &pipe).await?;
        for ((command, key), reply) in asked.iter().zip(&replies) {
            if let Some(error) = preflight::server_error(reply) {
                return self.or_refused(command, &error, key).await.map(Some);
            }
        }
        let rows = reply::items(replies.into_iter().next().unwrap_or_default());
        let rows = rows.map_err(|odd| odd.in_reply_to("XPENDING"))?;
        Ok((rows.is_empty() && !settle.unowned).then_some(Settled::NotOurs))
    }

    async fn confirm(&self, settle: &Settle, letter: &str) -> Result<Settled, Error> {
        let dead = self.settings.keys.dead.as_str();
        let arguments = |cmd: &mut Cmd| {
            self.write_batch(cmd, &[settle.entry.place]);
            write_place(cmd, settle);
            cmd.arg(letter);
        };
        let keys = [self.source(), self.retry(), dead];
        let error = match self.script(&CONFIRM, &keys, arguments).await {
            Ok(Value::Int(1)) => return Ok(Settled::Applied),
            Ok(_) => return Ok(Settled::NotOurs),
            Err(error) => error,
        };
        let Some(reason) = error::refusal_of_call(&error) else {
            return Err(error);
        };
        // Taken back only where it was not acknowledged all the same: better two letters than none.
        if !matches!(self.hindrance(settle).await?, Some(Settled::NotOurs)) {
            let mut take_back = redis::cmd("XDEL");
            take_back.arg(dead).arg(letter);
            self.run("XDEL", &take_back).await?;
        }
        Ok(refused(dead, reason))
    }
}
