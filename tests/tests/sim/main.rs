//! The whole stack in simulations: what holds for every seed.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod basics;
mod service;
