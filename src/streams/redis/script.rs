//! Runs the Lua scripts: by hash, and by text where the server does not know the hash (yet, or after a restart).

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

/// A script and the name that errors give it.
///
/// No shebang: on a full server a script that has one is refused whole, even where it only removes.
#[derive(Debug)]
pub(crate) struct Script {
    name: &'static str,
    code: &'static str,
    hash: redis::Script,
}

impl Script {
    /// A script of `code`.
    pub(crate) fn new(name: &'static str, code: &'static str) -> Self {
        Self {
            name,
            code,
            hash: redis::Script::new(code),
        }
    }

    /// Its name in errors.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it over `keys`; `arguments` writes ARGV, a second time if the server has to be taught the script.
    pub(crate) async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Value, RedisError> {
        let by_hash = command("EVALSHA", self.hash.get_hash(), keys, &arguments);
        match by_hash.query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let by_code = command("EVAL", self.code, keys, &arguments);
                by_code.query_async(connection).await
            }
            result => result,
        }
    }
}

fn command(verb: &str, script: &str, keys: &[&str], arguments: &impl Fn(&mut Cmd)) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(script).arg(keys.len()).arg(keys);
    arguments(&mut command);
    command
}
