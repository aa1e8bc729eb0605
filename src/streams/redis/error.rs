//! What a server's errors mean to us, by their code. Texts are kept only where they can hold no value and no secret.
//!
//! Pure. Read next: `script.rs`, whose replies carry the same errors as text.

use redis::RedisError;

use crate::streams::{Error, RefusalReason, Unreachable};

/// What is said of a command that was not answered in time.
const NO_ANSWER: &str = "no answer in time";

/// What an error needs to be named with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// The server.
    pub(super) address: &'a str,
    /// The source stream.
    pub(super) stream: &'a str,
    /// The group.
    pub(super) group: &'a str,
    /// The command or script.
    pub(super) command: &'static str,
}

/// The error that ended a command on an open connection.
///
/// [`Error::WrongType`] comes without its key, which the server does not name: the caller asks for it.
pub(super) fn of_command(error: &RedisError, place: Place<'_>) -> Error {
    match server_text(error) {
        Some(text) => of_text(&text, place),
        None => Error::Disconnected {
            address: place.address.to_owned(),
            detail: client_text(error),
        },
    }
}

/// The error that a server put into words: code first.
pub(super) fn of_text(text: &str, place: Place<'_>) -> Error {
    match code_of(text) {
        code @ ("NOAUTH" | "WRONGPASS") => Error::AuthenticationFailed {
            address: place.address.to_owned(),
            given: code == "WRONGPASS",
        },
        // Redis says of a script neither command nor key: then the script's name is all there is.
        "NOPERM" => Error::Denied {
            what: short(&format!("{}: {}", where_in(place), without_code(text))),
        },
        "NOGROUP" | "UNBLOCKED" => group_missing(place),
        "ERR" if text.contains("no such key") => group_missing(place),
        "ERR" if text.contains("max number of clients reached") => Error::Loading {
            code: "max number of clients reached".to_owned(),
        },
        "WRONGTYPE" => Error::WrongType {
            key: "(not named by the server)".to_owned(),
            expected: "value of the type it needs",
        },
        "OOM" => Error::Full,
        "READONLY" => Error::ReadOnly,
        code @ ("LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "MISCONF"
        | "NOREPLICAS") => Error::Loading {
            code: code.to_owned(),
        },
        _ => Error::Protocol {
            command: place.command,
            detail: short(text),
        },
    }
}

/// The error that ended an attempt to connect.
pub(super) fn of_connect(error: &RedisError, place: Place<'_>) -> Error {
    if server_text(error).is_some() {
        return of_command(error, place);
    }
    // Only here: later, bytes that cannot be read are a connection gone bad.
    if error.kind() == redis::ErrorKind::Parse {
        return Error::Protocol {
            command: "",
            detail: format!("{} does not speak Redis's protocol", place.address),
        };
    }
    let reason = if error.is_connection_refusal() {
        Unreachable::ConnectionRefused
    } else if error.is_timeout() {
        Unreachable::Timeout
    } else {
        Unreachable::Network
    };
    Error::Unreachable {
        address: place.address.to_owned(),
        reason,
    }
}

/// Before a session stands, a server that is silent was not reached.
pub(super) fn before_session(error: Error) -> Error {
    if let Error::Disconnected { address, detail } = &error
        && detail == NO_ANSWER
    {
        return Error::Unreachable {
            address: address.clone(),
            reason: Unreachable::Timeout,
        };
    }
    error
}

/// A command by its name, which is in capitals; a script as one.
fn where_in(place: Place<'_>) -> String {
    if place.command.starts_with(|c: char| c.is_ascii_uppercase()) {
        place.command.to_owned()
    } else {
        format!("in the script `{}`", place.command)
    }
}

fn group_missing(place: Place<'_>) -> Error {
    Error::GroupMissing {
        stream: place.stream.to_owned(),
        group: place.group.to_owned(),
    }
}

/// Why one add was refused, where others may go through; else the error that ends the session.
pub(super) fn refusal(error: Error) -> Result<RefusalReason, Error> {
    match error {
        Error::Full => Ok(RefusalReason::OutOfMemory),
        Error::WrongType { .. } => Ok(RefusalReason::WrongKeyType),
        Error::Denied { .. } => Ok(RefusalReason::PermissionDenied),
        Error::Protocol { .. } => Ok(RefusalReason::Other),
        Error::Disconnected { .. }
        | Error::Unreachable { .. }
        | Error::AuthenticationFailed { .. }
        | Error::CredentialsUnreadable { .. }
        | Error::GroupMissing { .. }
        | Error::ReadOnly
        | Error::Loading { .. } => Err(error),
    }
}

/// Why a settlement that was refused as a whole changed nothing and holds up nobody else; `None` if it ends the session.
pub(super) fn refusal_of_call(error: &Error) -> Option<RefusalReason> {
    match error {
        Error::Full => Some(RefusalReason::OutOfMemory),
        Error::Denied { .. } => Some(RefusalReason::PermissionDenied),
        Error::Protocol { .. } if is_cross_slot(error) => Some(RefusalReason::Other),
        Error::Protocol { .. }
        | Error::WrongType { .. }
        | Error::Disconnected { .. }
        | Error::Unreachable { .. }
        | Error::AuthenticationFailed { .. }
        | Error::CredentialsUnreadable { .. }
        | Error::GroupMissing { .. }
        | Error::ReadOnly
        | Error::Loading { .. } => None,
    }
}

/// A cluster refuses a call whose keys lie in several slots.
fn is_cross_slot(error: &Error) -> bool {
    matches!(error, Error::Protocol { detail, .. } if code_of(detail) == "CROSSSLOT")
}

/// The code of a server's error, in whatever words a script wraps it.
pub(super) fn code_of(text: &str) -> &str {
    let text = unwrapped(text);
    // What an ACL refuses inside a script has no code of its own before Redis 7, nor on Valkey.
    if text.contains("executing the script can't") || text.contains("ACL failure in script") {
        return "NOPERM";
    }
    first_word_as_code(text).unwrap_or("ERR")
}

fn without_code(text: &str) -> &str {
    let text = unwrapped(text);
    let code = first_word_as_code(text).and_then(|code| text.strip_prefix(code));
    code.map_or(text, str::trim_start)
}

fn first_word_as_code(text: &str) -> Option<&str> {
    let word = text.split(' ').next()?;
    let is_code = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then_some(word)
}

/// An error without what says where in a script it happened: before it (6.2), or after it (7.0 and later, Valkey).
fn unwrapped(text: &str) -> &str {
    let text = match text.rsplit_once(" script: ") {
        Some((error, place)) if place.contains("on @user_script:") => error,
        Some(_) | None => text,
    };
    let text = match text.rsplit_once("@user_script:") {
        Some((_, rest)) => rest.split_once(": ").map_or(text, |(_, error)| error),
        None => text,
    };
    text.trim_start_matches('-')
}

/// The code and text of an error that the server sent; `None` if it is the connection's.
fn server_text(error: &RedisError) -> Option<String> {
    let code = error.code()?;
    let detail = error.detail().unwrap_or_default();
    Some(match code {
        // The wrapper's own code says nothing.
        "ERR" if detail.contains("@user_script:") => detail.to_owned(),
        _ => format!("{code} {detail}"),
    })
}

/// What the client saw of a broken connection: kinds of I/O errors, never what was sent.
fn client_text(error: &RedisError) -> String {
    if error.is_timeout() {
        return NO_ANSWER.to_owned();
    }
    short(&error.to_string())
}

/// The beginning of a text, without what may quote arguments.
fn short(text: &str) -> String {
    let text = unwrapped(text).split(", with args").next();
    text.unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 6.2, 7.0 and Valkey 9.1 write them.
    #[test]
    fn codes_are_found_in_every_wrapping() {
        for (text, code) in [
            ("OOM command not allowed", "OOM"),
            ("-OOM command not allowed", "OOM"),
            (
                "Error running script (call to f_a): @user_script:9: NOGROUP No such key",
                "NOGROUP",
            ),
            (
                "Error running script (call to f_a): @user_script:1: @user_script: 1: -OOM no",
                "OOM",
            ),
            ("@user_script: 4: -READONLY You can't write", "READONLY"),
            ("OOM no. script: 0a1b, on @user_script:1.", "OOM"),
            (
                "WRONGTYPE Operation script: on @user_script:1.",
                "WRONGTYPE",
            ),
            ("@user_script: 4: Unknown Redis command", "ERR"),
            ("no such key", "ERR"),
            ("", "ERR"),
        ] {
            assert_eq!(code_of(text), code, "{text}");
        }
    }

    #[test]
    fn what_an_acl_refuses_in_a_script_is_named_as_far_as_the_server_says() {
        let place = Place {
            address: "",
            stream: "",
            group: "",
            command: "reclaim",
        };
        for (text, what) in [
            (
                "Error running script (call to f_a): @user_script:4: @user_script: 4: The user executing the script can't run this command or subcommand",
                "in the script `reclaim`: The user executing the script can't run this command or subcommand",
            ),
            (
                "ERR ACL failure in script: User w has no permissions to run the 'xadd' command script: on @user_script:1.",
                "in the script `reclaim`: ACL failure in script: User w has no permissions to run the 'xadd' command",
            ),
            (
                "NOPERM this user has no permissions to run the 'xadd' command",
                "in the script `reclaim`: this user has no permissions to run the 'xadd' command",
            ),
        ] {
            let what = what.to_owned();
            assert_eq!(of_text(text, place), Error::Denied { what });
        }
    }

    #[test]
    fn texts_end_before_they_quote_arguments() {
        assert_eq!(
            short("ERR unknown command 'x', with args beginning with: 'secret'"),
            "ERR unknown command 'x'"
        );
    }
}
