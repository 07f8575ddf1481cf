use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::budget::{Budget, Charge, Share, Use, WAITERS_MAX};
use super::cache::{CoreCache, Home};
use super::class::{BLOCK_BYTES_MAX, Class};
use super::level::Level;
use super::payload::PayloadMut;
use super::range::{AddressRange, ArenaId, Placement};
use super::usage::MemoryUsage;
use super::{MemError, lock};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, ReturnList};
use crate::verbs::Region;

/// The smallest budget: each use of each share can hold a 16 KiB payload with room to spare.
pub const BUDGET_BYTES_MIN: u64 = 256 << 10;

/// Address space per class, as a multiple of the budget. In the worst history of sizes each class in
/// turn held the whole budget (once), and the cores' caches hold as much again (at most: see
/// [`PoolConfig::cached_bytes_max`]). Addresses cost nothing until they are mapped.
const RANGE_PER_CLASS: u64 = 2;

/// Free blocks of one class that a core keeps for itself, in bytes. Enough that a core which moves
/// payloads of one size rarely takes the lock; little beside a budget.
const CACHED_BYTES_MAX: u64 = 1 << 20;

/// How payload memory is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Bytes of payload memory that may be in use at once, of both shares together; at least
    /// [`BUDGET_BYTES_MIN`].
    pub budget_bytes: u64,
    /// Overwrites every block that comes home, so that a test sees who reads bytes it did not
    /// write. Default: off.
    pub poison: bool,
}

impl PoolConfig {
    /// The defaults, with this budget.
    pub const fn new(budget_bytes: u64) -> Self {
        Self { budget_bytes, poison: false }
    }

    /// Bytes of free blocks of one class that a core keeps: so little of the budget that
    /// [`WAITERS_MAX`] cores together keep at most as much as the budget.
    const fn cached_bytes_max(&self) -> u64 {
        let part = self.budget_bytes / WAITERS_MAX as u64;
        if part < CACHED_BYTES_MAX { part } else { CACHED_BYTES_MAX }
    }

    /// Addresses to reserve.
    fn range_bytes(&self) -> Result<usize, MemError> {
        let per_class = self.budget_bytes.saturating_mul(RANGE_PER_CLASS);
        let bytes = Class::all()
            .filter(|class| class.bytes() as u64 <= self.budget_bytes)
            .map(|class| per_class.max(class.arena_bytes() as u64))
            .fold(0u64, |sum, bytes| sum.saturating_add(bytes.saturating_add(class_rounding())));
        usize::try_from(bytes).map_err(|_| MemError::Config("the budget is too large"))
    }
}

/// The last arena of a class may be used in part only.
const fn class_rounding() -> u64 {
    super::class::GRANULE_BYTES as u64
}

fn too_long(len: u64) -> MemError {
    MemError::TooLong { len, max: BLOCK_BYTES_MAX as u64 }
}

/// Everything of a runtime's payload memory that threads share.
pub(super) struct Shared {
    pub(super) range: AddressRange,
    pub(super) budget: Arc<Budget>,
    /// Blocks given back that have no core to go home to.
    returns: ReturnList,
    pub(super) poison: bool,
    pub(super) cached_bytes_max: u64,
    level: Mutex<Level>,
    /// The cores' lists. What lies on them is free, and may be taken by whoever finds nothing else.
    homes: Mutex<Vec<Weak<Home>>>,
    cores: AtomicUsize,
    /// Bytes of blocks that users hold as received payloads.
    held: AtomicU64,
    /// Payloads delivered as heap copies because users held too much.
    copied: AtomicU64,
}

impl Shared {
    /// Takes up to `count` free blocks of `class`, at least one, into `out`.
    pub(super) fn take(
        &self,
        class: Class,
        count: usize,
        mut out: impl FnMut(u32),
    ) -> Result<(), MemError> {
        let mut level = lock(&self.level);
        self.collect_into(&mut level);
        let Some(first) = level.take(class) else {
            return self.take_after_miss(level, class, out);
        };
        out(first);
        (1..count).map_while(|_| level.take(class)).for_each(out);
        Ok(())
    }

    #[cold]
    fn take_after_miss(
        &self,
        mut level: MutexGuard<'_, Level>,
        class: Class,
        mut out: impl FnMut(u32),
    ) -> Result<(), MemError> {
        for home in lock(&self.homes).iter().filter_map(Weak::upgrade) {
            home.returns.take_all(&self.range).for_each(|block| level.give(&self.range, block));
        }
        let block = match level.take(class) {
            Some(block) => Some(block),
            None => {
                level.refill(&self.range, class)?;
                level.take(class)
            }
        };
        block.into_iter().for_each(&mut out);
        Ok(())
    }

    /// Gives free blocks back to the shared level.
    pub(super) fn give(&self, blocks: impl Iterator<Item = u32>) {
        let mut level = lock(&self.level);
        blocks.for_each(|block| level.give(&self.range, block));
    }

    /// Takes a block home that has no core: without a lock, without memory.
    pub(super) fn give_back(&self, block: u32) {
        // This list is never closed: it lives as long as the last block does.
        let _ = self.returns.push(&self.range, block);
    }

    fn collect_into(&self, level: &mut Level) {
        self.returns.take_all(&self.range).for_each(|block| level.give(&self.range, block));
    }

    /// The class for `len` bytes, if such a payload can exist within `share` at all.
    pub(super) fn class_for(
        &self,
        share: Share,
        purpose: Use,
        len: usize,
    ) -> Result<Class, MemError> {
        let class = Class::for_len(len).ok_or_else(|| too_long(len as u64))?;
        self.budget.check(share, purpose, len as u64, class.bytes() as u64)?;
        Ok(class)
    }

    /// Bytes of blocks that pieces of these lengths occupy, if they can fit in `share` together.
    pub(super) fn check_all(
        &self,
        share: Share,
        purpose: Use,
        lens: &[u32],
    ) -> Result<u64, MemError> {
        let (mut len_sum, mut needed) = (0u64, 0u64);
        for len in lens {
            let class = Class::for_len(*len as usize).ok_or_else(|| too_long(u64::from(*len)))?;
            len_sum = len_sum.saturating_add(u64::from(*len));
            needed = needed.saturating_add(class.bytes() as u64);
        }
        self.budget.check(share, purpose, len_sum, needed)?;
        Ok(needed)
    }

    /// The mark above which users get copies: half of the inbound share. Beyond it, payloads that
    /// users do not let go of would leave too little for those that are on their way.
    fn held_bytes_max(&self) -> u64 {
        self.budget.limit(Share::Inbound, Use::Response) / 2
    }

    /// Counts a payload as held by a user, unless users hold too much already.
    pub(super) fn hold(&self, bytes: u64) -> bool {
        let max = self.held_bytes_max();
        self.held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(bytes).filter(|sum| *sum <= max)
            })
            .is_ok()
    }

    /// A user let go of a payload.
    pub(super) fn unhold(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The payload memory of a runtime. A cheap handle: clones are the same pool, usable on any thread.
///
/// Cores take blocks through their own [`CoreCache`]; other threads through the pool itself, under a
/// short lock.
#[derive(Clone)]
pub struct Pool {
    home: Arc<Home>,
}

impl Pool {
    /// Reserves addresses for a pool. Memory is mapped when it is first needed.
    pub fn new(config: PoolConfig) -> Result<Self, MemError> {
        if config.budget_bytes < BUDGET_BYTES_MIN {
            return Err(MemError::Config("the budget is below 256 KiB"));
        }
        let shared = Arc::new(Shared {
            range: AddressRange::reserve(config.range_bytes()?)?,
            budget: Budget::new(config.budget_bytes),
            returns: ReturnList::new(),
            poison: config.poison,
            cached_bytes_max: config.cached_bytes_max(),
            level: Mutex::new(Level::new()),
            homes: Mutex::default(),
            cores: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            copied: AtomicU64::new(0),
        });
        // A home that is closed from the start: its blocks go to the shared list.
        Ok(Self { home: Arc::new(Home { shared, returns: ReturnList::closed() }) })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.home.shared
    }

    /// Takes a buffer of `len` bytes. Its content is zeros or old bytes of this process.
    ///
    /// # Errors
    /// [`MemError::Full`] when the share is used up now; [`MemError::LargerThanShare`] and
    /// [`MemError::TooLong`] when it can never be had; the system's refusal to map memory.
    pub fn alloc(&self, share: Share, purpose: Use, len: usize) -> Result<PayloadMut, MemError> {
        let shared = self.shared();
        let class = shared.class_for(share, purpose, len)?;
        let mut charge = shared.budget.charge(share, purpose, class.bytes() as u64)?;
        self.carve(class, &mut charge, len)
    }

    /// Takes a buffer for each length, or none. As [`alloc`](Self::alloc), for a message in pieces.
    pub fn alloc_all(
        &self,
        share: Share,
        purpose: Use,
        lens: &[u32],
    ) -> Result<Vec<PayloadMut>, MemError> {
        let shared = self.shared();
        let needed = shared.check_all(share, purpose, lens)?;
        let mut charge = shared.budget.charge(share, purpose, needed)?;
        lens.iter()
            .map(|len| {
                let class = shared.class_for(share, purpose, *len as usize)?;
                self.carve(class, &mut charge, *len as usize)
            })
            .collect()
    }

    fn carve(
        &self,
        class: Class,
        charge: &mut Charge<'_>,
        len: usize,
    ) -> Result<PayloadMut, MemError> {
        let mut block = None;
        self.shared().take(class, 1, |taken| block = Some(taken))?;
        let block = block.expect("take answers with at least one block");
        let paid = charge.settle(class.bytes() as u64);
        Ok(PayloadMut::new(Arc::clone(&self.home), block, class, paid, len))
    }

    /// Refuses a message whose pieces could never fit together, before anything is taken.
    pub fn check(&self, share: Share, purpose: Use, lens: &[u32]) -> Result<(), MemError> {
        self.shared().check_all(share, purpose, lens).map(|_| ())
    }

    /// A cache of free blocks for one core.
    pub fn core_cache(&self) -> CoreCache {
        let shared = Arc::clone(self.shared());
        let waiter = shared.cores.fetch_add(1, Ordering::Relaxed);
        let home = Arc::new(Home { shared, returns: ReturnList::new() });
        let mut homes = lock(&self.shared().homes);
        homes.retain(|home| home.strong_count() > 0);
        homes.push(Arc::downgrade(&home));
        drop(homes);
        CoreCache::new(home, waiter)
    }

    /// Where these bytes lie, if they are payload memory: then a device can send them as they lie.
    pub fn locate(&self, bytes: &Bytes) -> Option<Placement> {
        let arena = self.shared().range.locate(bytes.as_ptr(), bytes.len())?;
        let len = u32::try_from(bytes.len()).ok()?;
        Some(Placement { arena, addr: bytes.as_ptr().addr() as u64, len })
    }

    /// A received payload as the user gets it: without a copy, or, when users hold more than half
    /// of the inbound share, as a heap copy whose block is free at once. Copies up to 64 MiB on the
    /// calling thread: a core uses [`try_deliver`](Self::try_deliver).
    pub fn deliver(&self, payload: PayloadMut) -> Bytes {
        match self.try_deliver(payload) {
            Ok(bytes) => bytes,
            Err(payload) => Bytes::copy_from_slice(&payload),
        }
    }

    /// As [`deliver`](Self::deliver), but gives the payload back where a copy is due (and counts
    /// that), so that whoever decodes the message copies, and not the core in its turn.
    pub fn try_deliver(&self, payload: PayloadMut) -> Result<Bytes, PayloadMut> {
        if self.shared().hold(payload.block_bytes()) {
            return Ok(payload.freeze_held());
        }
        self.shared().copied.fetch_add(1, Ordering::Relaxed);
        Err(payload)
    }

    /// The budget, for reservations and for waiting.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.shared().budget
    }

    /// An arena as memory to register with a device.
    pub fn region(&self, arena: ArenaId) -> Region {
        self.shared().range.region(arena)
    }

    /// What is in use, and how much there is.
    pub fn usage(&self) -> MemoryUsage {
        let shared = self.shared();
        let free = {
            let mut level = lock(&shared.level);
            shared.collect_into(&mut level);
            level.free_bytes()
        };
        MemoryUsage {
            budget: shared.budget.bytes(),
            mapped: shared.range.mapped_bytes(),
            inbound: shared.budget.used(Share::Inbound),
            inbound_responses: shared.budget.used_by_responses(Share::Inbound),
            outbound: shared.budget.used(Share::Outbound),
            outbound_responses: shared.budget.used_by_responses(Share::Outbound),
            peak: shared.budget.peak(),
            free,
            held_by_users: shared.held.load(Ordering::Relaxed),
            delivered_as_copies: shared.copied.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("usage", &self.usage()).finish()
    }
}
