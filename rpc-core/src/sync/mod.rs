//! What threads share without a lock.
//!
//! Types here take their atomics from [`atomic`], so the same code runs under loom's model checker
//! (`RUSTFLAGS="--cfg loom" cargo test -p rpc-core --lib loom_`).

#![forbid(unsafe_code)]

/// The atomics of the standard library, or loom's in a model.
pub mod atomic {
    #[cfg(all(loom, test))]
    pub use loom::sync::atomic::{AtomicU32, Ordering};
    #[cfg(not(all(loom, test)))]
    pub use std::sync::atomic::{AtomicU32, Ordering};
}

mod return_list;

pub use return_list::{Chain, Closed, Links, ReturnList};
