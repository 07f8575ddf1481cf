use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::sync::Bell;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The agreement between a core that wants to sleep and threads that have work for it.
///
/// A producer pushes its work, then calls [`wake`](Self::wake). A core calls
/// [`announce`](Self::announce), arms its completion queues, looks at every source of work once
/// more, and only then [`wait`](Self::wait)s. Every change of the flag is a swap, and each swap sees
/// what came before the one before it: either the core's comes second and it sees the work when it
/// looks again, or the producer's does and it sees that the core has announced itself, and rings the
/// eventfd. So a wake-up is never lost, and a busy core costs its producers no system call.
pub(crate) struct Sleeper {
    sleeping: AtomicBool,
    epoll: OwnedFd,
    doorbell: Bell,
}

/// The epoll key of the eventfd; sources have smaller ones.
const DOORBELL: u64 = u64::MAX;
/// Descriptors reported by one wait; more are reported by the next.
const EVENTS_MAX: usize = 64;

/// The sources that a wait found ready.
pub(crate) struct Ready {
    events: Vec<epoll::Event>,
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self { events: Vec::with_capacity(EVENTS_MAX) }
    }

    /// Keys of the sources, without the doorbell.
    pub(crate) fn sources(&self) -> impl Iterator<Item = u64> + '_ {
        self.events.iter().map(|event| event.data.u64()).filter(|&key| key != DOORBELL)
    }

    /// Whether the wait ended because its time was over.
    pub(crate) fn timed_out(&self) -> bool {
        self.events.is_empty()
    }
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let doorbell = Bell::new()?;
        epoll::add(&epoll, &doorbell, EventData::new_u64(DOORBELL), EventFlags::IN)?;
        Ok(Self { sleeping: AtomicBool::new(false), epoll, doorbell })
    }

    /// Lets `fd` end a sleep while it is readable, and report `key`.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        debug_assert_ne!(key, DOORBELL);
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(key), flags)?)
    }

    /// Forgets a descriptor, before it is closed.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // It fails only for a descriptor that is not watched.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// The descriptor that is readable while any source, or the doorbell, is.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Says that work was pushed. From any thread; does not block.
    pub(crate) fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.doorbell.ring();
        }
    }

    /// The core is about to look for work one last time before it sleeps.
    pub(crate) fn announce(&self) {
        self.sleeping.swap(true, Ordering::SeqCst);
    }

    /// The core found work after all.
    pub(crate) fn retract(&self) {
        self.sleeping.swap(false, Ordering::SeqCst);
    }

    /// Sleeps until a source is ready, a producer wakes the core, or `timeout` passes.
    pub(crate) fn wait(&self, ready: &mut Ready, timeout: Option<Duration>) -> io::Result<()> {
        ready.events.clear();
        let result = self.wait_in_epoll(&mut ready.events, timeout);
        self.sleeping.swap(false, Ordering::SeqCst);
        match result {
            Ok(()) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if ready.events.iter().any(|event| event.data.u64() == DOORBELL) {
            self.doorbell.drain();
        }
        // In the order of their keys, not the kernel's: what follows from the same events is the same.
        ready.events.sort_unstable_by_key(|event| event.data.u64());
        Ok(())
    }

    /// Keys of what would end a wait, the doorbell's too; nothing is taken.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn peek(&self) -> io::Result<Vec<u64>> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        self.wait_in_epoll(&mut events, Some(Duration::ZERO))?;
        Ok(events.iter().map(|event| event.data.u64()).collect())
    }

    #[cfg(not(all(loom, test)))]
    fn wait_in_epoll(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Option<Duration>,
    ) -> rustix::io::Result<()> {
        let timeout = timeout.map(|span| rustix::event::Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        let spare = rustix::buffer::spare_capacity(events);
        epoll::wait(&self.epoll, spare, timeout.as_ref()).map(|_| ())
    }

    /// In a model there is the doorbell alone, and time does not end a sleep.
    #[cfg(all(loom, test))]
    fn wait_in_epoll(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Option<Duration>,
    ) -> rustix::io::Result<()> {
        use crate::sync::model;

        if timeout != Some(Duration::ZERO) {
            model::wait(&[&self.doorbell]);
        }
        if model::is_rung(&self.doorbell) {
            events.push(epoll::Event { flags: EventFlags::IN, data: EventData::new_u64(DOORBELL) });
        }
        Ok(())
    }
}
