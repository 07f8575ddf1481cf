use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A request to stop that any thread can make and one future waits for. Clones are the same request.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    asked: bool,
    waker: Option<Waker>,
}

impl Stop {
    /// Asks to stop. True the first time.
    pub(crate) fn ask(&self) -> bool {
        let (first, waker) = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (!std::mem::replace(&mut state.asked, true), state.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        first
    }

    /// Whether somebody has asked.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// Ends once somebody has asked. Only the latest waiter is woken.
    pub(crate) fn asked(&self) -> impl Future<Output = ()> + Send + 'static {
        Asked(self.clone())
    }
}

struct Asked(Stop);

impl Future for Asked {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.asked {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waiter_is_woken_once_by_the_first_request() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let stop = Stop::default();
        let mut asked = Box::pin(stop.asked());
        assert!(asked.as_mut().poll(&mut context).is_pending());
        assert!(stop.ask());
        assert!(!stop.ask());
        assert_eq!(count.0.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(asked.as_mut().poll(&mut context).is_ready());
    }
}
