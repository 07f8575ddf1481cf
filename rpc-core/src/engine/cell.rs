use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;

use super::ReceivedBody;
use super::shared::CoreShared;
use crate::Status;
use crate::protocol::CallId;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{AtomicWaker, Mutex};

/// A reply as it came: the body is not decoded yet.
pub(crate) struct Reply {
    pub(crate) metadata: Bytes,
    pub(crate) body: ReceivedBody,
}

/// Where one call of this side waits for its end: shared by the caller's future and its core.
///
/// The core completes it at most once. A future that is dropped earlier marks it and hands it back
/// to the core, which then cancels the call; the memory for that came with the call, so it cannot
/// fail and does not block.
pub(crate) struct CallCell {
    outcome: Mutex<Option<Result<Reply, Status>>>,
    done: AtomicBool,
    abandoned: AtomicBool,
    waker: AtomicWaker,
    core: Arc<CoreShared>,
    /// What the engine needs to find the call again; written by the core, read by it alone.
    place: Mutex<Option<CallPlace>>,
}

/// Where the engine keeps a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallPlace {
    pub(crate) connection: super::ConnectionKey,
    pub(crate) call: CallId,
    pub(crate) token: u64,
}

impl CallCell {
    pub(crate) fn new(core: Arc<CoreShared>) -> Arc<Self> {
        Arc::new(Self {
            outcome: Mutex::new(None),
            done: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            core,
            place: Mutex::new(None),
        })
    }

    /// Ends the call. A second end would be a bug of the engine and is ignored.
    pub(crate) fn complete(&self, outcome: Result<Reply, Status>) {
        let mut slot = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.done.load(Ordering::Relaxed) {
            *slot = Some(outcome);
            drop(slot);
            self.done.store(true, Ordering::Release);
            self.waker.wake();
        }
    }

    /// The end of the call, once.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<Reply, Status>> {
        if let Some(outcome) = self.take() {
            return Poll::Ready(outcome);
        }
        self.waker.register(context.waker());
        // A completion that came before the waker was registered woke nobody.
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    fn take(&self) -> Option<Result<Reply, Status>> {
        if !self.done.load(Ordering::Acquire) {
            return None;
        }
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The caller is gone: the core will cancel what is left of the call.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if !self.done.load(Ordering::Acquire) && !self.abandoned.swap(true, Ordering::AcqRel) {
            self.core.abandon(Arc::clone(self));
        }
    }

    /// Whether the caller was gone before the core took the call.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn set_place(&self, place: CallPlace) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    }

    pub(crate) fn place(&self) -> Option<CallPlace> {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
