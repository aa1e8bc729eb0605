//! streamstage makes Redis Streams consumers correct by construction.
//!
//! A *stage* is a stream, a consumer group, a handler and their policies, named in a `StreamStage` manifest. Its *workers* run
//! the [`engine`]: they read entries, lease them, call the user's *handler*, and settle what came of it, so that a crash at any
//! moment loses nothing and commits nothing twice.
//!
//! # Words
//!
//! | word | meaning |
//! | --- | --- |
//! | stage | one `StreamStage` |
//! | stream, group, entry, consumer | as Redis uses them; an entry's fields are bytes |
//! | pending | delivered to a consumer and not acknowledged |
//! | worker | one process of the stage; it is one consumer of the group |
//! | handler | the user's code |
//! | outcome | what the handler said, or what its silence means |
//! | settlement | what becomes of the entry: commit, retry, dead letter, release |
//! | lease | the engine's hold on a pending entry, renewed while the worker lives |
//! | visibility timeout | how long a worker may be silent before its entries are reclaimed |
//! | delivery, attempt, crash | handed out; answered with an error; its process died |
//! | backlog | never delivered to the group: in the source stream, or in its retry stream |
//! | delayed | waiting for its retry time |
//!
//! # Layers
//!
//! `dev` and `deadletters` are what the command line runs. [`stage`] is a manifest after defaults and checks ([`manifest`] and
//! [`api`] before it), [`worker_config`] what a worker is told of it. [`engine`] decides in files without `async` and acts
//! through the trait [`streams::Broker`]; [`streams`] is the only place that knows Redis. `tests/it/architecture.rs` holds who
//! may import whom.
//!
//! # The reading path of an entry
//!
//! `engine/worker.rs` (the loop) -> `streams/mod.rs` (what a broker guarantees) -> `engine/handler/` (the wires) ->
//! `engine/settle.rs` (what becomes of it) -> `streams/redis/` (the scripts). What a whole worker decides is in `engine/core/`.

pub mod api;
pub mod cli;
pub mod clock;
pub mod deadletters;
pub mod dev;
pub mod engine;
pub mod manifest;
pub mod manifest_file;
pub mod metrics;
pub mod printable;
pub mod redis_url;
pub mod serve;
pub mod shutdown;
pub mod stage;
pub mod streams;
pub mod telemetry;
pub mod worker_config;
