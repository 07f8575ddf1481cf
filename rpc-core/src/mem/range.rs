#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::OnceLock;

use super::class::{BLOCK_BYTES_MIN, Class, GRANULE_BYTES};
use super::mapping::Mapping;
use super::{MemError, lock};
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU32 as Link, Ordering};
use crate::sync::{Links, Mutex};
use crate::verbs::Region;

/// Pages (smallest blocks) in a granule.
const PAGES_PER_GRANULE: usize = GRANULE_BYTES / BLOCK_BYTES_MIN;

/// A granule that belongs to no arena yet.
const NO_ARENA: u32 = u32::MAX;

/// The longest range: page numbers stay below `u32::MAX`, which ends a return list.
pub(super) const RANGE_BYTES_MAX: usize = (16 << 40) - GRANULE_BYTES;

/// The longest range under Miri: enough for tests with small blocks.
const MIRI_RANGE_BYTES: usize = 64 << 20;

/// A piece of payload memory that is registered as a whole. Numbered from 0 in order of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArenaId(pub(super) u32);

impl ArenaId {
    /// Its number: small and dense, so it can index a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where bytes lie in payload memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The arena: the whole range lies in it.
    pub arena: ArenaId,
    /// The virtual address that work requests name.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
}

impl std::fmt::Debug for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Placement(arena {}, {} bytes)", self.arena.0, self.len)
    }
}

/// The one address range that all payload memory of a runtime lies in.
///
/// It is cut in granules; an arena is one granule, or a run of them that holds one large block.
/// So "is this pointer ours, and which arena" is a range check and a shift. A block is named by the
/// number of its first page in the range. Arenas are never unmapped or moved.
pub(super) struct AddressRange {
    mapping: Mapping,
    granules: Box<[Granule]>,
    arenas: Box<[OnceLock<Arena>]>,
    grown: Mutex<Grown>,
}

/// What the range knows of one granule.
struct Granule {
    /// The arena it belongs to, or [`NO_ARENA`].
    arena: AtomicU32,
    /// The return-list links of its pages; made when an arena begins in this granule.
    links: OnceLock<Box<[Link]>>,
}

struct Arena {
    first_granule: u32,
    granules: u32,
    /// The class its blocks have now. Changed only while all of them are free.
    class: AtomicU8,
}

/// How far the range has grown.
#[derive(Default)]
struct Grown {
    granules: usize,
    arenas: usize,
}

impl AddressRange {
    /// Reserves addresses for at least `bytes`.
    pub(super) fn reserve(bytes: usize) -> Result<Self, MemError> {
        if bytes > RANGE_BYTES_MAX {
            return Err(MemError::Config("the budget is too large: 500 GiB is the most"));
        }
        let bytes = bytes.next_multiple_of(GRANULE_BYTES);
        // Under Miri there are no addresses without memory behind them.
        let bytes = if cfg!(miri) { bytes.min(MIRI_RANGE_BYTES) } else { bytes };
        let granules = bytes / GRANULE_BYTES;
        let granule = || Granule { arena: AtomicU32::new(NO_ARENA), links: OnceLock::new() };
        Ok(Self {
            mapping: Mapping::reserve(bytes, GRANULE_BYTES)?,
            granules: (0..granules).map(|_| granule()).collect(),
            arenas: (0..granules).map(|_| OnceLock::new()).collect(),
            grown: Mutex::default(),
        })
    }

    /// Makes a new arena for blocks of `class`.
    pub(super) fn grow(&self, class: Class) -> Result<ArenaId, MemError> {
        let mut grown = lock(&self.grown);
        let count = class.arena_bytes() / GRANULE_BYTES;
        let first = grown.granules;
        if first + count > self.granules.len() {
            return Err(MemError::RangeFull { range_bytes: self.mapping.len() as u64 });
        }
        self.mapping.commit(first * GRANULE_BYTES, class.arena_bytes())?;
        self.mapping.close(first * GRANULE_BYTES, class.arena_bytes());
        let id = ArenaId(grown.arenas as u32);
        let class = AtomicU8::new(class.index() as u8);
        let arena = Arena { first_granule: first as u32, granules: count as u32, class };
        let _ = self.arenas[id.index()].set(arena);
        let _ =
            self.granules[first].links.set((0..PAGES_PER_GRANULE).map(|_| Link::new(0)).collect());
        for granule in &self.granules[first..first + count] {
            granule.arena.store(id.0, Ordering::Release);
        }
        grown.granules += count;
        grown.arenas += 1;
        Ok(id)
    }

    fn arena(&self, id: ArenaId) -> &Arena {
        self.arenas[id.index()].get().expect("an arena id is made after its arena")
    }

    /// Bytes of arenas: what devices may pin.
    pub(super) fn mapped_bytes(&self) -> u64 {
        (lock(&self.grown).granules * GRANULE_BYTES) as u64
    }

    /// The class of an arena's blocks.
    pub(super) fn class(&self, id: ArenaId) -> Class {
        let index = usize::from(self.arena(id).class.load(Ordering::Relaxed));
        Class::all().nth(index).expect("only classes are stored")
    }

    /// Carves an arena anew. All of its blocks must be free and on no list.
    pub(super) fn recarve(&self, id: ArenaId, class: Class) {
        let arena = self.arena(id);
        assert_eq!(arena.granules as usize * GRANULE_BYTES, class.arena_bytes());
        arena.class.store(class.index() as u8, Ordering::Relaxed);
    }

    /// The page number of block `n` of an arena.
    pub(super) fn block(&self, id: ArenaId, class: Class, n: usize) -> u32 {
        let first = self.arena(id).first_granule as usize * PAGES_PER_GRANULE;
        (first + n * (class.bytes() / BLOCK_BYTES_MIN)) as u32
    }

    /// The arena of a block.
    pub(super) fn arena_of(&self, block: u32) -> ArenaId {
        ArenaId(self.granules[block as usize / PAGES_PER_GRANULE].arena.load(Ordering::Acquire))
    }

    /// The first byte of a block.
    pub(super) fn ptr(&self, block: u32) -> NonNull<u8> {
        self.mapping.at(block as usize * BLOCK_BYTES_MIN)
    }

    /// The first `len` bytes of a block have an owner from now on.
    pub(super) fn open(&self, block: u32, len: usize) {
        self.mapping.open(block as usize * BLOCK_BYTES_MIN, len);
    }

    /// A block of `len` bytes is nobody's from now on.
    pub(super) fn close(&self, block: u32, len: usize) {
        self.mapping.close(block as usize * BLOCK_BYTES_MIN, len);
    }

    /// The arena that holds all of `ptr..ptr + len`, if one does.
    pub(super) fn locate(&self, ptr: *const u8, len: usize) -> Option<ArenaId> {
        let first = ptr.addr().checked_sub(self.mapping.base().addr().get())?;
        let last = first.checked_add(len.checked_sub(1)?)?;
        let arena = self.granules.get(first / GRANULE_BYTES)?.arena.load(Ordering::Acquire);
        let end = self.granules.get(last / GRANULE_BYTES)?.arena.load(Ordering::Acquire);
        (arena != NO_ARENA && arena == end).then_some(ArenaId(arena))
    }

    /// An arena as memory to register.
    pub(super) fn region(&self, id: ArenaId) -> Region {
        let arena = self.arena(id);
        let ptr = self.mapping.at(arena.first_granule as usize * GRANULE_BYTES);
        let len = arena.granules as usize * GRANULE_BYTES;
        // SAFETY: committed when the arena was made and never unmapped (A1, A2); its bytes are
        // accessed as `mem`'s table of buffer states says.
        unsafe { Region::new(ptr, len) }
    }
}

impl Links for AddressRange {
    fn next(&self, block: u32) -> &Link {
        let links = self.granules[block as usize / PAGES_PER_GRANULE].links.get();
        let links = links.expect("a block lies in the first granule of its arena");
        &links[block as usize % PAGES_PER_GRANULE]
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        let len = lock(&self.grown).granules * GRANULE_BYTES;
        if len > 0 {
            // SAFETY: every payload holds the range, so none is left, and a posted work request
            // holds its payload. Regions that devices still hold keep their addresses (A1).
            unsafe { self.mapping.discard(0, len) };
        }
    }
}
