//! The dead letters of a stage: listed, grouped, shown, replayed, purged, exported.

pub mod request;

pub use request::Request;
