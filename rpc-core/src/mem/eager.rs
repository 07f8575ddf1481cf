#![allow(unsafe_code)]

use std::fmt;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use super::MemError;
use super::mapping::Mapping;
use crate::verbs::{Lkey, Region, Sge};

/// Slots begin on cache lines.
const SLOT_ALIGN: usize = 64;

/// Chunks begin on pages, so that nothing else is registered with them.
const CHUNK_ALIGN: usize = 4096;

/// Slot numbers fit in 24 bits, so a `wr_id` has room for a kind beside slot and generation.
pub const EAGER_SLOTS_MAX: u32 = 1 << 24;

/// The next slab's number, so that a token is only good for its own slab.
static NEXT_SLAB: AtomicU32 = AtomicU32::new(0);

/// How a slab of eager buffers is made.
#[derive(Clone, Copy, Debug)]
pub struct EagerConfig {
    /// Bytes of a slot: the longest SEND.
    pub slot_bytes: u32,
    /// Slots that are mapped and registered at a time.
    pub chunk_slots: u32,
    /// Slots at most; whole chunks, at most [`EAGER_SLOTS_MAX`].
    pub slots_max: u32,
}

/// A part of a slab that is registered as a whole. Numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkId(u32);

impl ChunkId {
    /// Its number: small and dense, so it can index a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot that is posted: names it in a `wr_id`. The generation tells an old completion from the
/// one that is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Below [`EAGER_SLOTS_MAX`].
    pub slot: u32,
    /// How often the slot was posted before, modulo 2³².
    pub generation: u32,
}

/// A slot of an [`EagerSlab`] in the hands of its engine: the only way to its bytes.
///
/// Not `Clone`. Post it ([`EagerSlab::lend`]) or give it back ([`EagerSlab::free`]): a token that is
/// dropped loses its slot until the slab is dropped.
#[must_use = "a dropped token loses its slot: lend it or free it"]
#[derive(Debug)]
pub struct EagerSlot {
    slab: u32,
    slot: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// On the free list, or a token exists.
    Here,
    /// Posted: the device may read or write it.
    Lent,
}

struct Slot {
    state: State,
    generation: u32,
}

/// An engine's buffers for eager messages, sent and received. Peers can never READ them: they are
/// registered with no remote access, and no window is bound over them.
///
/// **E1.** A slot is on the free list, or held as one [`EagerSlot`], or lent to the device, and only
/// a token reaches its bytes. Who lends a slot calls [`reclaim`](Self::reclaim) only when the
/// completion of that request was polled, or the queue it was posted on is destroyed; for an inline
/// request also when its post has returned.
pub struct EagerSlab {
    number: u32,
    config: EagerConfig,
    stride: usize,
    chunks: Vec<Mapping>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Memory for a slab's next slots, mapped and not yet part of it: a thread that may block maps and
/// registers it, and the slab's own thread takes it in.
pub struct EagerChunk {
    mapping: Mapping,
}

impl EagerChunk {
    /// Maps a chunk of the size that a slab of this configuration has.
    ///
    /// # Errors
    /// The system's refusal to map memory.
    pub fn map(config: EagerConfig) -> Result<Self, MemError> {
        let len = chunk_bytes(config);
        let mapping = Mapping::reserve(len, CHUNK_ALIGN)?;
        mapping.commit(0, len)?;
        Ok(Self { mapping })
    }

    /// The chunk as memory to register.
    pub fn region(&self) -> Region {
        // SAFETY: committed in `map` and never unmapped (A1, A2); its bytes are accessed as E1 says,
        // and by nobody before it belongs to a slab.
        unsafe { Region::new(self.mapping.base(), self.mapping.len()) }
    }
}

const fn stride(config: EagerConfig) -> usize {
    (config.slot_bytes as usize).next_multiple_of(SLOT_ALIGN)
}

const fn chunk_bytes(config: EagerConfig) -> usize {
    (stride(config) * config.chunk_slots as usize).next_multiple_of(CHUNK_ALIGN)
}

impl EagerSlab {
    /// Makes a slab with its first chunk.
    pub fn new(config: EagerConfig) -> Result<Self, MemError> {
        if config.slot_bytes == 0 || config.chunk_slots == 0 {
            return Err(MemError::Config("an eager slab needs slots, and bytes in them"));
        }
        if config.slots_max > EAGER_SLOTS_MAX || config.slots_max < config.chunk_slots {
            return Err(MemError::Config("an eager slab has one chunk to 2^24 slots"));
        }
        let mut slab = Self {
            number: NEXT_SLAB.fetch_add(1, Ordering::Relaxed),
            config,
            stride: stride(config),
            chunks: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
        };
        slab.grow()?;
        Ok(slab)
    }

    /// Adds a chunk, which the caller registers before it lends the new slots. `None` when the slab
    /// is as large as it may become.
    pub fn grow(&mut self) -> Result<Option<ChunkId>, MemError> {
        if !self.can_grow() {
            return Ok(None);
        }
        EagerChunk::map(self.config).map(|chunk| self.add(chunk))
    }

    /// Whether the slab may have another chunk.
    pub fn can_grow(&self) -> bool {
        self.slots().saturating_add(self.config.chunk_slots) <= self.config.slots_max
    }

    /// How its chunks are made.
    pub fn config(&self) -> EagerConfig {
        self.config
    }

    /// Adds a chunk that was mapped elsewhere. `None`, and the chunk goes, if it is of another shape
    /// or the slab is as large as it may become.
    pub fn add(&mut self, chunk: EagerChunk) -> Option<ChunkId> {
        let count = self.config.chunk_slots;
        let fits = chunk.mapping.len() == chunk_bytes(self.config);
        if !fits || !self.can_grow() {
            return None;
        }
        let first = self.slots.len() as u32;
        let id = ChunkId(self.chunks.len() as u32);
        chunk.mapping.close(0, chunk.mapping.len());
        self.chunks.push(chunk.mapping);
        self.slots.extend((0..count).map(|_| Slot { state: State::Here, generation: 0 }));
        self.free.extend((first..first + count).rev());
        Some(id)
    }

    /// The chunks, each to be registered as a whole with LOCAL_WRITE and nothing else.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = ChunkId> + use<> {
        (0..self.chunks.len() as u32).map(ChunkId)
    }

    /// A chunk as memory to register.
    pub fn region(&self, chunk: ChunkId) -> Region {
        let mapping = &self.chunks[chunk.index()];
        // SAFETY: committed in `grow` and never unmapped (A1, A2); its bytes are accessed as E1
        // says.
        unsafe { Region::new(mapping.base(), mapping.len()) }
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u32 {
        self.config.slot_bytes
    }

    /// Slots there are now.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Slots that nobody holds.
    pub fn slots_free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Bytes mapped.
    pub fn mapped_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    /// Takes a free slot. `None`: [`grow`](Self::grow), or wait for one to be freed.
    pub fn alloc(&mut self) -> Option<EagerSlot> {
        let slot = self.free.pop()?;
        let (chunk, offset) = self.place(slot);
        chunk.open(offset, self.config.slot_bytes as usize);
        Some(EagerSlot { slab: self.number, slot })
    }

    /// Gives a slot back.
    pub fn free(&mut self, token: EagerSlot) {
        self.check(&token);
        let (chunk, offset) = self.place(token.slot);
        chunk.close(offset, self.config.slot_bytes as usize);
        self.free.push(token.slot);
    }

    /// The chunk a slot lies in: it says which region's key a request needs.
    pub fn chunk(&self, token: &EagerSlot) -> ChunkId {
        ChunkId(token.slot / self.config.chunk_slots)
    }

    /// The slot's bytes: zeros, or what was last written there.
    pub fn bytes(&self, token: &EagerSlot) -> &[u8] {
        self.check(token);
        let ptr = self.ptr(token.slot);
        // SAFETY: inside of a committed chunk (A2); the token is the only way to the slot and is
        // not lent (E1), so nobody writes it while it is borrowed.
        unsafe { slice::from_raw_parts(ptr, self.config.slot_bytes as usize) }
    }

    /// The slot's bytes, to write.
    pub fn bytes_mut(&mut self, token: &mut EagerSlot) -> &mut [u8] {
        self.check(token);
        let ptr = self.ptr(token.slot);
        // SAFETY: as for `bytes`, and the token is borrowed mutably, so nobody reads it.
        unsafe { slice::from_raw_parts_mut(ptr, self.config.slot_bytes as usize) }
    }

    /// Hands the slot to a device: names its first `len` bytes in a request, and takes the token
    /// away until the completion. `len` is cut to the slot. `lkey` is the key of its chunk's region.
    pub fn lend(&mut self, token: EagerSlot, len: u32, lkey: Lkey) -> (SlotId, Sge) {
        self.check(&token);
        let addr = self.ptr(token.slot).addr() as u64;
        let slot = &mut self.slots[token.slot as usize];
        slot.state = State::Lent;
        let id = SlotId { slot: token.slot, generation: slot.generation };
        (id, Sge::new(addr, len.min(self.config.slot_bytes), lkey))
    }

    /// Takes a slot back whose request is done, as E1 says when that is known. `None` if
    /// the slot is not lent under this generation: the completion is stale or a bug.
    pub fn reclaim(&mut self, id: SlotId) -> Option<EagerSlot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.state != State::Lent || slot.generation != id.generation {
            return None;
        }
        slot.state = State::Here;
        slot.generation = slot.generation.wrapping_add(1);
        Some(EagerSlot { slab: self.number, slot: id.slot })
    }

    fn ptr(&self, slot: u32) -> *mut u8 {
        let (chunk, offset) = self.place(slot);
        chunk.at(offset).as_ptr()
    }

    /// The chunk of a slot, and where in it the slot begins.
    fn place(&self, slot: u32) -> (&Mapping, usize) {
        let chunk = &self.chunks[(slot / self.config.chunk_slots) as usize];
        (chunk, (slot % self.config.chunk_slots) as usize * self.stride)
    }

    /// A token of another slab would name a slot that may be lent here.
    fn check(&self, token: &EagerSlot) {
        assert_eq!(token.slab, self.number, "an eager slot is used with its own slab");
    }
}

impl Drop for EagerSlab {
    fn drop(&mut self) {
        // Slots that are still lent keep their pages: the device may use them.
        if self.slots.iter().any(|slot| slot.state == State::Lent) {
            return;
        }
        for chunk in &self.chunks {
            // SAFETY: nobody can borrow from a slab that is being dropped, and no slot is lent.
            unsafe { chunk.discard(0, chunk.len()) };
        }
    }
}

impl fmt::Debug for EagerSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EagerSlab({} slots, {} free)", self.slots.len(), self.free.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Lkey = Lkey(7);

    fn slab(chunk_slots: u32, slots_max: u32) -> EagerSlab {
        EagerSlab::new(EagerConfig { slot_bytes: 9216, chunk_slots, slots_max }).unwrap()
    }

    #[test]
    fn slots_are_apart_and_begin_as_zeros() {
        let mut slab = slab(4, 4);
        let mut slots: Vec<_> = std::iter::from_fn(|| slab.alloc()).collect();
        assert_eq!((slots.len(), slab.slots_free()), (4, 0));
        for (n, slot) in slots.iter_mut().enumerate() {
            assert!(slab.bytes(slot).iter().all(|byte| *byte == 0));
            slab.bytes_mut(slot).fill(n as u8 + 1);
        }
        for (n, slot) in slots.iter().enumerate() {
            assert_eq!(slab.bytes(slot), vec![n as u8 + 1; 9216]);
        }
        slots.into_iter().for_each(|slot| slab.free(slot));
        assert_eq!(slab.slots_free(), 4);
    }

    #[test]
    fn a_slab_grows_by_chunks_up_to_its_maximum() {
        let mut slab = slab(2, 5);
        let (_a, _b) = (slab.alloc().unwrap(), slab.alloc().unwrap());
        assert!(slab.alloc().is_none());
        let chunk = slab.grow().unwrap().unwrap();
        assert_eq!(chunk.index(), 1);
        let slot = slab.alloc().unwrap();
        assert_eq!(slab.chunk(&slot), chunk);
        let region = slab.region(chunk);
        assert_eq!(region.addr() % 4096, 0);
        let at = slab.bytes(&slot).as_ptr().addr() as u64;
        assert!(region.addr() <= at && at + 9216 <= region.addr() + region.len() as u64);
        assert!(slab.grow().unwrap().is_none(), "a third chunk would exceed five slots");
        assert_eq!((slab.slots(), slab.chunks().len()), (4, 2));
    }

    #[test]
    fn a_chunk_mapped_elsewhere_becomes_part_of_the_slab_if_it_fits() {
        let mut slab = slab(2, 4);
        let other = EagerConfig { chunk_slots: 3, ..slab.config() };
        assert!(slab.add(EagerChunk::map(other).unwrap()).is_none());
        let chunk = EagerChunk::map(slab.config()).unwrap();
        let addr = chunk.region().addr();
        let id = slab.add(chunk).unwrap();
        assert_eq!((slab.region(id).addr(), slab.slots(), slab.slots_free()), (addr, 4, 4));
        assert!(!slab.can_grow());
        assert!(slab.add(EagerChunk::map(slab.config()).unwrap()).is_none());
    }

    #[test]
    fn a_lent_slot_comes_back_once_and_only_for_its_own_completion() {
        let mut slab = slab(1, 1);
        let slot = slab.alloc().unwrap();
        let (id, sge) = slab.lend(slot, 100, KEY);
        assert_eq!(sge.len(), 100);
        let stale = SlotId { generation: id.generation.wrapping_sub(1), ..id };
        assert!(slab.reclaim(stale).is_none());
        assert!(slab.reclaim(SlotId { slot: 9, ..id }).is_none(), "no such slot");
        let slot = slab.reclaim(id).unwrap();
        assert!(slab.reclaim(id).is_none(), "it is here already");
        let (again, _) = slab.lend(slot, 100, KEY);
        assert_ne!(id, again);
        assert!(slab.reclaim(id).is_none(), "a completion of the first post");
        assert!(slab.reclaim(again).is_some());
    }

    #[test]
    fn a_request_never_names_more_than_the_slot() {
        let mut slab = slab(1, 1);
        let slot = slab.alloc().unwrap();
        let (_, sge) = slab.lend(slot, u32::MAX, KEY);
        assert_eq!(sge.len(), 9216);
    }

    #[test]
    #[should_panic(expected = "its own slab")]
    fn a_slot_of_another_slab_is_refused() {
        let (mut one, two) = (slab(1, 1), slab(1, 1));
        let slot = one.alloc().unwrap();
        let _ = two.bytes(&slot);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (slot_bytes, chunk_slots, slots_max) in
            [(0, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, EAGER_SLOTS_MAX + 1)]
        {
            let config = EagerConfig { slot_bytes, chunk_slots, slots_max };
            assert!(matches!(EagerSlab::new(config), Err(MemError::Config(_))));
        }
    }
}
