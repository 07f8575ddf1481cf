use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;

use super::ReceivedBody;
use super::shared::CoreShared;
use super::submission::{ConnectionKey, OutgoingCall};
use crate::protocol::CallId;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{AtomicWaker, Mutex};
use crate::{Execution, Status};

/// A reply as it came: the body is not decoded yet.
pub(crate) struct Reply {
    pub(crate) metadata: Bytes,
    pub(crate) body: ReceivedBody,
}

/// Where one call of this side waits for its end: shared by the caller's future and its core.
///
/// It also brings the call to the core: what goes through queues is a pointer, and a call is moved once.
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
    /// The connection that the call is for.
    pub(crate) connection: ConnectionKey,
    stage: Mutex<Stage>,
}

/// How far the call has come. After it was given, the core alone asks and says; once that has stopped, whoever
/// ends its mailbox.
enum Stage {
    /// The core has not taken it yet.
    Given(OutgoingCall),
    /// The core has taken it, and it is not on its connection: it waits, or has ended.
    Taken,
    /// It is on its connection; this finds it again.
    Placed(CallPlace),
}

/// Where its connection keeps a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallPlace {
    pub(crate) call: CallId,
    pub(crate) token: u64,
}

impl CallCell {
    pub(crate) fn new(
        core: Arc<CoreShared>,
        connection: ConnectionKey,
        call: OutgoingCall,
    ) -> Arc<Self> {
        Arc::new(Self {
            outcome: Mutex::new(None),
            done: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            core,
            connection,
            stage: Mutex::new(Stage::Given(call)),
        })
    }

    /// One that brings such a call, for tests.
    #[cfg(test)]
    pub(crate) fn of(core: &Arc<CoreShared>, inline: Bytes) -> Arc<Self> {
        let connection = ConnectionKey { engine: 0, slot: 0, generation: 0 };
        Self::new(Arc::clone(core), connection, OutgoingCall::of(inline))
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

    /// The core that the call is for.
    pub(crate) fn core(&self) -> &Arc<CoreShared> {
        &self.core
    }

    /// Ends the call because it was not sent and will not be.
    pub(crate) fn fail(&self, why: &str) {
        drop(self.take_call());
        self.complete(Err(Status::unavailable(why).with_execution(Execution::NotExecuted)));
    }

    /// The call, once.
    pub(crate) fn take_call(&self) -> Option<OutgoingCall> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Given(call) => Some(call),
            other => {
                *stage = other;
                None
            }
        }
    }

    pub(crate) fn set_place(&self, place: CallPlace) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Stage::Placed(place);
    }

    pub(crate) fn place(&self) -> Option<CallPlace> {
        match *self.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Placed(place) => Some(place),
            _ => None,
        }
    }
}
