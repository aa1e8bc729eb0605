//! The tests that need real things: sockets, processes, servers. One binary, so that it is linked once.
//!
//! `support` is the harness; every other module is a set of behaviours. A test that loads both cores takes
//! `support::whole_machine()` first, so that no other such test disturbs what it measures.

#[cfg(test)]
mod acceptance;
#[cfg(test)]
mod architecture;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod deadletters;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod handlers;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod support;
