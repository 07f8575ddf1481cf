use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use futures_channel::oneshot;

use super::room::{Room, Waiting};
use super::{Refused, Write, Written};
use crate::limits::{WAITING_BYTES_MAX, WRITES_WAITING_MAX};

/// Writes on their way to the thread that commits them, bounded in number and in bytes.
///
/// They keep the payload memory that they came in, so the bytes are bounded by what a server can spare
/// of it. A write longer than the bound may wait alone.
pub(super) struct Queue {
    jobs: Sender<Job>,
    waiting: Arc<Waiting>,
    ended: Arc<AtomicBool>,
}

/// The queue's other end.
pub(super) struct Jobs {
    jobs: Receiver<Job>,
    ended: Arc<AtomicBool>,
}

/// Some writes that belong together, and who waits for them.
pub(super) struct Job {
    pub(super) writes: Vec<Write>,
    answer: oneshot::Sender<Result<Written, Refused>>,
    room: Room,
}

impl Queue {
    /// An empty queue, and its other end.
    pub(super) fn new() -> (Self, Jobs) {
        let (jobs, receiver) = crossbeam_channel::bounded(WRITES_WAITING_MAX);
        let ended = Arc::<AtomicBool>::default();
        let other_end = Jobs { jobs: receiver, ended: Arc::clone(&ended) };
        (Self { jobs, waiting: Waiting::new(WAITING_BYTES_MAX), ended }, other_end)
    }

    /// Queues some writes and waits until they are durable or refused.
    pub(super) async fn write(&self, writes: Vec<Write>) -> Result<Written, Refused> {
        let bytes = writes.iter().map(Write::len).fold(0, u64::saturating_add);
        let room = self.waiting.room(bytes, writes.len() as u64).ok_or(Refused::QueueFull)?;
        let (answer, answered) = oneshot::channel();
        self.jobs.try_send(Job { writes, answer, room }).map_err(|error| match error {
            TrySendError::Full(_) => Refused::QueueFull,
            TrySendError::Disconnected(_) => ended(),
        })?;
        // The other end says so before it empties the channel: what came later nobody will take out.
        if self.ended.load(Ordering::SeqCst) {
            return Err(ended());
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Writes that wait now.
    pub(super) fn writes_waiting(&self) -> u64 {
        self.waiting.count()
    }
}

impl Jobs {
    /// The next job, waited for. `None` when nobody can send any more.
    ///
    /// Jobs whose calls are gone are passed over: nobody was promised anything.
    pub(super) fn next(&self) -> Option<Job> {
        self.jobs.iter().find(|job| !job.answer.is_canceled())
    }

    /// A job that waits now.
    pub(super) fn waiting(&self) -> Option<Job> {
        self.jobs.try_iter().find(|job| !job.answer.is_canceled())
    }
}

impl Drop for Jobs {
    /// A channel keeps what is in it for as long as somebody may send; who waits for that is to be told.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.jobs.try_iter().for_each(drop);
    }
}

impl Job {
    /// Bytes of its keys and values, and of what holds them.
    pub(super) fn len(&self) -> u64 {
        self.room.bytes()
    }

    /// How many writes it has.
    pub(super) fn writes(&self) -> usize {
        self.room.count() as usize
    }

    /// Gives its memory and its place back, then tells who waits.
    pub(super) fn finish(self, result: Result<Written, Refused>) {
        let Self { writes, answer, room } = self;
        drop((writes, room));
        // Nobody waits any more if the call was cancelled.
        _ = answer.send(result);
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
    use crate::limits::QUEUED_BYTES;
    use crate::store::Change;

    fn put(len: usize) -> Vec<Write> {
        let change = Change::Put(Bytes::from(vec![0; len]));
        vec![Write { key: Bytes::new(), expected: None, change }]
    }

    #[test]
    fn a_full_queue_refuses_and_takes_again_when_a_write_is_done() {
        let (queue, jobs) = Queue::new();
        let half = (WAITING_BYTES_MAX / 2 - QUEUED_BYTES) as usize;
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
    fn a_flood_of_empty_writes_meets_the_bound_in_bytes() {
        let (queue, _jobs) = Queue::new();
        let most = (WAITING_BYTES_MAX / QUEUED_BYTES) as usize;
        let writes = |count: usize| vec![put(0).remove(0); count];
        let mut all = Box::pin(queue.write(writes(most)));
        assert!(all.as_mut().now_or_never().is_none());
        assert_eq!(queue.write(writes(1)).now_or_never(), Some(Err(Refused::QueueFull)));
    }

    #[test]
    fn a_write_whose_call_is_gone_is_passed_over() {
        let (queue, jobs) = Queue::new();
        let mut gone = Box::pin(queue.write(put(1)));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut there = Box::pin(queue.write(put(2)));
        assert!(there.as_mut().now_or_never().is_none());
        drop(gone);
        assert_eq!(jobs.next().unwrap().len(), 2 + QUEUED_BYTES);
        assert!(jobs.waiting().is_none());
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
