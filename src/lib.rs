//! streamstage makes Redis Streams consumers correct by construction.

pub mod api;
pub mod cli;
pub mod clock;
pub mod deadletters;
pub mod dev;
pub mod engine;
pub mod manifest;
pub mod metrics;
pub mod printable;
pub mod redis_url;
pub mod serve;
pub mod shutdown;
pub mod stage;
pub mod streams;
pub mod telemetry;
pub mod worker_config;
