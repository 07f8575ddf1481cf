//! Values under keys, with versions: in memory, or in a file that outlives the server.

mod disk;
#[cfg(test)]
mod failing;
mod file;
mod format;
mod memory;
mod place;
mod queue;
mod readers;
mod room;
#[cfg(test)]
mod tests;
mod turn;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rpc_core::bytes::Bytes;

use disk::Disk;
use memory::Memory;

use crate::failure::Failure;
use crate::limits::{ENTRY_BYTES, QUEUED_BYTES};
use crate::stop::Stop;

/// A store: in memory, gone when the process ends, or in a folder, which outlives it.
pub struct Store(Kind);

enum Kind {
    Memory(Box<Memory>),
    /// What is acknowledged is on the disk.
    Disk(Disk),
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Versioned {
    /// Greater than that of any earlier write; never 0.
    pub(crate) version: u64,
    /// The value.
    pub(crate) value: Bytes,
}

/// What is to become of one key.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The key.
    pub(crate) key: Bytes,
    /// The version that the key must have, 0 for none; `None` if it does not matter.
    pub(crate) expected: Option<u64>,
    /// What to do.
    pub(crate) change: Change,
}

/// What a write does.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Stores a value.
    Put(Bytes),
    /// Removes the key.
    Delete,
}

/// What some writes did: all of them, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// The version that the keys written have now. Of deletes it says nothing.
    pub(crate) version: u64,
    /// How many of the keys had a value before.
    pub(crate) existed: u64,
}

/// Why something was not done. None of it was, except where it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A key has another version than was expected.
    Mismatch {
        /// Which of the writes.
        index: usize,
        /// The version expected.
        expected: u64,
        /// The version it has, 0 for none.
        current: u64,
    },
    /// Too many writes wait for the disk.
    QueueFull,
    /// Too many reads wait for the disk.
    ReadsFull,
    /// The disk has too little room left.
    DiskFull {
        /// What the store holds, counted as in `Full`.
        bytes: u64,
    },
    /// The store's bound would be passed.
    Full {
        /// What the store may hold in bytes: keys, values and some memory for each entry together.
        bytes_max: u64,
    },
    /// The disk failed. Whether a write is stored shows when the server is started again.
    Disk(String),
    /// The file itself is damaged, on the way to a key. A write that meets it is not done.
    Damaged(String),
    /// What lies in the file under a key is not what was written there. It can be replaced and deleted, but
    /// has no version that one could expect.
    ValueDamaged {
        /// Which of the keys.
        index: usize,
        /// The key itself.
        key: Bytes,
    },
}

/// One key of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The key.
    pub(crate) key: Bytes,
    /// Its version; 0 if what lies under the key is damaged, values that lie apart not counted.
    pub(crate) version: u64,
    /// The length of its value.
    pub(crate) value_len: u64,
}

/// Some keys in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The keys.
    pub(crate) entries: Vec<Listed>,
    /// Whether there are more after them.
    pub(crate) more: bool,
}

/// Which keys to list.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    /// What they begin with.
    pub(crate) prefix: Bytes,
    /// Only keys after this one.
    pub(crate) after: Option<Bytes>,
    /// How many at most; at least 1.
    pub(crate) keys_max: usize,
    /// Bytes of keys after which a page ends.
    pub(crate) bytes_max: usize,
}

/// What a store holds and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Keys.
    pub(crate) keys: u64,
    /// The sum of all values' lengths.
    pub(crate) value_bytes: u64,
    /// Tells this store from every other.
    pub(crate) id: Bytes,
    /// Whether it outlives its server.
    pub(crate) persistent: bool,
    /// Writes done.
    pub(crate) writes: u64,
    /// Commits that made them durable.
    pub(crate) commits: u64,
    /// Writes that wait for their commit.
    pub(crate) writes_waiting: u64,
    /// The last version given.
    pub(crate) version: u64,
}

impl Store {
    /// An empty store in memory, of at most so many bytes: keys, values and some memory for each entry.
    pub fn in_memory(bytes_max: u64) -> Result<Self, Failure> {
        Ok(Self(Kind::Memory(Box::new(Memory::new(bytes_max)?))))
    }

    /// The store in a folder, which is made if it does not exist. One that another process has open is
    /// refused, as is a file that no store wrote.
    pub fn in_folder(folder: &Path, bytes_max: u64) -> Result<Self, Failure> {
        Disk::open(folder, bytes_max).map(|disk| Self(Kind::Disk(disk)))
    }

    /// Whether there is a store in a folder.
    pub(crate) fn lies_in(folder: &Path) -> bool {
        folder.join(file::FILE).metadata().is_ok_and(|file| file.is_file() && file.len() > 0)
    }

    /// The value under a key.
    pub(crate) async fn get(&self, key: Bytes) -> Result<Option<Versioned>, Refused> {
        match &self.0 {
            Kind::Memory(memory) => Ok(memory.get(&key)),
            Kind::Disk(disk) => Ok(disk.get_many(vec![key], usize::MAX).await?.pop().flatten()),
        }
    }

    /// The values under some keys at one moment, in their order, until they have `bytes_max` bytes
    /// together; at least the first.
    pub(crate) async fn get_many(
        &self,
        keys: Vec<Bytes>,
        bytes_max: usize,
    ) -> Result<Vec<Option<Versioned>>, Refused> {
        match &self.0 {
            Kind::Memory(memory) => Ok(memory.get_many(&keys, bytes_max).await),
            Kind::Disk(disk) => disk.get_many(keys, bytes_max).await,
        }
    }

    /// Does all writes or none. No key may be named twice.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<Written, Refused> {
        match &self.0 {
            Kind::Memory(memory) => memory.write(writes).await,
            Kind::Disk(disk) => disk.write(writes).await,
        }
    }

    /// A page of keys.
    pub(crate) async fn list(&self, range: Range) -> Result<Page, Refused> {
        match &self.0 {
            Kind::Memory(memory) => Ok(memory.list(&range).await),
            Kind::Disk(disk) => disk.list(range).await,
        }
    }

    /// Asked for once the store cannot go on, which one in memory always can.
    pub(crate) fn failed(&self) -> Stop {
        match &self.0 {
            Kind::Memory(_) => Stop::default(),
            Kind::Disk(disk) => disk.failed().clone(),
        }
    }

    /// What it holds now.
    pub(crate) fn usage(&self) -> Usage {
        match &self.0 {
            Kind::Memory(memory) => memory.usage(),
            Kind::Disk(disk) => disk.usage(),
        }
    }
}

impl Write {
    /// Bytes of its key and value, and of what holds them while it waits.
    pub(crate) fn len(&self) -> u64 {
        let value = match &self.change {
            Change::Put(value) => value.len(),
            Change::Delete => 0,
        };
        self.key.len() as u64 + value as u64 + QUEUED_BYTES
    }
}

impl From<redb::Error> for Refused {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Corrupted(what) => Self::Damaged(what),
            error => Self::Disk(error.to_string()),
        }
    }
}

impl Range {
    /// Whether a page of `page` has room for another key.
    fn has_room(&self, page: &Page, bytes: usize) -> bool {
        page.entries.is_empty() || (page.entries.len() < self.keys_max && bytes < self.bytes_max)
    }

    /// Where to begin: at the first key after, or at the prefix itself.
    fn begin(&self) -> std::ops::Bound<&[u8]> {
        match &self.after {
            Some(after) => std::ops::Bound::Excluded(after),
            None => std::ops::Bound::Included(&self.prefix),
        }
    }
}

/// Sixteen random bytes.
fn random_id() -> Result<Bytes, Failure> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)
        .map_err(|error| Failure::because("the system gives no random bytes", error))?;
    Ok(Bytes::copy_from_slice(&id))
}

/// What an entry counts against a store's bound.
fn cost(key_len: usize, value_len: u64) -> u64 {
    (key_len as u64).saturating_add(value_len).saturating_add(ENTRY_BYTES)
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
