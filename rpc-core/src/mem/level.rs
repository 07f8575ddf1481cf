use super::MemError;
use super::class::{CLASS_COUNT, Class, GRANULE_BYTES};
use super::range::{AddressRange, ArenaId};

/// The free blocks that no core has: kept by arena, so that an arena whose blocks are all free can
/// be carved for another class.
pub(super) struct Level {
    /// For each class, the arenas that have free blocks. The last is used first.
    open: [Vec<ArenaId>; CLASS_COUNT],
    arenas: Vec<ArenaFree>,
}

struct ArenaFree {
    class: Class,
    /// Free blocks, by their page number in the range.
    free: Vec<u32>,
    /// Whether `open` of its class names it.
    open: bool,
}

impl ArenaFree {
    fn is_whole(&self) -> bool {
        self.free.len() == self.class.blocks_per_arena()
    }
}

impl Level {
    pub(super) fn new() -> Self {
        Self { open: [const { Vec::new() }; CLASS_COUNT], arenas: Vec::new() }
    }

    /// Takes a block that is free already.
    pub(super) fn take(&mut self, class: Class) -> Option<u32> {
        let open = &mut self.open[class.index()];
        let id = *open.last()?;
        let arena = &mut self.arenas[id.index()];
        let block = arena.free.pop();
        if arena.free.is_empty() {
            arena.open = false;
            open.pop();
        }
        block
    }

    /// Puts a free block back.
    pub(super) fn give(&mut self, range: &AddressRange, block: u32) {
        let id = range.arena_of(block);
        let arena = &mut self.arenas[id.index()];
        arena.free.push(block);
        if !arena.open {
            arena.open = true;
            self.open[arena.class.index()].push(id);
        }
    }

    /// Makes free blocks of `class`: carves a wholly free arena of that size anew, or grows.
    pub(super) fn refill(&mut self, range: &AddressRange, class: Class) -> Result<(), MemError> {
        let id = match self.whole_arena(class) {
            Some(id) => {
                let arena = &mut self.arenas[id.index()];
                self.open[arena.class.index()].retain(|open| *open != id);
                range.recarve(id, class);
                id
            }
            None => {
                let id = range.grow(class)?;
                self.arenas.push(ArenaFree { class, free: Vec::new(), open: false });
                id
            }
        };
        let arena = &mut self.arenas[id.index()];
        arena.class = class;
        arena.free.clear();
        // Last first, so blocks are handed out in the order of their addresses.
        arena.free.extend((0..class.blocks_per_arena()).rev().map(|n| range.block(id, class, n)));
        arena.open = true;
        self.open[class.index()].push(id);
        Ok(())
    }

    /// An arena of another class, but of the size that `class` needs, whose blocks are all free.
    ///
    /// Only arenas of one granule can be that: each larger size belongs to one class.
    fn whole_arena(&self, class: Class) -> Option<ArenaId> {
        if class.bytes() > GRANULE_BYTES {
            return None;
        }
        let fits = |arena: &ArenaFree| {
            arena.class != class && arena.class.bytes() <= GRANULE_BYTES && arena.is_whole()
        };
        self.arenas.iter().position(fits).map(|index| ArenaId(index as u32))
    }

    /// Bytes of the free blocks here.
    pub(super) fn free_bytes(&self) -> u64 {
        self.arenas.iter().map(|arena| (arena.free.len() * arena.class.bytes()) as u64).sum()
    }
}
