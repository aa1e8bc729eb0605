//! The two wires: how an entry is written for a handler, and how its answer becomes an [`Outcome`](crate::engine::outcome::Outcome).
//!
//! Pure: bytes in, bytes or an outcome out. `fields.rs` maps fields to JSON and back, `request.rs` writes the head and body of a
//! POST and the line for a child, `answer.rs` reads what comes back. Nothing here opens a connection or starts a process;
//! that is `http.rs` and `exec.rs`.

use crate::streams::Fields;

pub(crate) mod answer;
pub(crate) mod fields;
pub(crate) mod request;

/// The field (and the header) by which W3C trace context travels.
const TRACEPARENT_FIELD: &[u8] = b"traceparent";

fn traceparent(fields: &Fields) -> Option<&[u8]> {
    let field = fields.iter().find(|(name, _)| name == TRACEPARENT_FIELD);
    field.map(|(_, value)| value.as_slice())
}

/// The longest answer that is read, in bytes. More than any summary or embedding needs, and small enough that a handler
/// which never stops writing cannot fill a worker.
pub(crate) const MAX_ANSWER_BYTES: usize = 1024 * 1024;
