//! A Redis URL as people write it, turned into an address, a database and credentials.
//!
//! Pure. Errors never repeat the URL: it may hold a password.

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::streams::Credentials;

/// The port where the URL names none.
const DEFAULT_PORT: u16 = 6379;

/// A server, a database and who we are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// `host:port`, an IPv6 host in brackets.
    pub address: String,
    /// The database's number.
    pub database: u32,
    /// User and password.
    pub credentials: Credentials,
}

/// The text is not a Redis URL that this build can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    /// No URL at all.
    #[error("this is not a URL: write redis://[user[:password]@]host[:port][/database]")]
    NotAUrl,
    /// TLS is asked for.
    #[error("`rediss://` needs TLS, which this version does not have yet: use redis://")]
    TlsUnsupported,
    /// The port is not a number, or none that a port can have.
    #[error(
        "the port must be a number from 1 to 65535, as in redis://host:6379 (a `:` in a password is written %3A)"
    )]
    Port,
    /// A character that ends a part of the URL stands before the `@`.
    #[error(
        "percent-encode what stands in the user or the password: `/` is written %2F, `#` %23, `?` %3F, `@` %40"
    )]
    NotEncoded,
    /// Another scheme.
    #[error("the scheme must be redis://")]
    Scheme,
    /// No host.
    #[error("the host is missing: write redis://host:6379")]
    HostMissing,
    /// The path is not a number.
    #[error("the database must be a number from 0 to 1023, as in redis://host:6379/2")]
    Database,
    /// A query or a fragment.
    #[error("nothing may follow the database, as in redis://host:6379/2")]
    Trailing,
    /// The user or the password is not text after decoding.
    #[error("user and password must be UTF-8, percent-encoded where needed")]
    CredentialsNotText,
    /// A user without a password.
    #[error("a user needs a password: write redis://user:password@host, or redis://:password@host")]
    PasswordMissing,
}

impl RedisUrl {
    /// Reads `redis://[user[:password]@]host[:port][/database]`.
    pub fn parse(text: &str) -> Result<Self, RedisUrlError> {
        if is_cut_short(text) {
            return Err(RedisUrlError::NotEncoded);
        }
        let url = Url::parse(text).map_err(|error| {
            if error == url::ParseError::EmptyHost {
                RedisUrlError::HostMissing
            } else if error == url::ParseError::InvalidPort {
                RedisUrlError::Port
            } else {
                RedisUrlError::NotAUrl
            }
        })?;
        match url.scheme() {
            "redis" => {}
            "rediss" => return Err(RedisUrlError::TlsUnsupported),
            _ => return Err(RedisUrlError::Scheme),
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(RedisUrlError::Trailing);
        }
        Ok(Self {
            address: address(&url)?,
            database: database(url.path())?,
            credentials: credentials(&url)?,
        })
    }
}

/// Whether the part before the last `@` holds what would end it earlier.
fn is_cut_short(text: &str) -> bool {
    let behind_scheme = text.split_once("://").map_or("", |(_, rest)| rest);
    let credentials = behind_scheme.rsplit_once('@').map(|(before, _)| before);
    credentials.is_some_and(|credentials| credentials.contains(['/', '#', '?']))
}

fn address(url: &Url) -> Result<String, RedisUrlError> {
    let port = url.port().unwrap_or(DEFAULT_PORT);
    if port == 0 {
        return Err(RedisUrlError::Port);
    }
    match url.host() {
        Some(Host::Domain("")) | None => Err(RedisUrlError::HostMissing),
        Some(host @ (Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_))) => {
            Ok(format!("{host}:{port}"))
        }
    }
}

fn database(path: &str) -> Result<u32, RedisUrlError> {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(0),
        number if number.bytes().all(|byte| byte.is_ascii_digit()) => number
            .parse()
            .ok()
            .filter(|number| *number <= 1023)
            .ok_or(RedisUrlError::Database),
        _ => Err(RedisUrlError::Database),
    }
}

fn credentials(url: &Url) -> Result<Credentials, RedisUrlError> {
    let decoded = |text: &str| {
        percent_decode_str(text)
            .decode_utf8()
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| RedisUrlError::CredentialsNotText)
    };
    let username = Some(decoded(url.username())?).filter(|name| !name.is_empty());
    match (username, url.password()) {
        (None, None) => Ok(Credentials::None),
        (Some(_), None) => Err(RedisUrlError::PasswordMissing),
        (username, Some(password)) => Ok(Credentials::Inline {
            username,
            password: decoded(password)?,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline(username: Option<&str>, password: &str) -> Credentials {
        Credentials::Inline {
            username: username.map(str::to_owned),
            password: password.to_owned(),
        }
    }

    #[test]
    fn every_part_of_a_url_is_read_and_the_rest_has_defaults() {
        let rows = [
            ("redis://host", "host:6379", 0, Credentials::None),
            ("redis://host/", "host:6379", 0, Credentials::None),
            (
                "redis://10.0.0.7:7000/3",
                "10.0.0.7:7000",
                3,
                Credentials::None,
            ),
            (
                "redis://[::1]:7000/1023",
                "[::1]:7000",
                1023,
                Credentials::None,
            ),
            ("redis://:pw@host", "host:6379", 0, inline(None, "pw")),
            (
                "redis://u:pw@host:1/2",
                "host:1",
                2,
                inline(Some("u"), "pw"),
            ),
            (
                "redis://u%40x:p%2F%3A%25@host",
                "host:6379",
                0,
                inline(Some("u@x"), "p/:%"),
            ),
            (
                "redis://:%C3%A9@host",
                "host:6379",
                0,
                inline(None, "\u{e9}"),
            ),
        ];
        for (text, address, database, credentials) in rows {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!(
                (url.address.as_str(), url.database, url.credentials),
                (address, database, credentials),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name_and_the_password_is_never_repeated() {
        let rows = [
            ("host:6379", RedisUrlError::Scheme),
            ("", RedisUrlError::NotAUrl),
            ("redis://", RedisUrlError::HostMissing),
            ("redis:///2", RedisUrlError::HostMissing),
            ("redis://:s3cret@:1", RedisUrlError::HostMissing),
            ("rediss://:s3cret@host", RedisUrlError::TlsUnsupported),
            ("http://:s3cret@host", RedisUrlError::Scheme),
            ("redis://:s3cret@host:port", RedisUrlError::Port),
            ("redis://:s3cret@host:70000", RedisUrlError::Port),
            ("redis://:s3cret@host:0", RedisUrlError::Port),
            ("redis://:s3cret/tail@host", RedisUrlError::NotEncoded),
            ("redis://:s3cret?tail@host", RedisUrlError::NotEncoded),
            ("redis://:s3cret@tail/x@host", RedisUrlError::NotEncoded),
            ("redis://:s3cret@host/x", RedisUrlError::Database),
            ("redis://:s3cret@host/1024", RedisUrlError::Database),
            ("redis://:s3cret@host/1/2", RedisUrlError::Database),
            ("redis://:s3cret@host/-1", RedisUrlError::Database),
            ("redis://:s3cret@host/1?x=1", RedisUrlError::Trailing),
            ("redis://:s3cret#tail@host", RedisUrlError::NotEncoded),
            ("redis://:s3cret%FF@host", RedisUrlError::CredentialsNotText),
            ("redis://user@host", RedisUrlError::PasswordMissing),
        ];
        for (text, expected) in rows {
            let error = RedisUrl::parse(text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains("s3cret"), "{text}");
        }
        let url = RedisUrl::parse("redis://:s3cret@host").unwrap();
        assert!(!format!("{url:?}").contains("s3cret"));
    }
}
