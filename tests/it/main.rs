//! Tests on real things: sockets, child processes, servers.

#[cfg(test)]
mod handlers;
