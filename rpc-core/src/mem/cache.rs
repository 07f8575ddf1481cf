use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use super::MemError;
use super::budget::{Charge, Share, Use};
use super::class::{CLASS_COUNT, Class};
use super::payload::PayloadMut;
use super::pool::Shared;
use crate::sync::{Closed, ReturnList};

/// Where the blocks that a core took come back to.
///
/// Held by every payload taken through it, so it outlives the core; then its list is closed, and
/// blocks go to the shared list.
pub(super) struct Home {
    pub(super) shared: Arc<Shared>,
    pub(super) returns: ReturnList,
}

impl Home {
    /// Takes a block home: on any thread, without a lock, without memory.
    pub(super) fn give(&self, block: u32) {
        if self.returns.push(&self.shared.range, block) == Err(Closed) {
            self.shared.give_back(block);
        }
    }
}

/// One core's way to payload memory: takes blocks without a lock while its cache has some.
///
/// Blocks it took come back to it from whatever thread drops them; [`collect`](Self::collect) (once
/// a turn) fetches them. Beyond a bound per class it gives them to the other cores. When it is
/// dropped its free blocks go to the shared level at once, and those still in use when they are
/// dropped.
pub struct CoreCache {
    home: Arc<Home>,
    free: [Vec<u32>; CLASS_COUNT],
    waiter: usize,
}

impl CoreCache {
    pub(super) fn new(home: Arc<Home>, waiter: usize) -> Self {
        Self { home, free: [const { Vec::new() }; CLASS_COUNT], waiter }
    }

    /// Free blocks of `class` that this core keeps at most.
    fn bound(&self, class: Class) -> usize {
        (self.home.shared.cached_bytes_max / class.bytes() as u64) as usize
    }

    /// Takes a buffer of `len` bytes. As [`Pool::alloc`](super::Pool::alloc).
    pub fn alloc(
        &mut self,
        share: Share,
        purpose: Use,
        len: usize,
    ) -> Result<PayloadMut, MemError> {
        let home = Arc::clone(&self.home);
        let class = home.shared.class_for(share, purpose, len)?;
        let mut charge = home.shared.budget.charge(share, purpose, class.bytes() as u64)?;
        self.carve(class, &mut charge, len)
    }

    /// Takes a buffer for each length, or none. As [`Pool::alloc_all`](super::Pool::alloc_all).
    pub fn alloc_all(
        &mut self,
        share: Share,
        purpose: Use,
        lens: &[u32],
    ) -> Result<Vec<PayloadMut>, MemError> {
        let home = Arc::clone(&self.home);
        let needed = home.shared.check_all(share, purpose, lens)?;
        let mut charge = home.shared.budget.charge(share, purpose, needed)?;
        lens.iter()
            .map(|len| {
                let class = home.shared.class_for(share, purpose, *len as usize)?;
                self.carve(class, &mut charge, *len as usize)
            })
            .collect()
    }

    fn carve(
        &mut self,
        class: Class,
        charge: &mut Charge<'_>,
        len: usize,
    ) -> Result<PayloadMut, MemError> {
        let block = match self.free[class.index()].pop() {
            Some(block) => block,
            None => self.fetch(class)?,
        };
        let paid = charge.settle(class.bytes() as u64);
        Ok(PayloadMut::new(Arc::clone(&self.home), block, class, paid, len))
    }

    /// The cache has none: looks on the return list, then takes half of the bound under the lock.
    #[cold]
    fn fetch(&mut self, class: Class) -> Result<u32, MemError> {
        self.collect();
        if let Some(block) = self.free[class.index()].pop() {
            return Ok(block);
        }
        let count = (self.bound(class) / 2).max(1);
        let free = &mut self.free[class.index()];
        self.home.shared.take(class, count, |block| free.push(block))?;
        Ok(free.pop().expect("take answers with at least one block"))
    }

    /// Takes in what came home, and gives what exceeds the bounds to the other cores. Returns how
    /// many blocks came.
    pub fn collect(&mut self) -> usize {
        let mut count = 0;
        let mut over = 0u32;
        for block in self.home.returns.take_all(&self.home.shared.range) {
            let class = self.home.shared.range.class(self.home.shared.range.arena_of(block));
            self.free[class.index()].push(block);
            count += 1;
            if self.free[class.index()].len() > self.bound(class) {
                over |= 1 << class.index();
            }
        }
        if over != 0 {
            self.spill(over);
        }
        count
    }

    /// Brings each class in the set to half of its bound, so that the next return does not spill
    /// again.
    #[cold]
    fn spill(&mut self, over: u32) {
        for class in Class::all().filter(|class| over & (1 << class.index()) != 0) {
            let keep = self.bound(class) / 2;
            self.home.shared.give(self.free[class.index()].drain(keep..));
        }
    }

    /// Whether blocks wait to be collected. A core looks here before it sleeps.
    pub fn has_returns(&self) -> bool {
        !self.home.returns.is_empty()
    }

    /// Asks for one wake-up of this core when memory comes back to the budget. Try once more after
    /// this call.
    pub fn wait_for_memory(&self, waker: &Waker) {
        self.home.shared.budget.wait(self.waiter, waker);
    }

    /// Bytes of the free blocks kept here.
    pub fn free_bytes(&self) -> u64 {
        Class::all().map(|class| (self.free[class.index()].len() * class.bytes()) as u64).sum()
    }
}

impl Drop for CoreCache {
    fn drop(&mut self) {
        let shared = &self.home.shared;
        shared.give(self.home.returns.close(&shared.range));
        shared.give(self.free.iter_mut().flat_map(|free| free.drain(..)));
    }
}

impl fmt::Debug for CoreCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoreCache({} bytes free)", self.free_bytes())
    }
}
