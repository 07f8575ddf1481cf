use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::engine::local;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, Thread};

/// Blocks this thread until `future` is ready: for plain threads, such as `main` or a thread of a
/// database's own.
///
/// # Panics
/// On a core of a runtime: blocking it would stop the very work that is waited for. Use `await`
/// there. Inside another executor's task it blocks that executor's thread, as any blocking call.
pub fn block_on<F: Future>(future: F) -> F::Output {
    assert!(
        !local::is_on_core(),
        "block_on was called on a runtime's core, which it would stop for ever; use .await there, \
         or move the blocking work to a thread of its own"
    );
    let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if parker.woken.swap(false, Ordering::Acquire)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return output;
        }
        if !parker.woken.load(Ordering::Acquire) {
            thread::park(); // may return for no reason; `woken` says
        }
    }
}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn it_waits_for_a_wake_from_another_thread() {
        let (mut sent, waiting) = (false, Arc::new(AtomicBool::new(false)));
        let value = block_on(std::future::poll_fn(|context| {
            if waiting.load(Ordering::Acquire) {
                return Poll::Ready(7);
            }
            if !std::mem::replace(&mut sent, true) {
                let (waiting, waker) = (Arc::clone(&waiting), context.waker().clone());
                thread::spawn(move || {
                    waiting.store(true, Ordering::Release);
                    waker.wake();
                });
            }
            Poll::Pending
        }));
        assert_eq!(value, 7);
    }
}
