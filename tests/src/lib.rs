//! Fixtures shared by the tests.
//!
//! - [`Payloads`]: seeded bytes that can be checked without keeping a copy.
//! - [`ProcSelf`]: threads, descriptors and memory of a process as the kernel counts them, for
//!   baselines that do not come from the code under test.
//! - [`tidy`]: the rules of this repository as checks over its files.

#![forbid(unsafe_code)]

mod payloads;
mod proc_self;
pub mod tidy;

pub use payloads::{Mismatch, Payloads};
pub use proc_self::{ProcSelf, eventually};
