use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// Events taken at once; more stay with the kernel for the next call.
const EVENTS_MAX: usize = 256;

/// The key of the wake-up descriptor.
const WAKE: u64 = u64::MAX;

/// What a descriptor is watched for. Errors and hang-ups are always told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    Read,
    Write,
}

/// An epoll set that other threads can wake. Level triggered: what is left unread is told again.
///
/// It stands on rustix's own epoll calls because those are safe; the `polling` crate's registration
/// is `unsafe`, for the sake of systems that this thread does not run on.
pub(super) struct Poller {
    epoll: OwnedFd,
    wake: OwnedFd,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake })
    }

    /// Readable while a wait would bring something.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Wakes the thread that waits, or the next wait. Any thread may call it; it cannot block.
    pub(super) fn notify(&self) {
        // It fails only when the counter is at its top, and then the descriptor is readable.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Watches a descriptor under `key`, which is below `u64::MAX`.
    pub(super) fn add(&self, source: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.epoll, source, data, interest.flags())?)
    }

    /// Changes what a descriptor is watched for.
    pub(super) fn modify(&self, source: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::modify(&self.epoll, source, data, interest.flags())?)
    }

    /// Watches a descriptor no more.
    pub(super) fn delete(&self, source: impl AsFd) {
        // It fails only if the descriptor is not watched.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// Waits for events, a wake-up or the end of `timeout`; puts the keys that are ready into `keys`.
    pub(super) fn wait(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) -> io::Result<()> {
        keys.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(86_400) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let spare = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let key = event.data.u64();
            if key == WAKE {
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            } else {
                keys.push(key);
            }
        }
        // In the order of their keys, not the kernel's: what follows from the same events is the same.
        keys.sort_unstable();
        Ok(())
    }
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Read => epoll::EventFlags::IN,
            Self::Write => epoll::EventFlags::OUT,
        }
    }
}
