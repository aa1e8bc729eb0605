//! streamstage makes Redis Streams consumers correct by construction.

pub mod api;
pub mod clock;
pub mod deadletters;
pub mod engine;
pub mod manifest;
pub mod stage;
pub mod streams;
pub mod worker_config;
