use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use futures_channel::oneshot;

use super::{Refused, Write, Written, load};
use crate::limits::{WAITING_BYTES_MAX, WRITES_WAITING_MAX};

/// Writes on their way to the thread that commits them, bounded in number and in bytes.
///
/// They keep the payload memory that they came in, so the bytes are bounded by what a server can spare
/// of it. A write longer than the bound may wait alone.
pub(super) struct Queue {
    jobs: Sender<Job>,
    waiting: Arc<Waiting>,
}

/// The queue's other end.
pub(super) struct Jobs(Receiver<Job>);

/// Some writes that belong together, and who waits for them.
pub(super) struct Job {
    pub(super) writes: Vec<Write>,
    answer: oneshot::Sender<Result<Written, Refused>>,
    room: Room,
}

/// What waits for its commit.
#[derive(Default)]
pub(super) struct Waiting {
    bytes: AtomicU64,
    writes: AtomicU64,
}

/// A place in the queue, given back when it is dropped.
struct Room {
    waiting: Arc<Waiting>,
    bytes: u64,
    writes: u64,
}

impl Queue {
    /// An empty queue, and its other end.
    pub(super) fn new() -> (Self, Jobs) {
        let (jobs, receiver) = crossbeam_channel::bounded(WRITES_WAITING_MAX);
        (Self { jobs, waiting: Arc::default() }, Jobs(receiver))
    }

    /// Queues some writes and waits until they are durable or refused.
    pub(super) async fn write(&self, writes: Vec<Write>) -> Result<Written, Refused> {
        let room = self.room(&writes)?;
        let (answer, answered) = oneshot::channel();
        self.jobs.try_send(Job { writes, answer, room }).map_err(|error| match error {
            TrySendError::Full(_) => Refused::QueueFull,
            TrySendError::Disconnected(_) => ended(),
        })?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Writes that wait now.
    pub(super) fn writes_waiting(&self) -> u64 {
        load(&self.waiting.writes)
    }

    fn room(&self, writes: &[Write]) -> Result<Room, Refused> {
        let bytes = writes.iter().map(Write::len).fold(0, u64::saturating_add);
        let take = |used: u64| {
            let sum = used.checked_add(bytes)?;
            (used == 0 || sum <= WAITING_BYTES_MAX).then_some(sum)
        };
        let taken = self.waiting.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map_err(|_| Refused::QueueFull)?;
        let writes = writes.len() as u64;
        self.waiting.writes.fetch_add(writes, Ordering::Relaxed);
        Ok(Room { waiting: Arc::clone(&self.waiting), bytes, writes })
    }
}

impl Jobs {
    /// The next job, waited for. `None` when nobody can send any more.
    pub(super) fn next(&self) -> Option<Job> {
        self.0.recv().ok()
    }

    /// A job that waits now.
    pub(super) fn waiting(&self) -> Option<Job> {
        self.0.try_recv().ok()
    }
}

impl Drop for Jobs {
    /// A channel keeps what is in it for as long as somebody may send; who waits for that is to be told.
    fn drop(&mut self) {
        while let Some(job) = self.waiting() {
            drop(job);
        }
    }
}

impl Job {
    /// Bytes of its keys and values.
    pub(super) fn len(&self) -> u64 {
        self.room.bytes
    }

    /// Gives its memory and its place back, then tells who waits.
    pub(super) fn finish(self, result: Result<Written, Refused>) {
        let Self { writes, answer, room } = self;
        drop((writes, room));
        // Nobody waits any more if the call was cancelled.
        _ = answer.send(result);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.waiting.writes.fetch_sub(self.writes, Ordering::Relaxed);
    }
}

/// The thread at the other end has ended.
fn ended() -> Refused {
    Refused::Disk("the thread that writes has ended; see the server's log".into())
}

#[cfg(test)]
mod tests {
    use futures_util::future::FutureExt;
    use rpc_core::bytes::Bytes;

    use super::*;
    use crate::store::Change;

    fn put(len: usize) -> Vec<Write> {
        let change = Change::Put(Bytes::from(vec![0; len]));
        vec![Write { key: Bytes::new(), expected: None, change }]
    }

    #[test]
    fn a_full_queue_refuses_and_takes_again_when_a_write_is_done() {
        let (queue, jobs) = Queue::new();
        let half = WAITING_BYTES_MAX as usize / 2;
        let mut first = Box::pin(queue.write(put(half)));
        let mut second = Box::pin(queue.write(put(half)));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(queue.write(put(1)).now_or_never(), Some(Err(Refused::QueueFull)));
        assert_eq!(queue.writes_waiting(), 2);
        jobs.next().unwrap().finish(Ok(Written { version: 1, existed: 0 }));
        assert_eq!(first.now_or_never(), Some(Ok(Written { version: 1, existed: 0 })));
        assert!(queue.write(put(1)).now_or_never().is_none());
    }

    #[test]
    fn writes_are_bounded_in_number() {
        let (queue, _jobs) = Queue::new();
        let waiting: Vec<_> = (0..WRITES_WAITING_MAX)
            .map(|_| {
                let mut write = Box::pin(queue.write(put(0)));
                assert!(write.as_mut().now_or_never().is_none());
                write
            })
            .collect();
        assert_eq!(queue.write(put(0)).now_or_never(), Some(Err(Refused::QueueFull)));
        drop(waiting);
    }

    #[test]
    fn a_value_over_the_bound_waits_alone() {
        let (queue, _jobs) = Queue::new();
        let mut long = Box::pin(queue.write(put(WAITING_BYTES_MAX as usize + 1)));
        assert!(long.as_mut().now_or_never().is_none());
        assert_eq!(queue.write(put(0)).now_or_never(), Some(Err(Refused::QueueFull)));
    }

    #[test]
    fn a_writer_that_is_gone_is_told_and_not_waited_for() {
        let (queue, jobs) = Queue::new();
        let mut early = Box::pin(queue.write(put(1)));
        assert!(early.as_mut().now_or_never().is_none());
        drop(jobs);
        assert!(matches!(early.now_or_never(), Some(Err(Refused::Disk(_)))));
        assert!(matches!(queue.write(put(1)).now_or_never(), Some(Err(Refused::Disk(_)))));
    }
}
