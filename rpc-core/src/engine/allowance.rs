use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, MutexGuard};

/// Handlers may wait with so many times the allowance in their answers, which are on the heap and
/// theirs; more fail.
const WAITING_FACTOR: u64 = 4;

/// How many bytes of answers one connection may keep in payload memory until its peer has read and
/// released them.
///
/// A peer that reads slowly, or never, waits for itself: its handlers get memory for their answers
/// only as it releases earlier ones, and the rest of the share is there for others. One answer is
/// always allowed, whatever its length.
pub(crate) struct Allowance {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    /// Bytes of the answers that wait.
    waiting_bytes: u64,
    /// Handlers that wait: at most as many as the connection may have calls.
    waiting: VecDeque<Waker>,
}

/// A part of an [`Allowance`] in use; dropping it gives it back.
pub(crate) struct Allowed {
    allowance: Arc<Allowance>,
    bytes: u64,
}

/// Too much waits already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{waiting} bytes of answers on this connection wait for the caller to take and release earlier \
     ones; make fewer calls with large answers at once"
)]
pub(crate) struct TooManyWait {
    waiting: u64,
}

impl Allowance {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, state: Mutex::default() })
    }

    /// Waits until `bytes` more may be used. Whoever waits asks again whenever some came back.
    ///
    /// # Errors
    /// [`TooManyWait`], at once.
    pub(crate) fn take(
        self: &Arc<Self>,
        bytes: u64,
    ) -> impl Future<Output = Result<Allowed, TooManyWait>> + Send {
        Taking { allowance: Arc::clone(self), bytes, waits: false }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Taking {
    allowance: Arc<Allowance>,
    bytes: u64,
    /// Whether `bytes` are counted among those that wait.
    waits: bool,
}

impl Future for Taking {
    type Output = Result<Allowed, TooManyWait>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { allowance, bytes, waits } = &mut *self;
        let mut state = allowance.lock();
        let total = state.used.saturating_add(*bytes);
        if state.used == 0 || total <= allowance.bytes_max {
            state.used = total;
            drop(state);
            return Poll::Ready(Ok(Allowed { allowance: Arc::clone(allowance), bytes: *bytes }));
        }
        if !*waits {
            let waiting = state.waiting_bytes.saturating_add(*bytes);
            if waiting > allowance.bytes_max.saturating_mul(WAITING_FACTOR) {
                return Poll::Ready(Err(TooManyWait { waiting: state.waiting_bytes }));
            }
            state.waiting_bytes = waiting;
            *waits = true;
        }
        state.waiting.push_back(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if self.waits {
            self.allowance.lock().waiting_bytes -= self.bytes;
        }
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let mut state = self.allowance.lock();
        state.used = state.used.saturating_sub(self.bytes);
        let waiting = std::mem::take(&mut state.waiting);
        // A waker may run code that asks again.
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_is_beyond_the_allowance_waits_until_enough_came_back() {
        let allowance = Allowance::new(100);
        let wakes = Arc::new(Counting::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut take = |bytes| {
            let mut taking = pin!(allowance.take(bytes));
            match taking.as_mut().poll(&mut context) {
                Poll::Ready(allowed) => Some(allowed.unwrap()),
                Poll::Pending => None,
            }
        };
        let (first, second) = (take(60).unwrap(), take(40).unwrap());
        assert!(take(1).is_none());
        drop(second);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        assert!(take(41).is_none());
        drop(first);
        let _third = take(41).unwrap();
    }

    #[test]
    fn one_answer_is_always_allowed_whatever_its_length() {
        let allowance = Allowance::new(100);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(long)) = pin!(allowance.take(1_000)).poll(&mut context) else {
            panic!("it is alone");
        };
        assert!(pin!(allowance.take(1)).poll(&mut context).is_pending());
        drop(long);
        assert!(pin!(allowance.take(100)).poll(&mut context).is_ready());
    }

    #[test]
    fn answers_wait_up_to_a_bound_and_those_beyond_fail_at_once() {
        let allowance = Allowance::new(100);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(_first)) = pin!(allowance.take(100)).poll(&mut context) else {
            panic!("it is alone");
        };
        let mut patient: Vec<_> = (0..4).map(|_| Box::pin(allowance.take(100))).collect();
        assert!(patient.iter_mut().all(|taking| taking.as_mut().poll(&mut context).is_pending()));
        let one_more = pin!(allowance.take(1)).poll(&mut context);
        assert!(matches!(one_more, Poll::Ready(Err(TooManyWait { waiting: 400 }))));
        drop(patient);
        assert!(pin!(allowance.take(1)).poll(&mut context).is_pending());
    }
}
