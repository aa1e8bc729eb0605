//! The integration tests: one binary, a module for each area.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod manifests;
