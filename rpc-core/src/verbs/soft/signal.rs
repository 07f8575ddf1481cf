use std::os::fd::{AsFd, BorrowedFd};

use crate::sync::Bell;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::verbs::VerbsError;

/// An eventfd that any thread may raise and the owner clears.
pub(super) struct Signal {
    bell: Bell,
    raised: AtomicBool,
}

impl Signal {
    pub(super) fn new() -> Result<Self, VerbsError> {
        let bell =
            Bell::new().map_err(|source| VerbsError::System { operation: "eventfd", source })?;
        Ok(Self { bell, raised: AtomicBool::new(false) })
    }

    /// Makes the descriptor readable. One system call, and none if it is readable already.
    pub(super) fn raise(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// Makes it unreadable. The caller looks for work *after* this: the flag falls after the
    /// descriptor is read, so a raise that writes nothing happened before that look. If there is
    /// nothing to read yet, whoever raised the flag is about to write, and the flag stays up for
    /// that: a descriptor that is readable while the flag is down would be cleared by nobody.
    pub(super) fn clear(&self) {
        if self.raised.load(Ordering::SeqCst) && self.bell.drain() {
            self.raised.swap(false, Ordering::SeqCst);
        }
    }
}

#[cfg(all(loom, test))]
impl Signal {
    /// What a sleeping owner waits for.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
