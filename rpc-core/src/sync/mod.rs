//! What threads share without a lock, and what they use to wake each other.
//!
//! Whatever passes something between threads takes its atomics, locks and queues from here: they are
//! those of the standard library and of crossbeam, and in a test build with `--cfg loom` those of
//! loom's model checker, so that a model runs the real code (`tests/run loom`).

#![forbid(unsafe_code)]

mod bell;
#[cfg(all(loom, test))]
pub(crate) mod model;
#[cfg(all(loom, test))]
mod models;
mod return_list;

pub use bell::Bell;
pub use return_list::{Chain, Closed, Links, ReturnList};

#[cfg(all(loom, test))]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(all(loom, test))]
pub(crate) use model::{ArrayQueue, AtomicWaker, SegQueue};
#[cfg(not(all(loom, test)))]
pub(crate) use {
    atomic_waker::AtomicWaker,
    crossbeam_queue::{ArrayQueue, SegQueue},
    std::sync::{Mutex, MutexGuard},
};

/// The atomics of the standard library, or loom's in a model.
pub mod atomic {
    #[cfg(all(loom, test))]
    pub use super::model::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
    pub use std::sync::atomic::Ordering;
    #[cfg(not(all(loom, test)))]
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
}

/// Parking of threads, or its model.
pub(crate) mod thread {
    #[cfg(all(loom, test))]
    pub(crate) use super::model::thread::{Thread, current, park};
    #[cfg(not(all(loom, test)))]
    pub(crate) use std::thread::{Thread, current, park};
}
