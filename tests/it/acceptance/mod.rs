//! What the engine promises, measured: each test here prints its figures.

mod chain;
mod drain;
mod idle;
mod leases;
mod outage;
mod poison;
mod reclaim;
mod trim;
