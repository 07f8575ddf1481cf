#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;

use super::budget::{Share, Use};
use super::cache::Home;
use super::class::Class;
use super::range::{ArenaId, Placement};
use crate::verbs::{Lkey, Sge};

/// What a block that comes home is overwritten with when [`PoolConfig::poison`] is set.
///
/// [`PoolConfig::poison`]: super::PoolConfig::poison
pub(super) const POISON: u8 = 0xdb;

/// One block in somebody's hands. Its drop gives the block and its part of the budget back.
struct Block {
    /// The first byte of the block (invariant M1: this Block is the only one for it).
    ptr: NonNull<u8>,
    number: u32,
    class: Class,
    share: Share,
    purpose: Use,
    /// Whether it is counted as held by a user.
    held: bool,
    /// Keeps the address range alive, and says where the block goes.
    home: Arc<Home>,
}

// SAFETY: a Block is the only holder of its bytes (M1), which are plain memory of no thread.
unsafe impl Send for Block {}
// SAFETY: through `&Block` the bytes can only be read.
unsafe impl Sync for Block {}

impl Block {
    fn bytes(&self) -> u64 {
        self.class.bytes() as u64
    }

    fn slice(&self, len: u32) -> &[u8] {
        debug_assert!(len as usize <= self.class.bytes());
        // SAFETY: the block is mapped, initialised (A2), at least `len` long, and nobody writes it
        // while this borrow lives: writing needs `&mut` of the one holder (M1), and a posted READ
        // means that the holder lies in the in-flight table unborrowed (M2).
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), len as usize) }
    }

    fn slice_mut(&mut self, len: u32) -> &mut [u8] {
        debug_assert!(len as usize <= self.class.bytes());
        // SAFETY: as for `slice`; and `&mut` of the one holder (M1) means that nobody reads it.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), len as usize) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = self.bytes();
        if self.home.shared.poison {
            self.home.shared.range.open(self.number, bytes as usize);
            self.slice_mut(bytes as u32).fill(POISON);
        }
        if self.held {
            self.home.shared.unhold(bytes);
        }
        self.home.shared.range.close(self.number, bytes as usize);
        // The block before the budget: whoever gets these bytes of budget finds the block.
        self.home.give(self.number);
        self.home.shared.budget.give(self.share, self.purpose, bytes);
    }
}

/// A payload buffer with one owner, who may write it: 4 KiB aligned, in memory that devices can be
/// given. Any thread may hold and drop it; dropping it cannot fail or block.
///
/// Its content begins as zeros or as old bytes of this process: write what you send.
///
/// As the destination of a posted READ it lies in the engine's in-flight table, and nobody borrows
/// its bytes until the completion was polled or the QP is gone (M2 of the module documentation).
pub struct PayloadMut {
    block: Block,
    len: u32,
}

impl PayloadMut {
    /// `number` is a block of `home`'s pool that is on no list; `len` fits its class; its bytes of
    /// the budget are taken.
    pub(super) fn new(
        home: Arc<Home>,
        number: u32,
        class: Class,
        (share, purpose): (Share, Use),
        len: usize,
    ) -> Self {
        assert!(len <= class.bytes(), "the length fits its class");
        let ptr = home.shared.range.ptr(number);
        home.shared.range.open(number, len);
        let block = Block { ptr, number, class, share, purpose, held: false, home };
        Self { block, len: len as u32 }
    }

    /// Bytes of the block: what this buffer costs of the budget, and the most it can hold.
    pub fn block_bytes(&self) -> u64 {
        self.block.bytes()
    }

    /// Forgets all but the first `len` bytes. Does nothing if there are not more. The block stays
    /// as large as it is.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len as usize {
            self.len = len as u32;
        }
    }

    /// Makes it readable by any number of holders, without a copy: clones and slices share the
    /// block, and the last of them to go gives it back.
    pub fn freeze(self) -> Bytes {
        if self.len == 0 {
            return Bytes::new();
        }
        Bytes::from_owner(Payload(self))
    }

    /// As [`freeze`](Self::freeze), for a block that [`Shared::hold`] has counted.
    ///
    /// [`Shared::hold`]: super::pool::Shared::hold
    pub(super) fn freeze_held(mut self) -> Bytes {
        self.block.held = true;
        self.freeze()
    }

    /// The arena it lies in.
    pub fn arena(&self) -> ArenaId {
        self.block.home.shared.range.arena_of(self.block.number)
    }

    /// Where it lies.
    pub fn placement(&self) -> Placement {
        let addr = self.block.ptr.addr().get() as u64;
        Placement { arena: self.arena(), addr, len: self.len }
    }

    /// Names `offset..offset + len` of it in a work request; `None` if that is not inside.
    /// `lkey` is the key of its arena's region.
    ///
    /// From the post of a request that writes it until its completion was polled, this buffer must
    /// not be borrowed or dropped (M2).
    pub fn sge(&self, offset: u32, len: u32, lkey: Lkey) -> Option<Sge> {
        self.placement().sge(offset, len, lkey)
    }
}

impl Placement {
    /// Names `offset..offset + len` of it in a work request; `None` if that is not inside.
    /// `lkey` is the key of its arena's region.
    pub fn sge(&self, offset: u32, len: u32, lkey: Lkey) -> Option<Sge> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| Sge::new(self.addr + u64::from(offset), len, lkey))
    }
}

impl Deref for PayloadMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.slice(self.len)
    }
}

impl DerefMut for PayloadMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.block.slice_mut(self.len)
    }
}

impl AsRef<[u8]> for PayloadMut {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PayloadMut {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for PayloadMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PayloadMut({} of {} bytes)", self.len, self.block.bytes())
    }
}

/// A payload that is only read: the owner behind the `Bytes` of [`PayloadMut::freeze`]. Nobody can
/// reach the writer inside.
struct Payload(PayloadMut);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
