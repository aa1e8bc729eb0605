//! The integration tests: one binary, a module for each area, on real things: sockets, processes, servers.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod handlers;
#[cfg(test)]
mod manifests;
