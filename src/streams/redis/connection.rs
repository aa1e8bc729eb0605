//! Opens connections: address, credentials, timeouts. Knows nothing of streams.

use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, Value,
};

use super::error::{self, Place};
use crate::streams::{Credentials, Error, Settings, Unreachable};

/// A peer that vanished without a word is noticed after this long, also while nothing is sent.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);

/// Where and as whom to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// The database's number.
    pub database: u32,
    /// User and password.
    pub credentials: Credentials,
    /// The limit of one attempt.
    pub connect_timeout: Duration,
    /// The limit of one command.
    pub command_timeout: Duration,
}

impl From<&Settings> for Target {
    fn from(settings: &Settings) -> Self {
        Self {
            address: settings.address.clone(),
            database: settings.database,
            credentials: settings.credentials.clone(),
            connect_timeout: settings.connect_timeout,
            command_timeout: settings.command_timeout,
        }
    }
}

/// Opens one connection, authenticates and selects the database. Credential files are read now.
///
/// # Errors
/// [`Error::Unreachable`], [`Error::CredentialsUnreadable`], [`Error::AuthenticationFailed`], or what the server answered.
pub async fn connect(target: &Target) -> Result<MultiplexedConnection, Error> {
    let attempt = tokio::time::timeout(target.connect_timeout, open(target));
    attempt
        .await
        .unwrap_or_else(|_| Err(unreachable(target, Unreachable::Timeout)))
}

async fn open(target: &Target) -> Result<MultiplexedConnection, Error> {
    let (host, port) = host_and_port(&target.address)
        .ok_or_else(|| unreachable(target, Unreachable::DnsFailure))?;
    // The client looks it up again; here the answer only tells a bad name from a bad network.
    if tokio::net::lookup_host((host, port)).await.is_err() {
        return Err(unreachable(target, Unreachable::DnsFailure));
    }
    let login = login(target).await?;
    let to_error = |error| of_connect(&error, target);
    // RESP2 has one reply shape on every server version.
    let resp2 = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP2)
        .set_skip_set_lib_name();
    let info = ConnectionAddr::Tcp(host.to_owned(), port)
        .into_connection_info()
        .map_err(to_error)?
        .set_tcp_settings(tcp_settings(target))
        .set_redis_settings(resp2);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(target.connect_timeout))
        .set_response_timeout(Some(target.command_timeout));
    let client = Client::open(info).map_err(to_error)?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(to_error)?;
    enter(&mut connection, login, target).await?;
    Ok(connection)
}

/// Authenticates and selects the database, or else has one answer, which tells what is at the other end. By hand, since the client's own way drops the server's words.
async fn enter(
    connection: &mut MultiplexedConnection,
    login: Option<Login>,
    target: &Target,
) -> Result<(), Error> {
    let is_strange = login.is_none() && target.database == 0;
    if let Some(Login { username, password }) = login {
        let mut auth = redis::cmd("AUTH");
        auth.arg(username).arg(password);
        let authenticated = auth.query_async::<Value>(connection).await;
        authenticated.map_err(|error| of_auth(&error, target))?;
    }
    if target.database > 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(target.database);
        let selected = select.query_async::<Value>(connection).await;
        selected.map_err(|error| of_select(&error, target))?;
    }
    if is_strange {
        let answered = redis::cmd("PING").query_async::<Value>(connection).await;
        match answered.map_err(|error| of_connect(&error, target)) {
            // Who may not ask has an answer all the same.
            Ok(_) | Err(Error::Denied { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn of_auth(error: &redis::RedisError, target: &Target) -> Error {
    let named = of_connect(error, target);
    // A server without passwords takes none, and has no code to say so.
    if error.code().is_some() && matches!(named, Error::Protocol { .. }) {
        return Error::AuthenticationFailed {
            address: target.address.clone(),
            given: true,
        };
    }
    named
}

fn of_select(error: &redis::RedisError, target: &Target) -> Error {
    let is_out_of_range = |detail: &str| detail.contains("DB index is out of range");
    if error.detail().is_some_and(is_out_of_range) {
        let (address, database) = (&target.address, target.database);
        return Error::Protocol {
            command: "",
            detail: format!("{address} has no database {database}: lower `redis.database`"),
        };
    }
    of_connect(error, target)
}

fn of_connect(error: &redis::RedisError, target: &Target) -> Error {
    let place = Place {
        address: &target.address,
        stream: "",
        group: "",
        command: "CONNECT",
    };
    error::of_connect(error, place)
}

fn unreachable(target: &Target, reason: Unreachable) -> Error {
    Error::Unreachable {
        address: target.address.clone(),
        reason,
    }
}

/// `host:port`, the host perhaps an IPv6 address in brackets.
fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bare = host
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'));
    Some((bare.unwrap_or(host), port.parse().ok()?))
}

/// The client's own defaults delay small writes and never notice a peer that vanished.
fn tcp_settings(target: &Target) -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_AFTER / 2);
    TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        .set_user_timeout(target.command_timeout.max(KEEPALIVE_AFTER))
}

/// What AUTH is asked with.
struct Login {
    username: Option<String>,
    password: String,
}

/// User and password, as they are: never through a URL, whose rules would bend them.
async fn login(target: &Target) -> Result<Option<Login>, Error> {
    let (username, password) = match &target.credentials {
        Credentials::None => return Ok(None),
        Credentials::Inline { username, password } => (username.clone(), password.clone()),
        Credentials::Files { username, password } => {
            let username = match username {
                Some(path) => Some(secret(path).await?),
                None => None,
            };
            (username, secret(password).await?)
        }
    };
    Ok(Some(Login { username, password }))
}

/// A file's text without one trailing line end, which editors and `kubectl create secret --from-file` leave behind.
async fn secret(path: &Path) -> Result<String, Error> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|error| Error::CredentialsUnreadable {
        path: path.display().to_string(),
        reason: error.kind().to_string(),
    })?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_split_at_the_last_colon() {
        assert_eq!(host_and_port("redis:6379"), Some(("redis", 6379)));
        assert_eq!(host_and_port("[::1]:6379"), Some(("::1", 6379)));
        for bad in ["redis", "redis:", "redis:x", "redis:70000"] {
            assert_eq!(host_and_port(bad), None);
        }
    }
}
