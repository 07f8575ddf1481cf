#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::ffi::{self, Work, ibv_send_wr, ibv_sge};
use super::mr::MrInner;
use super::mw::MwInner;
use super::tables::{Counts, Tables};
use crate::verbs::{SendFlags, Sge, VerbsError};

/// Send requests being built: made once, for the queue's size, and filled in place.
pub(super) struct Chain {
    wrs: Vec<ibv_send_wr>,
    sges: Vec<ibv_sge>,
    /// What is to be noted of each request once it is posted.
    notes: Vec<Note>,
    wr_max: usize,
    sge_max: usize,
    inline_bytes_max: u64,
}

// SAFETY: its requests point into the chain itself, and only while it is posted, or to windows and
// regions that its notes keep alive.
unsafe impl Send for Chain {}

enum Note {
    Send { bytes: u64, closes: bool },
    Read { bytes: u64 },
    LocalInv { key: u32 },
    Bind { key: u32, window: Arc<MwInner>, _before: Option<Arc<MrInner>> },
}

impl Chain {
    /// For at most so many requests, each with at most so many entries and inline bytes.
    pub(super) fn new(wr_max: u32, sge_max: u32, inline_bytes_max: u32) -> Self {
        let (wr_max, sge_max) = (wr_max as usize, sge_max as usize);
        Self {
            wrs: Vec::with_capacity(wr_max),
            sges: Vec::with_capacity(wr_max * sge_max),
            notes: Vec::with_capacity(wr_max),
            wr_max,
            sge_max,
            inline_bytes_max: inline_bytes_max.into(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.wrs.len()
    }

    pub(super) fn clear(&mut self) {
        self.wrs.clear();
        self.sges.clear();
        self.notes.clear();
    }

    /// Whether one more request fits.
    pub(super) fn room(&self) -> Result<(), VerbsError> {
        if self.wrs.len() < self.wr_max {
            return Ok(());
        }
        Err(limit("a chain of send requests", self.wr_max as u64))
    }

    pub(super) fn add(
        &mut self,
        wr_id: u64,
        work: Work,
        sges: &[Sge],
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        self.room()?;
        if sges.len() > self.sge_max {
            return Err(limit("gather entries of a request", self.sge_max as u64));
        }
        let bytes = sges.iter().map(|sge| u64::from(sge.len)).sum();
        if flags.has(SendFlags::INLINE) && bytes > self.inline_bytes_max {
            return Err(limit("inline bytes", self.inline_bytes_max));
        }
        let note = match work {
            Work::Send => Note::Send { bytes, closes: false },
            Work::SendWithInv(_) => Note::Send { bytes, closes: true },
            Work::Read(_) => Note::Read { bytes },
            Work::LocalInv(key) => Note::LocalInv { key },
            Work::Bind { .. } => return Err(unnoted()),
        };
        self.push(wr_id, work, sges, flags, note);
        Ok(())
    }

    /// Adds a bind of `window` with `key`. `before` is the region that an earlier request, which may
    /// be in this chain, names. The window itself keeps the new one.
    pub(super) fn add_bind(
        &mut self,
        wr_id: u64,
        (key, window, before): (u32, Arc<MwInner>, Option<Arc<MrInner>>),
        mr: &MrInner,
        range: Sge,
        flags: SendFlags,
    ) -> Result<(), VerbsError> {
        self.room()?;
        let (addr, len) = (range.addr, range.len.into());
        let work = Work::Bind { mw: window.raw(), key, mr: mr.raw(), addr, len };
        self.push(wr_id, work, &[], flags, Note::Bind { key, window, _before: before });
        Ok(())
    }

    fn push(&mut self, wr_id: u64, work: Work, sges: &[Sge], flags: SendFlags, note: Note) {
        self.sges.extend(sges.iter().map(to_raw));
        self.wrs.push(ffi::send_wr(wr_id, work, sges.len(), flags));
        self.notes.push(note);
    }

    /// Links the requests to each other and to their entries.
    pub(super) fn link(&mut self) -> *mut ibv_send_wr {
        let (first, entries) = (self.wrs.as_mut_ptr(), self.sges.as_mut_ptr());
        let (count, mut used) = (self.wrs.len(), 0);
        for (index, wr) in self.wrs.iter_mut().enumerate() {
            wr.sg_list = entries.wrapping_add(used);
            used += wr.num_sge as usize;
            wr.next = if index + 1 < count { first.wrapping_add(index + 1) } else { null_mut() };
        }
        first
    }

    /// The first so many requests are posted: notes it, and forgets them all.
    pub(super) fn settle(&mut self, posted: usize, tables: &Tables, counts: &Counts) {
        let (mut sends, mut send_bytes, mut reads, mut read_bytes) = (0, 0, 0, 0);
        let (mut binds, mut invalidations) = (0, 0);
        for note in self.notes.iter().take(posted) {
            match note {
                Note::Send { bytes, closes } => {
                    sends += 1;
                    send_bytes += bytes;
                    invalidations += u64::from(*closes);
                }
                Note::Read { bytes } => {
                    reads += 1;
                    read_bytes += bytes;
                }
                Note::LocalInv { key } => {
                    invalidations += 1;
                    tables.bound.closed(*key);
                }
                Note::Bind { key, window, .. } => {
                    binds += 1;
                    tables.bound.bound(*key);
                    window.posted(*key);
                }
            }
        }
        let add = [
            (&counts.sends, sends),
            (&counts.send_bytes, send_bytes),
            (&counts.reads, reads),
            (&counts.read_bytes, read_bytes),
            (&counts.binds, binds),
            (&counts.invalidations, invalidations),
        ];
        for (counter, more) in add {
            if more > 0 {
                counter.fetch_add(more, Relaxed);
            }
        }
        self.clear();
    }
}

const fn limit(what: &'static str, max: u64) -> VerbsError {
    VerbsError::Limit { what, max }
}

const fn unnoted() -> VerbsError {
    VerbsError::State { operation: "building a bind", why: "its window is not named" }
}

pub(super) const fn to_raw(sge: &Sge) -> ibv_sge {
    ibv_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey.0 }
}

/// How many of a chain of `len` requests are live, when the library refused `bad`. A library that
/// does not say which it refused may have taken all of them; to think so is the safe side, for what
/// is live may still use its memory.
pub(super) fn posted<T>(first: *const T, bad: *const T, len: usize) -> u32 {
    let index = bad.addr().wrapping_sub(first.addr()) / size_of::<T>();
    if bad.is_null() { len as u32 } else { index.min(len) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Lkey;

    fn sge(len: u32) -> Sge {
        Sge::new(4096, len, Lkey(3))
    }

    #[test]
    fn a_chain_is_linked_in_order_and_to_its_entries() {
        let mut chain = Chain::new(4, 2, 64);
        for (wr_id, sges) in [(1, vec![]), (2, vec![sge(1), sge(2)]), (3, vec![sge(3)])] {
            chain.add(wr_id, Work::Send, &sges, SendFlags::NONE).unwrap();
        }
        let first = chain.link();
        assert_eq!(first.cast_const(), chain.wrs.as_ptr());
        let (wrs, entries) = (&chain.wrs, chain.sges.as_ptr());
        assert_eq!(wrs[0].next.cast_const(), &raw const wrs[1]);
        assert_eq!(wrs[1].next.cast_const(), &raw const wrs[2]);
        assert!(wrs[2].next.is_null());
        assert_eq!(wrs[1].sg_list.cast_const(), entries);
        assert_eq!(wrs[2].sg_list.cast_const(), entries.wrapping_add(2));
        assert_eq!(wrs.iter().map(|wr| wr.num_sge).collect::<Vec<_>>(), [0, 2, 1]);
    }

    #[test]
    fn a_chain_keeps_to_its_size_and_does_not_grow() {
        let mut chain = Chain::new(2, 1, 8);
        let (wrs, sges) = (chain.wrs.as_ptr(), chain.sges.as_ptr());
        assert!(chain.add(1, Work::Send, &[sge(1), sge(1)], SendFlags::NONE).is_err());
        assert!(chain.add(1, Work::Send, &[sge(9)], SendFlags::INLINE).is_err());
        chain.add(1, Work::Send, &[sge(8)], SendFlags::INLINE).unwrap();
        chain.add(1, Work::Send, &[sge(9)], SendFlags::NONE).unwrap();
        assert!(chain.add(1, Work::Send, &[], SendFlags::NONE).is_err());
        assert_eq!((chain.wrs.as_ptr(), chain.sges.as_ptr()), (wrs, sges));
        assert_eq!(chain.len(), 2);
    }

    #[test]
    fn only_what_was_posted_is_counted() {
        let (tables, counts) = (Tables::default(), Counts::default());
        let mut chain = Chain::new(8, 1, 0);
        tables.bound.bound(0x0000_1200);
        chain.add(1, Work::Send, &[sge(5)], SendFlags::NONE).unwrap();
        chain.add(2, Work::LocalInv(0x0000_1234), &[], SendFlags::NONE).unwrap();
        chain.add(3, Work::Send, &[sge(7)], SendFlags::NONE).unwrap();
        chain.settle(2, &tables, &counts);
        let counted = (counts.sends.load(Relaxed), counts.send_bytes.load(Relaxed));
        assert_eq!((counted, tables.bound.len()), ((1, 5), 0));
        assert_eq!(chain.len(), 0);
    }

    #[test]
    fn the_refused_request_says_how_many_are_live() {
        let wrs = [0_u128; 4];
        for index in 0..4 {
            assert_eq!(posted(wrs.as_ptr(), &raw const wrs[index], 4), index as u32);
        }
        assert_eq!(posted(wrs.as_ptr(), std::ptr::null(), 4), 4);
        assert_eq!(posted(wrs.as_ptr(), std::ptr::dangling(), 4), 4);
    }
}
