use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use futures_channel::oneshot;
use redb::{Database, ReadTransaction, ReadableDatabase};

use super::Refused;
use super::room::Waiting;
use crate::failure::Failure;
use crate::limits::{READS_BYTES_MAX, READS_WAITING_MAX};
use crate::stop::Stop;

/// Threads that read, because a read may wait for the disk and a core must not. Two: while one waits,
/// the other answers what is in memory.
const READERS: usize = 2;

type Read = Box<dyn FnOnce(&Database) + Send>;

/// Asked between two steps of a read: whether nobody waits for it any more.
pub(super) type Gone<'a> = &'a dyn Fn() -> bool;

/// Reads on their way to threads that do them, bounded in number and in bytes.
pub(super) struct Readers {
    reads: Option<Sender<Read>>,
    waiting: Arc<Waiting>,
    failed: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts the threads.
    pub(super) fn start(database: &Arc<Database>, failed: &Stop) -> Result<Self, Failure> {
        let (mut readers, receiver) = Self::queue(failed.clone());
        for index in 0..READERS {
            let (database, reads) = (Arc::clone(database), receiver.clone());
            let thread = thread::Builder::new().name(format!("kv-read-{index}"));
            let run = move || run(&database, &reads);
            let thread = thread
                .spawn(run)
                .map_err(|error| Failure::because("no thread can be started", error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// The queue alone, without a thread that reads.
    fn queue(failed: Stop) -> (Self, Receiver<Read>) {
        let (reads, receiver) = crossbeam_channel::bounded(READS_WAITING_MAX);
        let waiting = Waiting::new(READS_BYTES_MAX);
        (Self { reads: Some(reads), waiting, failed, threads: Vec::new() }, receiver)
    }

    /// Reads what is committed now, and waits for it. `bytes` is what the read holds while it waits. One
    /// that nobody waits for any more when its turn comes is not done.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        bytes: u64,
        what: impl FnOnce(&ReadTransaction, Gone<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, Refused> {
        let room = self.waiting.room(bytes, 1).ok_or(Refused::ReadsFull)?;
        let (answer, answered) = oneshot::channel();
        let failed = self.failed.clone();
        let read = move |database: &Database| {
            if !answer.is_canceled() {
                let result = guarded(|| {
                    let transaction = database.begin_read()?;
                    what(&transaction, &|| answer.is_canceled())
                });
                if matches!(result, Err(Refused::Disk(_))) {
                    failed.ask(); // redb refuses everything after its first failed read or write
                }
                _ = answer.send(result);
            }
            drop(room);
        };
        let Some(reads) = &self.reads else { return Err(ended()) };
        reads.try_send(Box::new(read)).map_err(|error| match error {
            TrySendError::Full(_) => Refused::ReadsFull,
            TrySendError::Disconnected(_) => ended(),
        })?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.reads.take());
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

/// Does a read. One that panics, as redb may on a damaged file, ends neither this thread nor those that
/// wait behind it.
fn guarded<T>(read: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Refused> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(Refused::from),
        Err(_) => {
            tracing::error!("a read panicked: the data file is damaged");
            Err(Refused::Damaged("reading it ended in a panic; see the server's log".into()))
        }
    }
}

/// Ends when nobody can send any more and all that was sent is done, and in no other way: so nothing is
/// left in the channel that somebody waits for.
fn run(database: &Database, reads: &Receiver<Read>) {
    while let Ok(read) = reads.recv() {
        read(database);
    }
}

fn ended() -> Refused {
    Refused::Disk("the threads that read have ended; see the server's log".into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::future::FutureExt;

    use super::*;

    fn database() -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::create(folder.path().join("file")).unwrap();
        (folder, database)
    }

    #[test]
    fn reads_are_bounded_in_number_and_in_bytes() {
        let (readers, receiver) = Readers::queue(Stop::default());
        let half = READS_BYTES_MAX / 2;
        let mut first = Box::pin(readers.read(half, |_, _| Ok(())));
        let mut second = Box::pin(readers.read(half, |_, _| Ok(())));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        let third = readers.read(1, |_, _| Ok(())).now_or_never();
        assert_eq!(third, Some(Err(Refused::ReadsFull)));
        let (_folder, database) = database();
        receiver.recv().unwrap()(&database);
        assert_eq!(first.now_or_never(), Some(Ok(())));
        let many: Vec<_> = (1..READS_WAITING_MAX)
            .map(|_| {
                let mut read = Box::pin(readers.read(1, |_, _| Ok(())));
                assert!(read.as_mut().now_or_never().is_none());
                read
            })
            .collect();
        let more = readers.read(1, |_, _| Ok(())).now_or_never();
        assert_eq!(more, Some(Err(Refused::ReadsFull)));
        drop(many);
    }

    #[test]
    fn a_read_that_nobody_waits_for_is_not_done_and_its_room_comes_back() {
        let (readers, receiver) = Readers::queue(Stop::default());
        let done = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&done);
        let mut read = Box::pin(readers.read(READS_BYTES_MAX, move |_, _| {
            told.store(true, Ordering::Relaxed);
            Ok(())
        }));
        assert!(read.as_mut().now_or_never().is_none());
        drop(read);
        let (_folder, database) = database();
        receiver.recv().unwrap()(&database);
        assert!(!done.load(Ordering::Relaxed));
        assert!(readers.read(READS_BYTES_MAX, |_, _| Ok(())).now_or_never().is_none());
    }

    #[test]
    fn a_read_that_panics_is_answered_and_the_next_one_is_done() {
        let (_folder, database) = database();
        let readers = Readers::start(&Arc::new(database), &Stop::default()).unwrap();
        for _ in 0..=READERS {
            let read = readers.read(1, |_, _| -> Result<(), redb::Error> {
                std::panic::resume_unwind(Box::new("damaged"))
            });
            assert!(matches!(rpc_core::block_on(read), Err(Refused::Damaged(_))));
        }
        assert_eq!(rpc_core::block_on(readers.read(1, |_, _| Ok(7))), Ok(7));
    }
}
