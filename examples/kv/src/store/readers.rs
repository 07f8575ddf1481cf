use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use futures_channel::oneshot;
use redb::{Database, ReadTransaction, ReadableDatabase};

use super::Refused;
use crate::failure::Failure;
use crate::limits::READS_WAITING_MAX;

/// Threads that read, because a read may wait for the disk and a core must not. Two: while one waits,
/// the other answers what is in memory.
const READERS: usize = 2;

type Read = Box<dyn FnOnce(&Database) + Send>;

/// Reads on their way to threads that do them.
pub(super) struct Readers {
    reads: Option<Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts the threads.
    pub(super) fn start(database: &Arc<Database>) -> Result<Self, Failure> {
        let (reads, receiver) = crossbeam_channel::bounded::<Read>(READS_WAITING_MAX);
        let mut threads = Vec::with_capacity(READERS);
        for index in 0..READERS {
            let (database, reads) = (Arc::clone(database), receiver.clone());
            let thread = thread::Builder::new().name(format!("kv-read-{index}"));
            let run = move || run(&database, &reads);
            let thread = thread
                .spawn(run)
                .map_err(|error| Failure::because("no thread can be started", error))?;
            threads.push(thread);
        }
        Ok(Self { reads: Some(reads), threads })
    }

    /// Reads what is committed now, and waits for it.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        what: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, Refused> {
        let (answer, answered) = oneshot::channel();
        let read = move |database: &Database| {
            let result = database.begin_read().map_err(redb::Error::from);
            let result = result.and_then(|transaction| what(&transaction));
            _ = answer.send(result.map_err(|error| Refused::Disk(error.to_string())));
        };
        let Some(reads) = &self.reads else { return Err(ended()) };
        reads.try_send(Box::new(read)).map_err(|error| match error {
            TrySendError::Full(_) => Refused::QueueFull,
            TrySendError::Disconnected(_) => ended(),
        })?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.reads.take());
        for thread in self.threads.drain(..) {
            _ = thread.join(); // one that panicked has said so
        }
    }
}

fn run(database: &Database, reads: &Receiver<Read>) {
    while let Ok(read) = reads.recv() {
        read(database);
    }
}

fn ended() -> Refused {
    Refused::Disk("the threads that read have ended; see the server's log".into())
}
