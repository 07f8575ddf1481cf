use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use redb::{ReadTransaction, TableError};
use rpc_core::bytes::Bytes;

use super::file::{self, Opened};
use super::format::{ENTRIES, Entry, PIECES, Sum, pieces};
use super::place::Place;
use super::queue::Queue;
use super::readers::{Gone, Readers};
use super::writer::{Told, Writer};
use super::{Listed, Page, Range, Refused, Usage, Versioned, Write, Written, load};
use crate::failure::Failure;
use crate::limits::QUEUED_BYTES;
use crate::stop::Stop;

/// Values under keys, in a file.
///
/// Reads and writes are done by threads of its own, which may wait for the disk; a core never does. A
/// write is answered once its commit is on the disk.
pub(crate) struct Disk {
    queue: Option<Queue>,
    readers: Option<Readers>,
    writer: Option<JoinHandle<()>>,
    told: Arc<Told>,
    id: Bytes,
    /// The format that the file was made with.
    first: u8,
    failed: Stop,
}

impl Disk {
    /// Opens the store of a folder, and makes both if need be.
    pub(crate) fn open(folder: &Path, bytes_max: u64) -> Result<Self, Failure> {
        let Opened { database, id, first, totals } = file::open(folder)?;
        let database = Arc::new(database);
        let told = Arc::new(Told::default());
        let failed = Stop::default();
        let readers = Readers::start(&database, &failed)?;
        let (queue, jobs) = Queue::new();
        let place = Place::of(folder).map_err(|error| {
            let folder = folder.display();
            Failure::because(format!("the data folder {folder} cannot be used"), error)
        })?;
        let writer = Writer::new(database, first, totals, bytes_max, place, Arc::clone(&told));
        let ended = Ended(Some(failed.clone()));
        let writer = thread::Builder::new()
            .name("kv-write".into())
            .spawn(move || {
                let mut ended = ended; // all of it goes with this thread
                if writer.run(&jobs) {
                    ended.0 = None;
                }
            })
            .map_err(|error| Failure::because("no thread can be started", error))?;
        tracing::info!(folder = %folder.display(), keys = totals.keys, "the store is open");
        Ok(Self {
            queue: Some(queue),
            readers: Some(readers),
            writer: Some(writer),
            told,
            id,
            first,
            failed,
        })
    }

    /// As [`super::Store::get_many`].
    pub(super) async fn get_many(
        &self,
        keys: Vec<Bytes>,
        bytes_max: usize,
    ) -> Result<Vec<Option<Versioned>>, Refused> {
        let bytes = keys.iter().map(|key| key.len() as u64 + QUEUED_BYTES).sum();
        let first = self.first;
        let read = move |transaction: &ReadTransaction, gone: Gone<'_>| {
            get_many(transaction, first, &keys, bytes_max, gone)
        };
        self.readers()?.read(bytes, read).await?
    }

    /// As [`super::Store::write`].
    pub(super) async fn write(&self, writes: Vec<Write>) -> Result<Written, Refused> {
        let Some(queue) = &self.queue else { return Err(closed()) };
        queue.write(writes).await
    }

    /// As [`super::Store::list`]. A page is as the store is at one moment.
    pub(super) async fn list(&self, range: Range) -> Result<Page, Refused> {
        let after = range.after.as_ref().map_or(0, Bytes::len);
        let bytes = (range.prefix.len() + after) as u64 + QUEUED_BYTES;
        let first = self.first;
        let read = move |transaction: &ReadTransaction, gone: Gone<'_>| {
            list(transaction, first, &range, gone)
        };
        self.readers()?.read(bytes, read).await
    }

    /// Asked for once the disk has failed: nothing can be read or written any more.
    pub(super) fn failed(&self) -> &Stop {
        &self.failed
    }

    /// What it holds now.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            keys: load(&self.told.keys),
            value_bytes: load(&self.told.value_bytes),
            id: self.id.clone(),
            persistent: true,
            writes: load(&self.told.writes),
            commits: load(&self.told.commits),
            writes_waiting: self.queue.as_ref().map_or(0, Queue::writes_waiting),
            version: load(&self.told.version),
        }
    }

    fn readers(&self) -> Result<&Readers, Refused> {
        self.readers.as_ref().ok_or_else(closed)
    }
}

/// Says that the disk has failed when it is dropped: a writer that panicked has ended as well.
struct Ended(Option<Stop>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(failed) = &self.0 {
            failed.ask();
        }
    }
}

impl Drop for Disk {
    /// Waits for the threads: the last one to let the file go closes it in order, and then the next
    /// start need not look through all of it.
    fn drop(&mut self) {
        drop(self.readers.take());
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            _ = writer.join(); // one that panicked has said so
        }
    }
}

fn get_many(
    transaction: &ReadTransaction,
    first: u8,
    keys: &[Bytes],
    bytes_max: usize,
    gone: Gone<'_>,
) -> Result<Result<Vec<Option<Versioned>>, Refused>, redb::Error> {
    let entries = transaction.open_table(ENTRIES)?;
    let mut values = Vec::with_capacity(keys.len());
    let mut bytes: u64 = 0;
    for (index, key) in keys.iter().enumerate() {
        if gone() {
            break;
        }
        let Some(found) = entries.get(&key[..])? else {
            values.push(None);
            continue;
        };
        let Some(entry) = Entry::decode(first, key, found.value()) else {
            return Ok(Err(damaged(index, key)));
        };
        bytes = bytes.saturating_add(entry.len());
        if bytes > bytes_max as u64 && !values.is_empty() {
            break;
        }
        match value_of(transaction, key, entry)? {
            Some(value) => values.push(Some(value)),
            None => return Ok(Err(damaged(index, key))),
        }
    }
    Ok(Ok(values))
}

fn damaged(index: usize, key: &Bytes) -> Refused {
    Refused::ValueDamaged { index, key: key.clone() }
}

/// The value of an entry; `None` if it is not what was written.
fn value_of(
    transaction: &ReadTransaction,
    key: &[u8],
    entry: Entry<'_>,
) -> Result<Option<Versioned>, redb::Error> {
    let (version, sum, slot, len) = match entry {
        Entry::Inline { version, value } => {
            return Ok(Some(Versioned { version, value: Bytes::copy_from_slice(value) }));
        }
        Entry::Apart { version, sum, slot, len } => (version, sum, slot, len),
    };
    let table = transaction.open_table(PIECES)?;
    let Ok(capacity) = usize::try_from(len) else { return Ok(None) };
    let mut value = Vec::with_capacity(capacity);
    let mut seen = Sum::new(key, version);
    for piece in 0..pieces(len) {
        let Some(bytes) = table.get((version, slot, piece))? else { return Ok(None) };
        seen.add(bytes.value());
        value.extend_from_slice(bytes.value());
    }
    let right = value.len() == capacity && sum.is_none_or(|sum| sum == seen.end());
    Ok(right.then(|| Versioned { version, value: value.into() }))
}

fn list(
    transaction: &ReadTransaction,
    first: u8,
    range: &Range,
    gone: Gone<'_>,
) -> Result<Page, redb::Error> {
    let mut page = Page::default();
    let entries = match transaction.open_table(ENTRIES) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(page),
        opened => opened?,
    };
    let bounds = (range.begin(), std::ops::Bound::Unbounded);
    let mut bytes = 0;
    for found in entries.range::<&[u8]>(bounds)? {
        let (key, entry) = found?;
        let key = key.value();
        if !key.starts_with(&range.prefix) || gone() {
            break;
        }
        if !range.has_room(&page, bytes) {
            page.more = true;
            break;
        }
        let entry = Entry::decode(first, key, entry.value());
        bytes += key.len();
        let (version, value_len) = entry.map_or((0, 0), |entry| (entry.version(), entry.len()));
        page.entries.push(Listed { key: Bytes::copy_from_slice(key), version, value_len });
    }
    Ok(page)
}

fn closed() -> Refused {
    Refused::Disk("the store is closed".into())
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase};

    use super::super::format;
    use super::*;

    /// Puts bytes under a key of `entries` and reads the key, as a server does.
    fn read_as(
        database: &Database,
        key: &[u8],
        entry: &[u8],
    ) -> Result<Vec<Option<Versioned>>, Refused> {
        let transaction = database.begin_write().unwrap();
        transaction.open_table(ENTRIES).unwrap().insert(key, entry).unwrap();
        transaction.commit().unwrap();
        let keys = [Bytes::copy_from_slice(key)];
        get_many(&database.begin_read().unwrap(), format::FORMAT, &keys, usize::MAX, &|| false)
            .unwrap()
    }

    #[test]
    fn no_single_bit_of_an_entry_that_changed_gives_out_another_value() {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let long = vec![7; 2_000];
        let transaction = database.begin_write().unwrap();
        transaction.open_table(PIECES).unwrap().insert((5, 3, 0), &long[..]).unwrap();
        transaction.commit().unwrap();
        let sum = Sum::new(b"long", 5).with(&long);
        for (key, value, entry) in [
            (&b"short"[..], &b"value"[..], format::inline(b"short", 5, b"value")),
            (b"long", &long, format::apart(b"long", 5, sum, 3, 2_000)),
        ] {
            let right = Versioned { version: 5, value: Bytes::copy_from_slice(value) };
            assert_eq!(read_as(&database, key, &entry), Ok(vec![Some(right)]));
            for bit in 0..entry.len() * 8 {
                let mut entry = entry.clone();
                entry[bit / 8] ^= 1 << (bit % 8);
                let read = read_as(&database, key, &entry);
                let key = Bytes::copy_from_slice(key);
                assert_eq!(read, Err(Refused::ValueDamaged { index: 0, key }), "{bit}");
            }
        }
    }
}
