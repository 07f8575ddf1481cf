#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::MemError;

/// Address space of our own: reserved once, made usable piece by piece, never unmapped.
///
/// Devices may hold any part of it for as long as the process lives, so dropping a mapping gives
/// back its pages ([`discard`](Self::discard)) and keeps its addresses.
///
/// Invariant A1: `base..base + len` is one mapping of this process for ever.
/// Invariant A2: every byte below a successful [`commit`](Self::commit) is readable, writable and
/// initialised (anonymous pages begin as zeros).
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a Mapping is an address range; it gives no access to the bytes by itself.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes of addresses aligned to `align`, a power of two. Uses no memory.
    pub(super) fn reserve(len: usize, align: usize) -> Result<Self, MemError> {
        let padded = len.checked_add(align).ok_or(MemError::Config("the budget is too large"))?;
        let first = os::reserve(padded, align).map_err(|source| MemError::Map {
            what: "reserve",
            bytes: len as u64,
            source,
        })?;
        let skip = first.addr().get().next_multiple_of(align) - first.addr().get();
        // SAFETY: `skip < align`, and the mapping is `len + align` bytes long.
        let base = unsafe { first.add(skip) };
        Ok(Self { base, len })
    }

    /// Bytes reserved.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The byte at `offset`, which must be inside.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "an offset outside of the mapping");
        // SAFETY: `offset < len`, and A1.
        unsafe { self.base.add(offset) }
    }

    /// Makes `offset..offset + len` (whole pages, inside) readable and writable.
    pub(super) fn commit(&self, offset: usize, len: usize) -> Result<(), MemError> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "commit is inside");
        os::commit(self.at(offset), len).map_err(|source| MemError::Map {
            what: "map",
            bytes: len as u64,
            source,
        })
    }

    /// Says that `offset..offset + len`, which is inside, is nobody's until it is
    /// [`open`](Self::open)ed. AddressSanitizer then reports every access; elsewhere nothing happens.
    pub(super) fn close(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "close is inside");
        asan::mark(self.at(offset), len, false);
    }

    /// Says that `offset..offset + len`, which is inside, has an owner.
    pub(super) fn open(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "open is inside");
        asan::mark(self.at(offset), len, true);
    }

    /// Gives back the pages of `offset..offset + len`, whose content becomes zeros.
    ///
    /// # Safety
    /// No reference into the range exists and no device has a posted request on it.
    pub(super) unsafe fn discard(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "discard is inside");
        // SAFETY: inside of our mapping (A1), and the caller promises that nobody uses the bytes.
        unsafe { os::discard(self.at(offset), len) };
    }
}

/// Under `--cfg asan`: free blocks and slots are closed to everyone, as a freed allocation is. Arenas
/// are never unmapped, so without this AddressSanitizer could not know that they are free.
#[cfg(asan)]
mod asan {
    use std::ffi::c_void;
    use std::ptr::NonNull;

    unsafe extern "C" {
        fn __asan_poison_memory_region(ptr: *const c_void, len: usize);
        fn __asan_unpoison_memory_region(ptr: *const c_void, len: usize);
    }

    pub(super) fn mark(ptr: NonNull<u8>, len: usize, open: bool) {
        let ptr = ptr.as_ptr().cast_const().cast();
        if open {
            // SAFETY: the range is in a mapping of ours; no byte of it is touched.
            unsafe { __asan_unpoison_memory_region(ptr, len) };
        } else {
            // SAFETY: as above.
            unsafe { __asan_poison_memory_region(ptr, len) };
        }
    }
}

#[cfg(not(asan))]
mod asan {
    pub(super) const fn mark(_ptr: std::ptr::NonNull<u8>, _len: usize, _open: bool) {}
}

#[cfg(not(miri))]
mod os {
    use std::io;
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

    pub(super) fn reserve(len: usize, _align: usize) -> io::Result<NonNull<u8>> {
        // Private and without reserve: addresses only, counted by no limit but RLIMIT_AS.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: no address is given, so the kernel chooses one that nobody uses.
        let ptr =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        NonNull::new(ptr.cast()).ok_or_else(|| io::Error::other("mmap answered with no address"))
    }

    pub(super) fn commit(ptr: NonNull<u8>, len: usize) -> io::Result<()> {
        let rights = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range is in a mapping of ours (A1); it only gains rights.
        unsafe { rustix::mm::mprotect(ptr.as_ptr().cast(), len, rights) }?;
        // Huge pages mean fewer faults and fewer entries in a device's tables. Where the system
        // has none this fails, and nothing is lost.
        // SAFETY: as above; this advice changes no content.
        let _ = unsafe { rustix::mm::madvise(ptr.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Ok(())
    }

    /// See `Mapping::discard`.
    ///
    /// # Safety
    /// The range is in a mapping of ours and nobody uses its bytes.
    pub(super) unsafe fn discard(ptr: NonNull<u8>, len: usize) {
        // A failure leaves the pages where they are, which costs memory and nothing else.
        // SAFETY: the caller's promise.
        let _ = unsafe { rustix::mm::madvise(ptr.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }
}

/// Under Miri, which has no page protection: zeroed heap memory that a static keeps for ever.
#[cfg(miri)]
mod os {
    use std::alloc::{self, Layout};
    use std::io;
    use std::ptr::NonNull;
    use std::sync::Mutex;

    struct Kept(#[allow(dead_code)] NonNull<u8>);
    // SAFETY: only kept, never used.
    unsafe impl Send for Kept {}
    static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

    pub(super) fn reserve(len: usize, align: usize) -> io::Result<NonNull<u8>> {
        let layout = Layout::from_size_align(len, align).map_err(io::Error::other)?;
        // SAFETY: `len` is not zero: `Mapping::reserve` adds the alignment.
        let ptr = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })
            .ok_or(io::ErrorKind::OutOfMemory)?;
        KEPT.lock().unwrap().push(Kept(ptr));
        Ok(ptr)
    }

    pub(super) fn commit(_ptr: NonNull<u8>, _len: usize) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    /// As outside of Miri.
    pub(super) unsafe fn discard(ptr: NonNull<u8>, len: usize) {
        // SAFETY: the range is ours and nobody uses its bytes.
        unsafe { ptr.write_bytes(0, len) };
    }
}
