//! The engine: one entry's life.
pub mod handler;
pub mod key;
pub mod outcome;
