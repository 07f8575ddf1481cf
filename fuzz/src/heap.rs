//! What code under test takes from the heap, by the allocator's own count.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    /// Allocations.
    pub(crate) count: u64,
    /// Bytes at the worst moment.
    pub(crate) peak: u64,
    /// Bytes that it holds at its end, or gave back more than it took.
    pub(crate) held: i64,
}

/// Runs `code` and counts what it allocates on this thread.
pub(crate) fn measured<T>(code: impl FnOnce() -> T) -> (T, Heap) {
    let mut result = None;
    // The counter must be left as it was entered, also by a panic.
    let info = allocation_counter::measure(|| {
        result = Some(catch_unwind(AssertUnwindSafe(code)));
    });
    let heap = Heap { count: info.count_total, peak: info.bytes_max, held: info.bytes_current };
    match result {
        Some(Ok(value)) => (value, heap),
        Some(Err(panic)) => resume_unwind(panic),
        None => unreachable!("it was run"),
    }
}

/// Runs `code`, which must allocate nothing at all.
pub(crate) fn nothing<T>(what: &str, code: impl FnOnce() -> T) -> T {
    let (value, heap) = measured(code);
    assert_eq!(heap.count, 0, "{what} allocates: {heap:?}");
    value
}

/// Runs `code`, which may hold at most `bytes_max` at a time.
pub(crate) fn at_most<T>(what: &str, bytes_max: u64, code: impl FnOnce() -> T) -> T {
    let (value, heap) = measured(code);
    assert!(heap.peak <= bytes_max, "{what} may take {bytes_max} bytes: {heap:?}");
    value
}
