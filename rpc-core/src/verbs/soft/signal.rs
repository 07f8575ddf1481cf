use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::verbs::VerbsError;

/// An eventfd that any thread may raise and the owner clears.
pub(super) struct Signal {
    fd: OwnedFd,
    raised: AtomicBool,
}

impl Signal {
    pub(super) fn new() -> Result<Self, VerbsError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| VerbsError::System { operation: "eventfd", source: error.into() })?;
        Ok(Self { fd, raised: AtomicBool::new(false) })
    }

    /// Makes the descriptor readable. One system call, and none if it is readable already.
    pub(super) fn raise(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // The counter cannot overflow: it is written once between two clears.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Makes it unreadable. The caller looks for work *after* this: the flag falls after the
    /// descriptor is read, so a raise that writes nothing happened before that look.
    pub(super) fn clear(&self) {
        if self.raised.load(Ordering::SeqCst) {
            let mut count = [0u8; 8];
            let _ = rustix::io::read(&self.fd, &mut count);
            self.raised.store(false, Ordering::SeqCst);
        }
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
