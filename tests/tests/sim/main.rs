//! The whole stack in simulations: what holds for every seed.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod basics;
mod draw;
mod leases;
mod ledger;
mod seeds;
mod service;
mod shares;
mod slow;
mod stalls;
mod verbs;
mod workload;

/// Whether each run says what came of it, and the crate what it warns of.
fn is_shown() -> bool {
    std::env::var_os("SIM_SHOW").is_some()
}
