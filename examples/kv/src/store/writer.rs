use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{AccessGuard, Database, ReadableTable, Table, WriteTransaction};
use rpc_core::bytes::Bytes;

use super::format::{
    self, ENTRIES, Entry, FORMAT, INLINE_BYTES_MAX, META, PIECES, Sum, cut, pieces,
};
use super::place::Place;
use super::queue::{Job, Jobs};
use super::{Change, Refused, Write, Written, cost};
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_WRITES_MAX, DISK_RESERVE_BYTES, PUT_PAGES_BYTES};

/// The thread that writes: all that has come while it waited for the disk goes into its next commit,
/// so the disk's pace bounds how long a write takes, and not how many there are.
pub(super) struct Writer {
    database: Arc<Database>,
    first: u8,
    totals: Totals,
    bytes_max: u64,
    place: Place,
    told: Arc<Told>,
}

/// What lies in `meta` beside the format, under these names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// The last version given.
    pub(super) version: u64,
    /// Keys.
    pub(super) keys: u64,
    /// The sum of all values' lengths.
    pub(super) value_bytes: u64,
    /// What counts against the store's bound.
    pub(super) bytes: u64,
}

/// What others may know of the writer.
#[derive(Default)]
pub(super) struct Told {
    pub(super) keys: AtomicU64,
    pub(super) value_bytes: AtomicU64,
    pub(super) version: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) commits: AtomicU64,
}

/// The tables while a transaction writes them.
struct Tables<'t> {
    first: u8,
    entries: Table<'t, &'static [u8], &'static [u8]>,
    pieces: Table<'t, (u64, u32, u32), &'static [u8]>,
}

/// What came of one job, before the commit.
type Outcome = Result<Written, Refused>;

impl Writer {
    /// A writer that goes on where the file ends, which was made with format `first`.
    pub(super) fn new(
        database: Arc<Database>,
        first: u8,
        totals: Totals,
        bytes_max: u64,
        place: Place,
        told: Arc<Told>,
    ) -> Self {
        let writer = Self { database, first, totals, bytes_max, place, told };
        writer.tell();
        writer
    }

    /// Commits what comes until nobody can send any more: then true. False if a commit failed, after which
    /// redb refuses all others: those that wait are told, and the server is to be started again.
    pub(super) fn run(mut self, jobs: &Jobs) -> bool {
        while let Some(first) = jobs.next() {
            let group = group(first, jobs);
            let before = self.totals;
            match self.commit(&group) {
                Ok(outcomes) => {
                    self.tell();
                    for (job, outcome) in group.into_iter().zip(outcomes) {
                        job.finish(outcome);
                    }
                }
                Err(error) => {
                    self.totals = before;
                    tracing::error!(%error, writes = group.len(), "a commit failed");
                    let refused = Refused::from(error);
                    group.into_iter().for_each(|job| job.finish(Err(refused.clone())));
                    return false;
                }
            }
        }
        true
    }

    /// Does the writes of a group in one transaction. Nobody may hear of it before this returns.
    fn commit(&mut self, group: &[Job]) -> Result<Vec<Outcome>, redb::Error> {
        let before = self.totals;
        let transaction = self.database.begin_write()?;
        let mut outcomes = Vec::with_capacity(group.len());
        let mut free = self.place.free(self.totals.bytes).saturating_sub(DISK_RESERVE_BYTES);
        {
            let mut tables = Tables::open(&transaction, self.first)?;
            for job in group {
                let growth = growth(&job.writes);
                if growth > free {
                    outcomes.push(Err(Refused::DiskFull { bytes: self.totals.bytes }));
                    continue;
                }
                outcomes.push(self.apply(&mut tables, &job.writes)?);
                free -= growth;
            }
        }
        if self.totals == before {
            transaction.abort()?; // nothing has changed: nothing to wait for
            return Ok(outcomes);
        }
        self.totals.store(&transaction)?;
        transaction.commit()?;
        self.place.check()?; // before anybody is told that it is on the disk
        let writes = group.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
        let writes: usize = writes.map(|(job, _)| job.writes.len()).sum();
        self.told.writes.fetch_add(writes as u64, Ordering::Relaxed);
        self.told.commits.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }

    /// Does some writes, or refuses them before anything has changed.
    fn apply(&mut self, tables: &mut Tables<'_>, writes: &[Write]) -> Result<Outcome, redb::Error> {
        let mut bytes = self.totals.bytes;
        for (index, write) in writes.iter().enumerate() {
            let found = match tables.find(&write.key)? {
                Lies::Nothing => None,
                Lies::Value(found) => Some(found),
                Lies::Damaged if write.expected.is_some() => {
                    let key = write.key.clone();
                    return Ok(Err(Refused::ValueDamaged { index, key }));
                }
                Lies::Damaged => None, // what it counted is not known, and stays counted
            };
            let current = found.map_or(0, |found| found.version);
            if let Some(expected) = write.expected
                && expected != current
            {
                return Ok(Err(Refused::Mismatch { index, expected, current }));
            }
            if let Change::Put(value) = &write.change {
                bytes = bytes.saturating_add(cost(write.key.len(), value.len() as u64));
            }
            bytes -= found.map_or(0, |found| cost(write.key.len(), found.len)).min(bytes);
        }
        if bytes > self.bytes_max && bytes > self.totals.bytes {
            return Ok(Err(Refused::Full { bytes_max: self.bytes_max }));
        }
        let mut written = Written { version: self.totals.version + 1, existed: 0 };
        let mut changed = false;
        for (slot, write) in (0..).zip(writes) {
            let removed = tables.remove(&write.key)?;
            let existed = removed != Lies::Nothing;
            if existed {
                self.totals.keys = self.totals.keys.saturating_sub(1);
                written.existed += 1;
            }
            if let Lies::Value(removed) = removed {
                self.totals.value_bytes -= removed.len.min(self.totals.value_bytes);
            }
            if let Change::Put(value) = &write.change {
                tables.insert(&write.key, value, written.version, slot)?;
                self.totals.keys += 1;
                self.totals.value_bytes += value.len() as u64;
            }
            changed |= existed || matches!(write.change, Change::Put(_));
        }
        self.totals.bytes = bytes;
        self.totals.version += u64::from(changed);
        Ok(Ok(written))
    }

    fn tell(&self) {
        self.told.keys.store(self.totals.keys, Ordering::Relaxed);
        self.told.value_bytes.store(self.totals.value_bytes, Ordering::Relaxed);
        self.told.version.store(self.totals.version, Ordering::Relaxed);
    }
}

/// What some writes may add to the file before older pages can be used again. A delete adds pages as
/// well; those are what the reserve is for, so that a full disk can be made less full.
fn growth(writes: &[Write]) -> u64 {
    let put = |write: &Write| match &write.change {
        Change::Put(value) => {
            let bytes = (write.key.len() + value.len()) as u64;
            bytes + bytes / 8 + PUT_PAGES_BYTES
        }
        Change::Delete => 0,
    };
    writes.iter().map(put).fold(0, u64::saturating_add)
}

/// The first job, and those that wait behind it, as far as one commit may take them.
fn group(first: Job, jobs: &Jobs) -> Vec<Job> {
    let (mut bytes, mut writes) = (first.len(), first.writes());
    let mut group = vec![first];
    while writes < COMMIT_WRITES_MAX && bytes < COMMIT_BYTES_MAX {
        let Some(job) = jobs.waiting() else { break };
        bytes = bytes.saturating_add(job.len());
        writes += job.writes();
        group.push(job);
    }
    group
}

/// What was found under a key, without the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    version: u64,
    len: u64,
    /// Where its pieces are, if it has some.
    slot: Option<u32>,
}

/// What lies under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    Nothing,
    Value(Found),
    /// Something that this program does not write under this key. Its pieces stay: which they were cannot
    /// be told, and another value's may be taken for them.
    Damaged,
}

impl Lies {
    fn under(first: u8, key: &[u8], bytes: Option<&[u8]>) -> Self {
        let Some(bytes) = bytes else { return Self::Nothing };
        let Some(entry) = Entry::decode(first, key, bytes) else { return Self::Damaged };
        let slot = match entry {
            Entry::Apart { slot, .. } => Some(slot),
            Entry::Inline { .. } => None,
        };
        Self::Value(Found { version: entry.version(), len: entry.len(), slot })
    }
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction, first: u8) -> Result<Self, redb::Error> {
        let entries = transaction.open_table(ENTRIES)?;
        Ok(Self { first, entries, pieces: transaction.open_table(PIECES)? })
    }

    fn find(&self, key: &[u8]) -> Result<Lies, redb::Error> {
        let entry = self.entries.get(key)?;
        Ok(Lies::under(self.first, key, entry.as_ref().map(AccessGuard::value)))
    }

    fn remove(&mut self, key: &[u8]) -> Result<Lies, redb::Error> {
        let removed = self.entries.remove(key)?;
        let removed = Lies::under(self.first, key, removed.as_ref().map(AccessGuard::value));
        if let Lies::Value(Found { version, len, slot: Some(slot) }) = removed {
            for piece in 0..pieces(len) {
                self.pieces.remove((version, slot, piece))?;
            }
        }
        Ok(removed)
    }

    fn insert(
        &mut self,
        key: &[u8],
        value: &Bytes,
        version: u64,
        slot: u32,
    ) -> Result<(), redb::Error> {
        if value.len() <= INLINE_BYTES_MAX {
            self.entries.insert(key, &format::inline(key, version, value)[..])?;
            return Ok(());
        }
        for (piece, bytes) in cut(value) {
            // Straight from the memory that it came in to the page: its one copy.
            let mut page = self.pieces.insert_reserve((version, slot, piece), bytes.len())?;
            page.as_mut().copy_from_slice(bytes);
        }
        let sum = Sum::new(key, version).with(value);
        let entry = format::apart(key, version, sum, slot, value.len() as u64);
        self.entries.insert(key, &entry[..])?;
        Ok(())
    }
}

impl Totals {
    /// Reads them from `meta`; a name that is not there yet is 0.
    pub(super) fn load(
        meta: &impl ReadableTable<&'static str, &'static [u8]>,
    ) -> Result<Self, redb::Error> {
        let number = |name: &str| -> Result<u64, redb::Error> {
            let Some(bytes) = meta.get(name)? else { return Ok(0) };
            let bytes = bytes.value().try_into();
            Ok(u64::from_le_bytes(
                bytes.map_err(|_| redb::Error::Corrupted(format!("meta: {name}")))?,
            ))
        };
        Ok(Self {
            version: number("version")?,
            keys: number("keys")?,
            value_bytes: number("value_bytes")?,
            bytes: number("bytes")?,
        })
    }

    fn store(&self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        let mut meta = transaction.open_table(META)?;
        meta.insert("format", &[FORMAT][..])?; // a file of an older one has an entry of this one now
        for (name, number) in [
            ("version", self.version),
            ("keys", self.keys),
            ("value_bytes", self.value_bytes),
            ("bytes", self.bytes),
        ] {
            meta.insert(name, &number.to_le_bytes()[..])?;
        }
        Ok(())
    }
}
