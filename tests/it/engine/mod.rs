//! One entry's life, as seen from outside: what each answer of a handler leads to, and what a person can ask.

mod admin;
mod dead_letters;
mod input;
mod ledger;
mod manifest;
mod own_redis;
mod retry;
mod throughput;

/// Room for a busy machine; what a test waits for usually takes a second or two.
const SOON: std::time::Duration = std::time::Duration::from_secs(30);
