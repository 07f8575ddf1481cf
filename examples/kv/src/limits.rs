//! The bounds of this program, each with its reason.

/// The longest value: the largest class of payload memory, so it lies in one buffer at each end.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// The longest key. The longest path Linux takes is 4,096 bytes; the demo adds a part's number.
pub(crate) const KEY_BYTES_MAX: usize = 8 << 10;

/// From here on a value is put straight into payload memory, where it is sent without a copy. Below,
/// it travels in the message itself or is copied once, which costs less than a buffer of its own.
pub(crate) const PAYLOAD_BYTES_MIN: usize = 16 << 10;

/// How much a handler copies or hashes before it lets its core see to other calls: some 50 µs of copying.
pub(crate) const COPY_SLICE: usize = 256 << 10;

/// What a stored entry costs beside its key and value, roughly: its place in a map and two
/// allocations. Counted, so that a flood of empty values meets the store's bound as well.
pub(crate) const ENTRY_BYTES: u64 = 160;

/// Keys of a batch. Beyond it, several batches cost no more than one.
pub(crate) const BATCH_KEYS_MAX: usize = 1024;

/// Bytes of keys and values of a batch: as long as one value may be, so who has memory for the one has
/// it for the other.
pub(crate) const BATCH_BYTES_MAX: usize = VALUE_BYTES_MAX;

/// Keys of a page that asks for no number.
pub(crate) const PAGE_KEYS_DEFAULT: usize = 1000;

/// Keys of a page: what a core can put into an answer in some milliseconds.
pub(crate) const PAGE_KEYS_MAX: usize = 10_000;

/// Bytes of keys after which a page ends: 128 of the longest.
pub(crate) const PAGE_BYTES_MAX: usize = 1 << 20;

/// Calls whose writes wait for the disk: more than all clients of a busy server have outstanding.
pub(crate) const WRITES_WAITING_MAX: usize = 4096;

/// Bytes that wait for the disk: two of the longest values and what counts beside them. They keep payload
/// memory, which messages on their way need too.
pub(crate) const WAITING_BYTES_MAX: u64 = 130 << 20;

/// What a key or write that waits takes beside its bytes, roughly. Counted, so that a flood of short ones
/// meets the bounds in bytes as well.
pub(crate) const QUEUED_BYTES: u64 = 128;

/// Reads that wait for a thread: more than all clients of a busy server have outstanding.
pub(crate) const READS_WAITING_MAX: usize = 4096;

/// Bytes of keys of reads that wait: eight batches of the longest keys, or four hundred of short ones.
pub(crate) const READS_BYTES_MAX: u64 = 64 << 20;

/// Writes that share a commit, after which no further call's join. A disk that takes a millisecond for
/// one takes a million writes a second with this, and none of them waits for many others to be copied.
pub(crate) const COMMIT_WRITES_MAX: usize = 1024;

/// Bytes in a commit after which no further write joins it.
pub(crate) const COMMIT_BYTES_MAX: u64 = 32 << 20;

/// What is left free on a disk: for deletes, for the file's own tables, and for whoever else writes there
/// between a look and a commit.
pub(crate) const DISK_RESERVE_BYTES: u64 = 4 << 20;

/// Pages of the file's tree that a put may write anew, beside those of its value.
pub(crate) const PUT_PAGES_BYTES: u64 = 16 << 10;

/// What the file's pages may take in memory. The system's own cache holds the rest.
pub(crate) const DISK_CACHE_BYTES: usize = 128 << 20;

/// How often the demo repeats a call that was refused for want of memory. Each time another call has
/// given memory back, and others may have taken it again.
pub(crate) const REPEATS_MAX: u32 = 100;

/// How long connecting may take, name resolution included.
pub(crate) const CONNECT_SECONDS: u64 = 10;

/// How long a server that was asked to stop may take before the process ends all the same.
pub(crate) const STOP_SECONDS: u64 = 10;
