use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use async_task::Runnable;

use super::Core;
use super::capacity::SUBMISSIONS_MAX;
use super::cell::CallCell;
use super::local;
use super::queue_counters::QueueCounters;
use super::sleep::Sleeper;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{ArrayQueue, Mutex, SegQueue};

/// Work for a core from the runtime's own threads.
pub(crate) type Job = Box<dyn FnOnce(&mut Core) + Send>;

/// The part of a core that other threads see.
///
/// Submissions are bounded: a full mailbox is back-pressure that the submitter waits out.
/// Everything that must not fail uses memory that came earlier: abandoned calls and runnable tasks
/// are each queued at most once, so their queues are bounded by the calls and tasks that exist;
/// jobs come only from the runtime itself, a bounded number for each connection and server.
pub(crate) struct CoreShared {
    pub(crate) index: usize,
    pub(crate) sleeper: Sleeper,
    pub(crate) counters: CoreCounters,
    submissions: ArrayQueue<Arc<CallCell>>,
    /// Submitters that found the mailbox full.
    waiting: Mutex<Vec<Waker>>,
    has_waiting: AtomicBool,
    abandoned: SegQueue<Arc<CallCell>>,
    runnable: SegQueue<Runnable>,
    jobs: SegQueue<Job>,
    /// Something was put into one of the queues since the core last emptied them: a core that spins looks
    /// at this alone.
    given: AtomicBool,
    stopped: AtomicBool,
}

/// What a core counts; written by the core once a turn, read by anyone.
#[derive(Default)]
pub(crate) struct CoreCounters {
    pub(crate) calls_made: AtomicU64,
    pub(crate) calls_served: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) stalls: AtomicU64,
    /// Nanoseconds on the runtime's clock before which no stall is logged again.
    pub(crate) stall_log_next: AtomicU64,
    pub(crate) lost_wakeups: AtomicU64,
    pub(crate) connections: AtomicU32,
    pub(crate) receives_posted: AtomicU32,
    pub(crate) credits_granted: AtomicU32,
    pub(crate) credits_recalled: AtomicU64,
    pub(crate) credits_returned: AtomicU64,
    pub(crate) leases: AtomicU32,
    pub(crate) send_buffers: AtomicU32,
    pub(crate) yields: AtomicU64,
    requests: AtomicU64,
    send_doorbells: AtomicU64,
    receive_doorbells: AtomicU64,
    completions: AtomicU64,
    arms: AtomicU64,
}

/// What a core's engines have counted, together.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) calls_made: u64,
    pub(crate) calls_served: u64,
    pub(crate) errors: u64,
    pub(crate) connections: u32,
    pub(crate) receives_posted: u32,
    pub(crate) credits_granted: u32,
    pub(crate) credits_recalled: u64,
    pub(crate) credits_returned: u64,
    pub(crate) leases: u32,
    pub(crate) send_buffers: u32,
    pub(crate) queues: QueueCounters,
}

impl CoreCounters {
    /// Shows these to other threads.
    pub(crate) fn publish(&self, totals: &Totals) {
        self.calls_made.store(totals.calls_made, Ordering::Relaxed);
        self.calls_served.store(totals.calls_served, Ordering::Relaxed);
        self.errors.store(totals.errors, Ordering::Relaxed);
        self.connections.store(totals.connections, Ordering::Relaxed);
        self.receives_posted.store(totals.receives_posted, Ordering::Relaxed);
        self.credits_granted.store(totals.credits_granted, Ordering::Relaxed);
        self.credits_recalled.store(totals.credits_recalled, Ordering::Relaxed);
        self.credits_returned.store(totals.credits_returned, Ordering::Relaxed);
        self.leases.store(totals.leases, Ordering::Relaxed);
        self.send_buffers.store(totals.send_buffers, Ordering::Relaxed);
        let queues = &totals.queues;
        self.requests.store(queues.requests, Ordering::Relaxed);
        self.send_doorbells.store(queues.send_doorbells, Ordering::Relaxed);
        self.receive_doorbells.store(queues.receive_doorbells, Ordering::Relaxed);
        self.completions.store(queues.completions, Ordering::Relaxed);
        self.arms.store(queues.arms, Ordering::Relaxed);
    }

    /// What it asked of its queues, as last shown.
    pub(crate) fn queues(&self) -> QueueCounters {
        QueueCounters {
            requests: self.requests.load(Ordering::Relaxed),
            send_doorbells: self.send_doorbells.load(Ordering::Relaxed),
            receive_doorbells: self.receive_doorbells.load(Ordering::Relaxed),
            completions: self.completions.load(Ordering::Relaxed),
            arms: self.arms.load(Ordering::Relaxed),
        }
    }
}

/// Waking a core makes it turn.
impl Wake for CoreShared {
    fn wake(self: Arc<Self>) {
        self.sleeper.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.sleeper.wake();
    }
}

impl CoreShared {
    pub(crate) fn new(index: usize) -> std::io::Result<Arc<Self>> {
        Self::with_room(index, SUBMISSIONS_MAX)
    }

    /// With a mailbox of so many submissions.
    pub(crate) fn with_room(index: usize, submissions_max: usize) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            index,
            sleeper: Sleeper::new()?,
            counters: CoreCounters::default(),
            submissions: ArrayQueue::new(submissions_max),
            waiting: Mutex::new(Vec::new()),
            has_waiting: AtomicBool::new(false),
            abandoned: SegQueue::new(),
            runnable: SegQueue::new(),
            jobs: SegQueue::new(),
            given: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }))
    }

    /// Hands a call over. False: the mailbox is full.
    pub(crate) fn submit(&self, call: &Arc<CallCell>) -> bool {
        let has_room = self.submissions.push(Arc::clone(call)).is_ok();
        if has_room {
            self.wake_for_given();
            self.end_if_stopped();
        }
        has_room
    }

    /// Something was put into a queue.
    fn wake_for_given(&self) {
        self.keep_given();
        self.sleeper.wake();
    }

    /// The core's side: whether the queues are to be looked at. What is left in them then, or comes later, must
    /// be [`keep_given`](Self::keep_given) or says so itself.
    pub(crate) fn take_given(&self) -> bool {
        // Every change of the flag is a swap, so this one sees what was pushed before each of those that it
        // takes back: a store would hide those before it.
        self.given.load(Ordering::Relaxed) && self.given.swap(false, Ordering::AcqRel)
    }

    /// There is something in the queues.
    pub(crate) fn keep_given(&self) {
        self.given.swap(true, Ordering::AcqRel);
    }

    /// A core that has stopped takes nothing any more: whoever pushes after that ends it here.
    fn end_if_stopped(&self) {
        if self.stopped.load(Ordering::SeqCst) {
            self.end_pushed();
        }
    }

    /// Ends every call and job that waits in the mailbox of a stopped core.
    pub(crate) fn end_pushed(&self) {
        while let Some(submission) = self.submissions.pop() {
            submission.fail("the runtime was shut down; the call was not sent");
        }
        while self.abandoned.pop().is_some() {}
        while let Some(job) = self.jobs.pop() {
            drop(job);
        }
        self.wake_waiting();
    }

    /// Wakes `waker` when the mailbox has room again.
    pub(crate) fn wait_for_room(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|have| have.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.has_waiting.swap(true, Ordering::SeqCst);
        drop(waiting);
        // The core may have emptied the mailbox before it could see the flag.
        if !self.submissions.is_full() {
            self.wake_waiting();
        }
    }

    fn wake_waiting(&self) {
        if self.has_waiting.swap(false, Ordering::SeqCst) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for waker in waiting.drain(..) {
                waker.wake();
            }
        }
    }

    /// The core's side: at most `max` submissions, then whoever waited for room.
    pub(crate) fn take_submissions(&self, into: &mut Vec<Arc<CallCell>>, max: usize) {
        for _ in 0..max {
            let Some(submission) = self.submissions.pop() else { break };
            into.push(submission);
        }
        if self.has_waiting.load(Ordering::SeqCst) {
            self.wake_waiting();
        }
    }

    pub(crate) fn abandon(&self, cell: Arc<CallCell>) {
        self.abandoned.push(cell);
        self.wake_for_given();
        // Nobody empties the queue of a stopped core, and what lies in it keeps the core.
        if self.is_stopped() {
            while self.abandoned.pop().is_some() {}
        }
    }

    pub(crate) fn take_abandoned(&self) -> Option<Arc<CallCell>> {
        self.abandoned.pop()
    }

    /// Queues a task: on its own core without atomics, from elsewhere with one wake.
    pub(crate) fn schedule(&self, runnable: Runnable) {
        if let Some(runnable) = local::push_if_current(self, runnable) {
            self.runnable.push(runnable);
            self.wake_for_given();
        }
    }

    pub(crate) fn take_runnable(&self) -> Option<Runnable> {
        self.runnable.pop()
    }

    pub(crate) fn run_on_core(&self, job: Job) {
        self.jobs.push(job);
        self.wake_for_given();
        self.end_if_stopped();
    }

    pub(crate) fn take_job(&self) -> Option<Job> {
        self.jobs.pop()
    }

    /// Whether anything another thread gave waits to be taken.
    pub(crate) fn has_work(&self) -> bool {
        !self.submissions.is_empty()
            || !self.abandoned.is_empty()
            || !self.runnable.is_empty()
            || !self.jobs.is_empty()
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.sleeper.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}
