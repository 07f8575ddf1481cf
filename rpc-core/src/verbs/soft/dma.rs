//! The only place where the device touches registered memory.
//!
//! A [`Span`] is a piece of a registered region, checked when it was made and private in its fields,
//! so nothing outside this file can make one that leaves its region. Pointers are derived from the
//! region's own pointer and keep its provenance.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::slice;

use crate::verbs::Region;

/// A checked piece of a registered region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    region: Region,
    offset: usize,
    len: usize,
}

impl Span {
    /// `len` bytes at `addr`, if they lie inside `region`.
    pub(super) fn within(region: &Region, addr: u64, len: u64) -> Option<Self> {
        let offset = addr.checked_sub(region.addr())?;
        let end = offset.checked_add(len)?;
        if end > region.len() as u64 {
            return None;
        }
        Some(Self { region: *region, offset: offset as usize, len: len as usize })
    }

    /// Bytes.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// At most the first `len` bytes.
    pub(super) fn take(self, len: usize) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// What follows the first `count` bytes.
    pub(super) fn skip(self, count: usize) -> Self {
        let count = self.len.min(count);
        Self { offset: self.offset + count, len: self.len - count, ..self }
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: `offset <= region.len()` since `within`, kept by `take` and `skip`; the region is
        // one live mapping (contract of `Region::new`).
        unsafe { self.region.ptr().add(self.offset) }
    }

    /// Appends the bytes to `out`.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        self.with_slice(|bytes| out.extend_from_slice(bytes));
    }

    /// Copies the first bytes of `data` here, as many as fit; returns how many.
    pub(super) fn fill_from(&self, data: &[u8]) -> usize {
        let count = self.len.min(data.len());
        // SAFETY: `count` bytes from `start` lie inside the live mapping; the request that names
        // this memory is posted, so nobody else may touch it (contract of `Region::new`), and
        // `data` is ordinary memory of this process's own, never part of a region.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start().as_ptr(), count) };
        count
    }

    /// Lends the bytes for one call that reads them.
    pub(super) fn with_slice<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: the span lies inside the live mapping, which is initialised memory; while a
        // request or a key that was just checked names it, its owner does not write it.
        f(unsafe { slice::from_raw_parts(self.start().as_ptr(), self.len) })
    }

    /// Lends the bytes for one call that fills them.
    pub(super) fn with_slice_mut<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        // SAFETY: as in `with_slice`, and the posted request that names this memory makes the
        // device its only user until the completion is polled.
        f(unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.len) })
    }
}

/// Memory for a test: zeroed, and never freed.
#[cfg(test)]
pub(super) fn leaked_region(bytes: usize) -> Region {
    let memory: &'static mut [u8] = Box::leak(vec![0u8; bytes].into_boxed_slice());
    // SAFETY: leaked, so never unmapped; the test touches it only through spans, and in the times
    // that its requests allow.
    unsafe { Region::new(NonNull::from(memory).cast(), bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_outside_its_region_cannot_be_made() {
        let region = leaked_region(64);
        let base = region.addr();
        assert!(Span::within(&region, base, 64).is_some());
        assert!(Span::within(&region, base + 64, 0).is_some());
        assert!(Span::within(&region, base, 65).is_none());
        assert!(Span::within(&region, base + 65, 0).is_none());
        assert!(Span::within(&region, base - 1, 1).is_none());
        assert!(Span::within(&region, u64::MAX, 2).is_none());
        assert!(Span::within(&region, base + 1, u64::MAX).is_none());
    }

    #[test]
    fn bytes_go_where_the_span_says() {
        let region = leaked_region(16);
        let all = Span::within(&region, region.addr(), 16).unwrap();
        assert_eq!(all.skip(4).take(4).fill_from(b"abcdefgh"), 4);
        all.skip(14).with_slice_mut(|end| end.copy_from_slice(b"yz"));
        let mut out = Vec::new();
        all.append_to(&mut out);
        assert_eq!(out, b"\0\0\0\0abcd\0\0\0\0\0\0yz");
        assert_eq!(all.skip(99).len(), 0);
    }
}
