//! Reports of workers, the group's durable position, and the end of consumers.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::reply::{self, Parsed};
use super::{RedisBroker, Script, lua, millis_up, preflight};
use crate::streams::{ConsumerName, Error, Reported};

static REPORT: LazyLock<Script> = lua!("report", after "ids");
static RETIRE: LazyLock<Script> = lua!("retire");

impl RedisBroker {
    pub(super) async fn write_report(
        &self,
        body: &str,
        every: Duration,
        visibility: Duration,
    ) -> Result<Reported, Error> {
        let Some(rest) = rest_of_object(body) else {
            return Err(Error::Protocol {
                command: "report",
                detail: "the report is not a JSON object".to_owned(),
            });
        };
        let keys = &self.settings.keys;
        let keys = [self.source(), &keys.workers, &keys.cursor];
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(self.group()).arg(self.consumer()).arg(&rest);
            cmd.arg(millis_up(every)).arg(millis_up(visibility));
        };
        let reply = self.script(&REPORT, &keys, arguments).await?;
        let parsed = reply::exactly(reply).and_then(|[now, outage, lost]| {
            let outage = reply::int(outage)? == 1;
            Ok((
                reply::count(now)?,
                Reported {
                    outage,
                    lost: reply::count(lost)?,
                },
            ))
        });
        let (now, reported) = parsed.map_err(|odd| odd.in_reply_to(REPORT.name()))?;
        self.saw_server_time(now);
        Ok(reported)
    }

    pub(super) async fn retire_self(&self) -> Result<u64, Error> {
        self.retire_consumer(self.consumer(), true, &[]).await
    }

    pub(super) async fn retire_others(&self, older_than: Duration) -> Result<u64, Error> {
        let mut pipe = Pipeline::new();
        pipe.cmd("TIME");
        pipe.cmd("HGETALL").arg(&self.settings.keys.workers);
        pipe.cmd("XINFO")
            .arg("CONSUMERS")
            .arg(self.source())
            .arg(self.group());
        pipe.cmd("XINFO")
            .arg("CONSUMERS")
            .arg(self.retry())
            .arg(self.group());
        let mut answers = Vec::new();
        for answer in self.run_all("retire", &pipe).await? {
            if let Some(error) = preflight::server_error(&answer) {
                return Err(self.ended_by("retire", &error).await);
            }
            answers.push(answer);
        }
        let (now, consumers) = parse_consumers(answers).map_err(|odd| odd.in_reply_to("retire"))?;
        let oldest = now.saturating_sub(millis_up(older_than));
        let mut retired = 0;
        for (name, report) in consumers {
            let is_other = name != self.consumer() && ConsumerName::new(&name).is_ours();
            if is_other && reported_at(&report).is_none_or(|at| at < oldest) {
                retired += self.retire_consumer(&name, false, &report).await?;
            }
        }
        Ok(retired)
    }

    async fn retire_consumer(&self, name: &str, own: bool, report: &[u8]) -> Result<u64, Error> {
        let keys = [self.source(), self.retry(), &self.settings.keys.workers];
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(self.group())
                .arg(name)
                .arg(u8::from(own))
                .arg(report);
        };
        let reply = self.script(&RETIRE, &keys, arguments).await?;
        reply::count(reply).map_err(|odd| odd.in_reply_to(RETIRE.name()))
    }
}

/// What follows `{"at":<now>` where `body` is a JSON object: its members after a comma, and the closing brace.
fn rest_of_object(body: &str) -> Option<String> {
    let members = body.trim().strip_prefix('{')?.trim_start();
    if !members.ends_with('}') {
        return None;
    }
    let comma = if members == "}" { "" } else { "," };
    Some(format!("{comma}{members}"))
}

/// When a report was written, in ms; `None` if there is none, or it cannot be read.
fn reported_at(report: &[u8]) -> Option<u64> {
    let report = serde_json::from_slice::<serde_json::Value>(report).ok()?;
    report.get("at")?.as_u64()
}

/// The server's time in ms, and every consumer that has a report or is known to a group, with its report.
fn parse_consumers(answers: Vec<Value>) -> Parsed<(u64, BTreeMap<String, Vec<u8>>)> {
    let [time, reports, source, retry] = reply::exactly(Value::Array(answers))?;
    let [seconds, micros] = reply::exactly(time)?;
    let now = reply::count(seconds)? * 1000 + reply::count(micros)? / 1000;
    let mut consumers = BTreeMap::new();
    for (name, report) in reply::named(reports)? {
        consumers.insert(name, reply::bytes(report)?);
    }
    for consumer in reply::items(source)?
        .into_iter()
        .chain(reply::items(retry)?)
    {
        let mut consumer = reply::named(consumer)?;
        // A name that is not UTF-8 is none of ours.
        if let Some(Ok(name)) = reply::take(&mut consumer, "name").map(reply::text) {
            consumers.entry(name).or_default();
        }
    }
    Ok((now, consumers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_put_before_the_members_of_a_report() {
        let rest = |body| rest_of_object(body);
        assert_eq!(rest(r#"{"v":1}"#).as_deref(), Some(r#","v":1}"#));
        assert_eq!(rest(" { } ").as_deref(), Some("}"));
        assert_eq!(rest("[]"), None);
        assert_eq!(rest("{"), None);
    }

    #[test]
    fn a_report_without_a_time_is_as_good_as_none() {
        assert_eq!(reported_at(br#"{"at":5,"v":1}"#), Some(5));
        assert_eq!(reported_at(br#"{"v":1}"#), None);
        assert_eq!(reported_at(b""), None);
    }
}
