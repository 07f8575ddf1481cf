use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::load;

/// What waits in a queue: a bound in bytes, because a bound in calls alone says nothing of memory.
#[derive(Debug)]
pub(super) struct Waiting {
    bytes_max: u64,
    bytes: AtomicU64,
    count: AtomicU64,
}

/// A place in a queue, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    waiting: Arc<Waiting>,
    bytes: u64,
    count: u64,
}

impl Waiting {
    /// Nothing, with room for so many bytes.
    pub(super) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, bytes: AtomicU64::new(0), count: AtomicU64::new(0) })
    }

    /// Room for `count` things of so many bytes together, if there is some. What is longer than the bound
    /// may wait alone.
    pub(super) fn room(self: &Arc<Self>, bytes: u64, count: u64) -> Option<Room> {
        let take = |used: u64| {
            let sum = used.checked_add(bytes)?;
            (used == 0 || sum <= self.bytes_max).then_some(sum)
        };
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        self.count.fetch_add(count, Ordering::Relaxed);
        Some(Room { waiting: Arc::clone(self), bytes, count })
    }

    /// How many things wait.
    pub(super) fn count(&self) -> u64 {
        load(&self.count)
    }
}

impl Room {
    /// The bytes it was taken for.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many things it was taken for.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.waiting.count.fetch_sub(self.count, Ordering::Relaxed);
    }
}
