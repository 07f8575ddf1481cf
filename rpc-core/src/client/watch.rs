use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::channel::{ChannelState, Inner};

/// Who waits for a channel's state to change: one waker for each future, taken out when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Watch {
    waiting: Mutex<Slab<Waker>>,
}

impl Watch {
    /// Something may have changed. No lock of a lane is held.
    pub(super) fn changed(&self) {
        let wakers: Vec<Waker> = self.lock().iter().map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ready when the channel's state is not `from` any more.
pub(super) struct StateChange {
    pub(super) inner: Arc<Inner>,
    pub(super) from: ChannelState,
    pub(super) place: Option<usize>,
}

impl Future for StateChange {
    type Output = ChannelState;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ChannelState> {
        let waker = context.waker().clone();
        let place = {
            let mut waiting = self.inner.watch.lock();
            match self.place.and_then(|place| waiting.get_mut(place)) {
                Some(old) => {
                    *old = waker;
                    self.place
                }
                None => Some(waiting.insert(waker)),
            }
        };
        self.place = place;
        // After the waker stands: a change from now on wakes it.
        let state = self.inner.state();
        if state == self.from { Poll::Pending } else { Poll::Ready(state) }
    }
}

impl Drop for StateChange {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.inner.watch.lock().try_remove(place);
        }
    }
}
