//! The integration tests: one binary, a module for each area.

mod manifests;
