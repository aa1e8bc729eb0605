//! Reads new entries: parked on the reader, or at once from `P:retry`; and asks the ledger.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::reply::{self, Odd, Parsed};
use super::{RedisBroker, millis_up};
use crate::streams::{Delivery, Entry, Error, IdempotencyKey, Lane, MAX_BATCH, Place};

/// How often an unblock is sent again to a read that was on its way to the server, and how long between two.
const UNBLOCK_TRIES: u32 = 20;
const UNBLOCK_PAUSE: Duration = Duration::from_millis(2);

impl RedisBroker {
    pub(super) async fn read_due(&self, count: usize) -> Result<Vec<Delivery>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut read = self.group_read(count);
        read.arg("STREAMS").arg(self.retry()).arg(">");
        let reply = self.run("XREADGROUP", &read).await?;
        self.deliveries(reply)
    }

    pub(super) async fn read_blocking(
        &self,
        count: usize,
        block: Duration,
    ) -> Result<Vec<Delivery>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut link = self.link()?;
        let block = millis_up(block).max(1);
        let mut read = self.group_read(count);
        read.arg("BLOCK").arg(block).arg("STREAMS");
        read.arg(self.source()).arg(self.retry()).arg(">").arg(">");
        // The answer may come this late; giving up earlier would leave what it brings with nobody.
        let limit = Duration::from_millis(block).saturating_add(self.settings.command_timeout);
        link.reader.set_response_timeout(limit);

        self.reading.store(true, Ordering::Release);
        let reply = read.query_async::<Value>(&mut link.reader).await;
        self.reading.store(false, Ordering::Release);
        match reply {
            Ok(reply) => self.deliveries(reply),
            Err(error) => Err(self.ended(&mut link, "XREADGROUP", &error).await),
        }
    }

    pub(super) async fn unblock_reader(&self) -> Result<(), Error> {
        let Some(reader) = self.link()?.reader_id else {
            return Ok(());
        };
        let mut unblock = redis::cmd("CLIENT");
        unblock.arg("UNBLOCK").arg(reader);
        for _ in 0..UNBLOCK_TRIES {
            let answer = self.run("CLIENT UNBLOCK", &unblock).await?;
            if answer != Value::Int(0) || !self.reading.load(Ordering::Acquire) {
                break;
            }
            // The two connections race: the read may have been sent first and arrive last.
            tokio::time::sleep(UNBLOCK_PAUSE).await;
        }
        Ok(())
    }

    pub(super) async fn ledger_knows(&self, keys: &[IdempotencyKey]) -> Result<Vec<bool>, Error> {
        if self.settings.ledger_window.is_none() {
            return Ok(vec![false; keys.len()]);
        }
        let mut known = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_BATCH) {
            let mut pipe = Pipeline::new();
            for key in keys {
                pipe.cmd("EXISTS").arg(self.ledger_key(key));
            }
            for answer in self.run_all("EXISTS", &pipe).await? {
                if let Some(error) = super::preflight::server_error(&answer) {
                    return Err(self.ended_by("EXISTS", &error).await);
                }
                known.push(answer == Value::Int(1));
            }
        }
        Ok(known)
    }

    pub(super) fn ledger_key(&self, key: &IdempotencyKey) -> String {
        format!("{}{key}", self.settings.keys.done_prefix)
    }

    fn group_read(&self, count: usize) -> Cmd {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP")
            .arg(self.group())
            .arg(self.consumer())
            .arg("COUNT")
            .arg(count);
        read
    }

    fn deliveries(&self, reply: Value) -> Result<Vec<Delivery>, Error> {
        self.parse_deliveries(reply)
            .map_err(|odd| odd.in_reply_to("XREADGROUP"))
    }

    fn parse_deliveries(&self, reply: Value) -> Parsed<Vec<Delivery>> {
        let mut deliveries = Vec::new();
        for stream in reply::items(reply)? {
            let [key, entries] = reply::exactly(stream)?;
            let lane = self.lane_of(&reply::bytes(key)?)?;
            for entry in reply::items(entries)? {
                let [id, fields] = reply::exactly(entry)?;
                let (id, fields) = (reply::id(id)?, reply::fields(fields)?);
                deliveries.push(Delivery {
                    entry: Arc::new(Entry::met(Place { lane, id }, fields, self.seen_at())),
                    count: 1,
                });
            }
        }
        Ok(deliveries)
    }

    fn lane_of(&self, key: &[u8]) -> Parsed<Lane> {
        match key {
            key if key == self.source().as_bytes() => Ok(Lane::Source),
            key if key == self.retry().as_bytes() => Ok(Lane::Retry),
            _ => Err(Odd("one of the streams asked for")),
        }
    }
}
