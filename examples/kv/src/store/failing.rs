//! A disk that fails at a chosen write or sync, and one that is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, StorageBackend};

use super::file::prepare;
use super::format::{ENTRIES, FORMAT};
use super::place::Place;
use super::queue::Queue;
use super::writer::{Totals, Writer};
use super::*;

/// A disk in memory that does so many writes and syncs, and none after that.
#[derive(Clone, Debug)]
struct Failing {
    disk: Arc<InMemoryBackend>,
    left: Arc<AtomicU64>,
    failed: Arc<AtomicBool>,
}

impl Failing {
    fn step(&self) -> std::io::Result<()> {
        let less = |left: u64| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.failed.store(true, Ordering::Relaxed);
                Err(std::io::ErrorKind::StorageFull.into())
            }
        }
    }
}

type Done<T> = std::io::Result<T>;

impl StorageBackend for Failing {
    fn len(&self) -> Done<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Done<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Done<()> {
        self.step()?;
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> Done<()> {
        self.step()?;
        self.disk.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Done<()> {
        self.step()?;
        self.disk.write(offset, data)
    }
}

fn put(key: u8, len: usize) -> Vec<Write> {
    let change = Change::Put(vec![key; len].into());
    vec![Write { key: vec![key].into(), expected: None, change }]
}

/// Puts values until one is refused; which were acknowledged, and whether the writer ended in order.
fn fill(database: Database, place: Place) -> (Vec<u8>, Option<Refused>, bool) {
    let (queue, jobs) = Queue::new();
    let writer =
        Writer::new(Arc::new(database), FORMAT, Totals::default(), u64::MAX, place, Arc::default());
    let writer = thread::spawn(move || writer.run(&jobs));
    let mut acknowledged = Vec::new();
    let mut refused = None;
    for key in 0..20 {
        match rpc_core::block_on(queue.write(put(key, usize::from(key) * 1_000))) {
            Ok(_) => acknowledged.push(key),
            Err(why) => {
                refused = Some(why);
                break;
            }
        }
    }
    drop(queue);
    (acknowledged, refused, writer.join().unwrap())
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_disk_fails() {
    let mut ended = 0;
    for steps in 0..120 {
        let disk = Arc::new(InMemoryBackend::new());
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let failing = Failing { disk, left, failed: Arc::default() };
        let database = Database::builder().create_with_backend(failing.clone()).unwrap();
        prepare(&database).unwrap();
        failing.left.store(steps, Ordering::Relaxed);
        let (acknowledged, refused, in_order) = fill(database, Place::Fixed(u64::MAX));
        if failing.failed.load(Ordering::Relaxed) && refused.is_some() {
            assert!(matches!(refused, Some(Refused::Disk(_))), "{steps}: {refused:?}");
            assert!(!in_order, "{steps}");
            ended += 1;
        }
        failing.left.store(u64::MAX, Ordering::Relaxed);
        let database = Database::builder().create_with_backend(failing).unwrap();
        let entries = database.begin_read().unwrap().open_table(ENTRIES).unwrap();
        for key in acknowledged {
            assert!(entries.get(&[key][..]).unwrap().is_some(), "{steps}: {key}");
        }
    }
    assert!(ended > 20, "{ended}");
}

#[test]
fn a_full_disk_refuses_what_it_has_no_room_for_and_the_writer_goes_on() {
    let disk = InMemoryBackend::new();
    let database = Database::builder().create_with_backend(disk).unwrap();
    prepare(&database).unwrap();
    let place = Place::Fixed(crate::limits::DISK_RESERVE_BYTES + 30_000);
    let (acknowledged, refused, in_order) = fill(database, place);
    assert!(acknowledged.len() > 5 && acknowledged.len() < 15, "{acknowledged:?}");
    assert!(matches!(refused, Some(Refused::DiskFull { .. })), "{refused:?}");
    assert!(in_order);
}
