use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::verbs::{DeviceCounters, DeviceUsage};

/// What is alive of a device's objects, and what was done with them.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) pds: AtomicU32,
    pub(super) mrs: AtomicU32,
    pub(super) mr_bytes: AtomicU64,
    pub(super) mws: AtomicU32,
    pub(super) cqs: AtomicU32,
    pub(super) srqs: AtomicU32,
    pub(super) qps: AtomicU32,
    pub(super) bound: BoundWindows,
    leaks: AtomicU64,
    counts: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    alive: Vec<Arc<Counts>>,
    /// The sum of those that are gone.
    gone: DeviceCounters,
}

impl Tables {
    /// Says that an object was not destroyed, and stays until the process ends.
    pub(super) fn leaked(&self, what: &'static str, errno: i32) {
        self.leaks.fetch_add(1, Relaxed);
        let error = std::io::Error::from_raw_os_error(errno);
        tracing::error!(%error, "a {what} could not be destroyed and is leaked");
    }

    pub(super) fn leaks(&self) -> u64 {
        self.leaks.load(Relaxed)
    }

    /// A new set of counters, for a CQ and the QPs that complete there.
    pub(super) fn new_counts(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        self.lock().alive.push(Arc::clone(&counts));
        counts
    }

    pub(super) fn retire_counts(&self, counts: &Arc<Counts>) {
        let mut counted = self.lock();
        counted.alive.retain(|alive| !Arc::ptr_eq(alive, counts));
        counts.add_to(&mut counted.gone);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counters(&self) -> DeviceCounters {
        let counted = self.lock();
        let mut sum = counted.gone;
        for counts in &counted.alive {
            counts.add_to(&mut sum);
        }
        sum
    }

    pub(super) fn usage(&self) -> DeviceUsage {
        DeviceUsage {
            pds: self.pds.load(Relaxed),
            mrs: self.mrs.load(Relaxed),
            mr_bytes: self.mr_bytes.load(Relaxed),
            mws: self.mws.load(Relaxed),
            mws_bound: self.bound.len(),
            cqs: self.cqs.load(Relaxed),
            srqs: self.srqs.load(Relaxed),
            qps: self.qps.load(Relaxed),
            ..DeviceUsage::default()
        }
    }
}

/// Counters that, as a rule, one core alone adds to: on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counts {
    pub(super) sends: AtomicU64,
    pub(super) send_bytes: AtomicU64,
    pub(super) recvs: AtomicU64,
    pub(super) recv_bytes: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) binds: AtomicU64,
    pub(super) invalidations: AtomicU64,
    pub(super) access_errors: AtomicU64,
}

impl Counts {
    fn add_to(&self, sum: &mut DeviceCounters) {
        sum.sends += self.sends.load(Relaxed);
        sum.send_bytes += self.send_bytes.load(Relaxed);
        sum.recvs += self.recvs.load(Relaxed);
        sum.recv_bytes += self.recv_bytes.load(Relaxed);
        sum.reads += self.reads.load(Relaxed);
        sum.read_bytes += self.read_bytes.load(Relaxed);
        sum.binds += self.binds.load(Relaxed);
        sum.invalidations += self.invalidations.load(Relaxed);
        sum.remote_access_errors += self.access_errors.load(Relaxed);
    }
}

/// Indices of windows are the upper 24 bits of their keys: one bit for each.
const PAGES: usize = 512;
const PAGE_WORDS: usize = 512;
const _: () = assert!(PAGES * PAGE_WORDS * 64 == 1 << 24);

type Page = [AtomicU64; PAGE_WORDS];

/// Which windows are bound. A bit for each index that a key can have, in pages that are made when the
/// first window of theirs is bound, so at most 2 MiB; marking takes no lock.
pub(super) struct BoundWindows {
    pages: Box<[OnceLock<Box<Page>>]>,
    count: AtomicU32,
}

impl Default for BoundWindows {
    fn default() -> Self {
        let pages = (0..PAGES).map(|_| OnceLock::new()).collect();
        Self { pages, count: AtomicU32::new(0) }
    }
}

impl BoundWindows {
    fn place(key: u32) -> (usize, usize, u64) {
        let index = (key >> 8) as usize;
        (index / 64 / PAGE_WORDS, index / 64 % PAGE_WORDS, 1 << (index % 64))
    }

    pub(super) fn bound(&self, key: u32) {
        let (page, word, bit) = Self::place(key);
        let page =
            self.pages[page].get_or_init(|| Box::new([const { AtomicU64::new(0) }; PAGE_WORDS]));
        if page[word].fetch_or(bit, Relaxed) & bit == 0 {
            self.count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn closed(&self, key: u32) {
        let (page, word, bit) = Self::place(key);
        let Some(page) = self.pages[page].get() else { return };
        if page[word].fetch_and(!bit, Relaxed) & bit != 0 {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.count.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_counted_once_whatever_its_tag() {
        let bound = BoundWindows::default();
        for key in [0x0000_0001, 0x0000_0002, 0xffff_ff00, 0xffff_ffff, 0x0012_3400] {
            bound.bound(key);
        }
        assert_eq!(bound.len(), 3);
        bound.closed(0x0077_7700);
        bound.closed(0xffff_ff07);
        bound.closed(0xffff_ff07);
        assert_eq!(bound.len(), 2);
        bound.closed(0x0000_00ff);
        bound.closed(0x0012_3456);
        assert_eq!(bound.len(), 0);
    }

    #[test]
    fn counters_of_queues_that_are_gone_stay_in_the_sum() {
        let tables = Tables::default();
        let (one, two) = (tables.new_counts(), tables.new_counts());
        one.sends.fetch_add(3, Relaxed);
        two.sends.fetch_add(4, Relaxed);
        tables.retire_counts(&one);
        two.reads.fetch_add(5, Relaxed);
        let sum = tables.counters();
        assert_eq!((sum.sends, sum.reads), (7, 5));
    }
}
