//! What is known of a server before the first entry: its kind, what it may evict, whether every key has its type, and
//! whether this user may do what safety rests on.

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::{RedisBroker, error, reply};
use crate::streams::{Error, Opened};

/// What INFO says, as far as a stage cares. Pure.
pub(super) fn judge(info: &str) -> Opened {
    let field = |name: &str| {
        info.lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    };
    // Valkey calls itself a Redis 7.2 in `redis_version`, for old clients.
    let (kind, version) = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => ("valkey", version),
        (None, version) => ("redis", version.unwrap_or("of unknown version")),
    };
    let mut warnings = Vec::new();
    let policy = field("maxmemory_policy").unwrap_or("noeviction");
    let limited = field("maxmemory").is_some_and(|bytes| bytes != "0");
    let unsafe_eviction = (limited && policy != "noeviction").then(|| policy.to_owned());
    if let Some(policy) = &unsafe_eviction {
        warnings.push(format!(
            "The server evicts keys when its memory is full (maxmemory-policy {policy}): entries or ledger records can vanish without a trace. Set it to noeviction."
        ));
    }
    if field("aof_enabled") == Some("0") {
        warnings.push(
            "Append-only persistence is off: what was added or acknowledged after the last snapshot is lost when the server restarts."
                .to_owned(),
        );
    }
    if field("rdb_last_bgsave_status") == Some("err") {
        warnings.push("The server's last snapshot failed.".to_owned());
    }
    Opened {
        server: format!("{kind} {version}"),
        warnings,
        unsafe_eviction,
        group_created_at: None,
    }
}

impl RedisBroker {
    /// Asks the server about itself. A user who may not ask can work all the same.
    pub(super) async fn ask_server(
        &self,
        committer: &mut MultiplexedConnection,
    ) -> Result<Opened, Error> {
        let info = redis::cmd("INFO").query_async::<Value>(committer).await;
        let info = info.map_err(|error| self.named("INFO", &error));
        if matches!(info, Err(Error::Denied { .. })) {
            return Ok(Opened {
                server: "unknown".to_owned(),
                warnings: vec![
                    "This user may not run INFO: eviction and persistence were not checked."
                        .to_owned(),
                ],
                ..Opened::default()
            });
        }
        let text = reply::bytes(info?).map_err(|odd| odd.in_reply_to("INFO"))?;
        Ok(judge(&String::from_utf8_lossy(&text)))
    }

    /// Checks the type of every fixed key. Streams that only receive adds are refused later, per settlement.
    pub(super) async fn check_types(
        &self,
        committer: &mut MultiplexedConnection,
        warnings: &mut Vec<String>,
    ) -> Result<(), Error> {
        if let Some(error) = self.wrong_type(committer).await {
            return Err(error);
        }
        let dead = self.settings.keys.dead.as_str();
        let output = self.settings.output.as_ref();
        let added_to = [Some(dead), output.map(crate::streams::StreamKey::as_str)];
        let streams = added_to.into_iter().flatten().map(|key| (key, "stream"));
        let streams = streams.collect::<Vec<_>>();
        if let Some((key, _)) = first_of_wrong_type(committer, &streams).await {
            warnings.push(format!(
                "Key {key} is not a stream: settlements that append to it will be refused."
            ));
        }
        Ok(())
    }

    /// The first of the keys a stage lives in that holds another type; `None` too where we may not ask.
    pub(super) async fn wrong_type(&self, committer: &mut MultiplexedConnection) -> Option<Error> {
        let keys = &self.settings.keys;
        let fixed = [
            (keys.source.as_str(), "stream"),
            (keys.retry.as_str(), "stream"),
            (keys.delayed.as_str(), "zset"),
            (keys.workers.as_str(), "hash"),
            (keys.cursor.as_str(), "hash"),
        ];
        let (key, expected) = first_of_wrong_type(committer, &fixed).await?;
        Some(Error::WrongType {
            key: key.to_owned(),
            expected,
        })
    }
}

/// Names that nothing has: what is asked of them changes nothing.
const NO_ENTRY: &str = "0-0";
const NO_MEMBER: &str = "streamstage: no member";

impl RedisBroker {
    /// Tries, on nothing, the claims and removals that safety rests on: who may add and not remove adds again and again.
    ///
    /// None of these commands needs memory, so they tell the truth on a full server too. The groups must be there.
    pub(super) async fn check_permissions(
        &self,
        committer: &mut MultiplexedConnection,
    ) -> Result<(), Error> {
        let (commands, pipe) = self.probes();
        let answers = committer.send_packed_commands(&pipe, 0, pipe.len()).await;
        let answers = answers.map_err(|error| self.named("PREFLIGHT", &error))?;
        for (command, answer) in commands.into_iter().zip(&answers) {
            if let Some(error) = server_error(answer) {
                return Err(self.named(command, &error));
            }
        }
        Ok(())
    }

    fn probes(&self) -> (Vec<&'static str>, Pipeline) {
        let (mut commands, mut pipe) = (Vec::new(), Pipeline::new());
        let mut probe = |command: &'static str, arguments: &[&str]| {
            commands.push(command);
            pipe.cmd(command).arg(arguments);
        };
        let (group, consumer) = (self.group(), self.consumer());
        for stream in [self.source(), self.retry()] {
            probe("XPENDING", &[stream, group, NO_ENTRY, NO_ENTRY, "1"]);
            probe(
                "XCLAIM",
                &[stream, group, consumer, "0", NO_ENTRY, "JUSTID"],
            );
            probe("XACK", &[stream, group, NO_ENTRY]);
        }
        probe("XDEL", &[self.retry(), NO_ENTRY]);
        probe("ZREM", &[&self.settings.keys.delayed, NO_MEMBER]);
        (commands, pipe)
    }
}

async fn first_of_wrong_type<'a>(
    committer: &mut MultiplexedConnection,
    keys: &[(&'a str, &'static str)],
) -> Option<(&'a str, &'static str)> {
    let mut pipe = Pipeline::new();
    for (key, _) in keys {
        pipe.cmd("TYPE").arg(*key);
    }
    let types = committer.send_packed_commands(&pipe, 0, pipe.len()).await;
    let types = types.ok()?.into_iter().map(reply::text);
    keys.iter()
        .zip(types)
        .find(|((_, expected), found)| match found {
            Ok(found) => found != "none" && found != expected,
            Err(_) => false,
        })
        .map(|(key, _)| *key)
}

/// The server error inside a pipeline's answer, if it is one.
pub(super) fn server_error(value: &Value) -> Option<redis::RedisError> {
    if let Value::ServerError(error) = value {
        return Some(error.clone().into());
    }
    None
}

/// Whether a server error has this code.
pub(super) fn has_code(error: &redis::RedisError, code: &str) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.code() == Some(code) || error::code_of(detail) == code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_known_by_its_own_version() {
        let info = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n";
        assert_eq!(judge(info).server, "valkey 8.0.1");
        assert_eq!(judge("redis_version:7.0.15\r\n").server, "redis 7.0.15");
    }

    #[test]
    fn eviction_is_unsafe_only_where_memory_is_limited() {
        let judged = |limit: &str, policy: &str| {
            judge(&format!(
                "maxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n"
            ))
            .unsafe_eviction
        };
        assert_eq!(judged("0", "allkeys-lru"), None);
        assert_eq!(judged("100", "noeviction"), None);
        assert_eq!(
            judged("100", "volatile-ttl").as_deref(),
            Some("volatile-ttl")
        );
    }

    #[test]
    fn missing_persistence_is_said_in_a_sentence() {
        assert_eq!(judge("aof_enabled:1\r\n").warnings, Vec::<String>::new());
        assert_eq!(judge("aof_enabled:0\r\n").warnings.len(), 1);
    }
}
