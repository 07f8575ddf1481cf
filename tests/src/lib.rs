//! Fixtures shared by the tests.
//!
//! - [`devices`]: what the device that a test runs on has counted.
//! - [`hostile`]: a hostile peer, the server that it attacks and an honest client beside it.
//! - [`Payloads`]: seeded bytes that can be checked without keeping a copy.
//! - [`Place`]: the scheme and host that tests serve at.
//! - [`ProcSelf`]: threads, descriptors and memory of a process as the kernel counts them, for
//!   baselines that do not come from the code under test.
//! - [`Quiescence`]: that everything a test used came back, by the devices' and the kernel's counts.
//! - [`Watchdog`]: an end for a test that would wait for ever.
//! - [`soak`]: load whose every byte is checked, and killed processes in the middle of it.
//! - [`tidy`]: the rules of this repository as checks over its files.

#![forbid(unsafe_code)]

pub mod devices;
pub mod hostile;
mod payloads;
mod place;
mod proc_self;
mod quiescence;
pub mod soak;
pub mod tidy;
mod watchdog;

pub use payloads::{Mismatch, Payloads};
pub use place::Place;
pub use proc_self::{ProcSelf, eventually};
pub use quiescence::{Quiescence, credits_are_backed, local_ops_stand_alone};
pub use watchdog::Watchdog;
