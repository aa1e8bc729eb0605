//! Questions to the test's Redis, each on a connection of its own, so that a restart in between disturbs nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult};

/// Longer than any answer, shorter than any test.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Entries added in one round trip.
const BATCH: usize = 500;

/// Names and values of an entry.
pub(crate) type Pairs = Vec<(String, String)>;
/// What the stream commands answer: entries with their names and values in turn.
type Entries = Vec<(String, Vec<String>)>;

#[derive(Clone)]
pub(crate) struct Db(redis::Client);

/// A dead letter, taken apart.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub(crate) id: String,
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) fields: Pairs,
}

impl DeadLetter {
    /// A pair of the context; empty when it is missing.
    pub(crate) fn says(&self, name: &str) -> &str {
        self.context.get(name).map_or("", String::as_str)
    }

    /// The entry's own `key`.
    pub(crate) fn key(&self) -> &str {
        let pair = self.fields.iter().find(|(name, _)| name == "key");
        pair.map_or("", |(_, value)| value.as_str())
    }
}

impl Db {
    pub(crate) fn at(url: &str) -> Self {
        Self(redis::Client::open(url).expect("the URL of the test's Redis"))
    }

    pub(crate) async fn connection(&self) -> RedisResult<redis::aio::MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN));
        self.0
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    pub(crate) async fn try_call<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let mut words = command.iter();
        let mut call = redis::cmd(words.next().expect("a command"));
        for word in words {
            call.arg(*word);
        }
        call.query_async(&mut self.connection().await?).await
    }

    pub(crate) async fn call<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let answer = self.try_call(command).await;
        answer.unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Adds entries in order.
    pub(crate) async fn add_all(&self, stream: &str, entries: &[Pairs]) {
        let mut connection = self.connection().await.expect("the test's Redis answers");
        for batch in entries.chunks(BATCH) {
            let mut pipe = redis::pipe();
            for pairs in batch {
                pipe.cmd("XADD").arg(stream).arg("*").arg(pairs).ignore();
            }
            let added: RedisResult<()> = pipe.query_async(&mut connection).await;
            added.unwrap_or_else(|error| panic!("XADD {stream}: {error}"));
        }
    }

    /// The number of entries in a stream, or members in a set; 0 without the key.
    pub(crate) async fn size(&self, key: &str) -> u64 {
        let kind: String = self.call(&["TYPE", key]).await;
        match kind.as_str() {
            "zset" => self.call(&["ZCARD", key]).await,
            "hash" => self.call(&["HLEN", key]).await,
            "none" => 0,
            _ => self.call(&["XLEN", key]).await,
        }
    }

    /// Entries delivered to the group and not acknowledged; 0 without the stream or the group.
    pub(crate) async fn pending_in(&self, stream: &str, group: &str) -> u64 {
        let answer: RedisResult<redis::Value> = self.try_call(&["XPENDING", stream, group]).await;
        match answer {
            Ok(redis::Value::Array(items)) => match items.first() {
                Some(redis::Value::Int(count)) => u64::try_from(*count).expect("a count"),
                other => panic!("XPENDING {stream}: {other:?}"),
            },
            Ok(other) => panic!("XPENDING {stream}: {other:?}"),
            Err(error) if error.code() == Some("NOGROUP") => 0,
            Err(error) => panic!("XPENDING {stream}: {error}"),
        }
    }

    /// All entries of a stream, as names and values.
    pub(crate) async fn entries(&self, stream: &str) -> Vec<(String, Pairs)> {
        let all: Entries = self.call(&["XRANGE", stream, "-", "+"]).await;
        all.into_iter()
            .map(|(id, words)| (id, pairs(&words)))
            .collect()
    }

    /// How often each value of the field `key` is in a stream.
    pub(crate) async fn count_by_key(&self, stream: &str) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for (_, pairs) in self.entries(stream).await {
            for (_, value) in pairs.into_iter().filter(|(name, _)| name == "key") {
                *counts.entry(value).or_insert(0) += 1;
            }
        }
        counts
    }

    /// The dead letters in a stream: context first, then `fields` = n, then the n pairs of the entry.
    pub(crate) async fn dead_letters(&self, stream: &str) -> Vec<DeadLetter> {
        let mut letters = Vec::new();
        for (id, pairs) in self.entries(stream).await {
            let at = pairs.iter().position(|(name, _)| name == "fields");
            let at = at.unwrap_or_else(|| panic!("dead letter {id} has no pair `fields`"));
            let fields = pairs[at + 1..].to_vec();
            assert_eq!(pairs[at].1, fields.len().to_string(), "dead letter {id}");
            letters.push(DeadLetter {
                id,
                context: pairs.into_iter().take(at).collect(),
                fields,
            });
        }
        letters
    }
}

fn pairs(words: &[String]) -> Pairs {
    words
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}
