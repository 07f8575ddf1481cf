use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd: any thread may ring it, which makes it readable until its owner drains it.
///
/// In a model it has a flag beside the descriptor, which `model::wait` waits
/// for as a thread would wait in epoll for the descriptor.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    #[cfg(all(loom, test))]
    pub(super) rung: super::model::Rung,
}

impl Bell {
    /// A bell that has not been rung.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            #[cfg(all(loom, test))]
            rung: super::model::Rung::default(),
        })
    }

    /// Makes it readable. Does not block.
    pub fn ring(&self) {
        // The write fails only if the counter is at its end, and then it is readable.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        #[cfg(all(loom, test))]
        self.rung.set(true);
    }

    /// Makes it unreadable, and says whether it was readable. The owner looks for what it was rung
    /// for *after* this.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        // The read fails only if it was not rung.
        let was_rung = rustix::io::read(&self.fd, &mut count).is_ok();
        #[cfg(all(loom, test))]
        let was_rung = self.rung.set(false);
        was_rung
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
