//! The bounds of this program, each with its reason.

/// The longest value: the largest class of payload memory, so it lies in one buffer at each end.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// The longest key. The longest path Linux takes is 4,096 bytes; the demo adds a part's number.
pub(crate) const KEY_BYTES_MAX: usize = 8 << 10;

/// From here on a value is put straight into payload memory, where it is sent without a copy. Below,
/// it travels in the message itself or is copied once, which costs less than a buffer of its own.
pub(crate) const PAYLOAD_BYTES_MIN: usize = 16 << 10;

/// How much a handler copies before it lets its core see to other calls: some 50 µs of copying.
pub(crate) const COPY_SLICE: usize = 256 << 10;

/// What a stored entry costs beside its key and value, roughly: its place in a map and two
/// allocations. Counted, so that a flood of empty values meets the store's bound as well.
pub(crate) const ENTRY_BYTES: u64 = 160;

/// How long one call may take. 64 MiB need a tenth of a second; a minute means that something is wrong.
pub(crate) const CALL_SECONDS: u64 = 60;

/// How often the demo repeats a call that was refused for want of memory. Each time another call has
/// given memory back, and others may have taken it again.
pub(crate) const REPEATS_MAX: u32 = 100;

/// How long connecting may take, name resolution included.
pub(crate) const CONNECT_SECONDS: u64 = 10;

/// How long a server that was asked to stop may take before the process ends all the same.
pub(crate) const STOP_SECONDS: u64 = 10;
