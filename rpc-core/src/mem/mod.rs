//! Registered memory: what devices may read and write.
//!
//! | file | what |
//! |---|---|
//! | [`range`](Placement) | one reserved address range, grown in arenas, never unmapped |
//! | [`class`](Class) | block sizes: powers of two, 4 KiB to 64 MiB |
//! | [`budget`](Budget) | how much may be in use, in two shares |
//! | [`pool`](Pool), [`cache`](CoreCache) | free blocks: a shared level, and some per core without a lock |
//! | [`payload`](PayloadMut) | one block in somebody's hands |
//! | [`eager`](EagerSlab) | a core's buffers for eager messages, with no remote access |
//! | [`regions`](Regions) | which arenas a device knows |
//! | [`registrar`](Registrar) | the regions that one engine uses |
//!
//! # Who may touch a block's bytes
//!
//! | state | held as | may write | may read |
//! |---|---|---|---|
//! | free | a number on a free list | nobody | nobody |
//! | being filled | [`PayloadMut`], one owner | its owner | its owner |
//! | READ destination | [`PayloadMut`] in the engine's in-flight table | the device | nobody |
//! | shared | [`bytes::Bytes`] over it | nobody | every clone, and the device for peers |
//!
//! - **M1.** A block is in exactly one state; only its holder can move it on. `PayloadMut` is not
//!   `Clone`, and [`PayloadMut::freeze`] consumes it, so a writer and a reader never coexist.
//! - **M2.** While a READ into a block is posted, its `PayloadMut` stays in the in-flight table and
//!   no slice of it exists. It leaves the table when the completion was polled, or the QP is gone.
//! - **M3.** While a block is advertised, the lease holds a clone of its `Bytes`, which it drops when
//!   the window's invalidation has completed, or the QP is in ERR, drained and destroyed. So the
//!   block is free, and writable for the next owner, only after that.
//! - **M4.** A block is free when its last holder is gone. That may be on any thread: it goes to a
//!   list that cannot fill up, fail or block.
//!
//! Bytes are always initialised: fresh arenas are zeros, and a reused block holds old bytes of this
//! process. Whoever sends a block sends only what it wrote.

mod budget;
mod cache;
mod class;
mod eager;
mod error;
mod level;
mod mapping;
mod payload;
mod pool;
mod range;
mod regions;
mod registrar;
mod usage;

#[cfg(all(loom, test))]
mod models;
#[cfg(test)]
mod tests;

pub use budget::{Budget, BudgetFull, Reservation, Share, Use, WAITERS_MAX};
pub use cache::CoreCache;
pub use class::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, CLASS_COUNT, Class, GRANULE_BYTES};
pub use eager::{ChunkId, EAGER_SLOTS_MAX, EagerChunk, EagerConfig, EagerSlab, EagerSlot, SlotId};
pub use error::MemError;
pub use payload::PayloadMut;
pub use pool::{BUDGET_BYTES_MIN, Pool, PoolConfig};
pub use range::{ArenaId, Placement};
pub use regions::Regions;
pub use registrar::Registrar;
pub use usage::MemoryUsage;

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// Locks though another thread panicked while it held the lock. What the locks here protect is
/// consistent after every statement, and a buffer must come home also while a panic unwinds.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
