//! The integration tests: one binary.

mod contract;
