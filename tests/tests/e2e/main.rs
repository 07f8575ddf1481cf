//! Whole stacks from end to end: the macro's stubs, the engine, the software device, and the same
//! code over links in memory and over TCP.
//!
//! One program, so that it is linked once. Every test begins a [`rpc_tests::Quiescence`], which lets
//! one test run at a time, bounds its duration and waits at the end until all it used is back.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod calls;
mod endings;
mod errors;
mod executors;
mod fixture;
mod limits;
mod path;
mod pieces;
mod queues;
mod reconnect;
mod shutdown;
mod silence;
mod sizes;
mod threads;
mod transfers;
mod windows;
mod zero_copy;
