use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{Runtime, RuntimeBuilder};
use crate::engine::{Core, CoreShared, JoinHandle, Progress};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Status, Time};

/// A runtime whose one core is this thread.
///
/// [`block_on`](Self::block_on) drives it; or a loop of the program's own does:
///
/// ```no_run
/// # fn wait_readable(_: std::os::fd::BorrowedFd<'_>, _: Option<std::time::Duration>) {}
/// # fn main() -> Result<(), rpc_core::Status> {
/// let mut core = rpc_core::Runtime::builder().on_this_thread()?;
/// loop {
///     if core.turn().is_idle() && core.prepare_to_sleep() {
///         wait_readable(core.fd(), core.next_timer());
///     }
/// #   return Ok(());
/// }
/// # }
/// ```
///
/// It stays on its thread; [`runtime`](Self::runtime) gives the handle that servers and channels
/// take, and other threads may use: `core.runtime().clone()` before `core.block_on(..)`, which needs all of
/// `core`.
pub struct LocalRuntime {
    core: Core,
    runtime: Runtime,
}

impl LocalRuntime {
    pub(super) fn start(settings: RuntimeBuilder) -> Result<Self, Status> {
        let spin = settings.effective_spin();
        let (runtime, seeds) = Runtime::assemble(settings.cores(1))?;
        let clock = runtime.clock();
        let seed = seeds.into_iter().next().ok_or_else(|| Status::internal("no core was made"))?;
        let core = seed.into_core(clock, spin).map_err(|error| {
            Status::resource_exhausted(format!("the core cannot start: {error}"))
        })?;
        Ok(Self { core, runtime })
    }

    /// The handle for servers and channels.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Drives the core until `future` is ready. The future is polled on the core, so calls made in
    /// it take no thread hop.
    ///
    /// Between two of these, and between turns, the core does nothing: its calls in progress stand still,
    /// and a peer that asks for a sign of life gets none. One that is left alone for longer than
    /// [`Pings`](crate::Pings) allow has lost its connections; what is called next connects anew.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        self.core.catch_up();
        drive(&mut self.core, future)
    }

    /// Places a future of this thread on the core.
    pub fn spawn_local<F>(&mut self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (handle, joining) = JoinHandle::new();
        self.core.spawn_local(async move { joining.finish(future.await) });
        handle
    }

    /// One turn of the core: completions, submissions, timers, tasks, and everything there is to
    /// say. Never blocks.
    pub fn turn(&mut self) -> Progress {
        self.core.turn()
    }

    /// Arms every source of work and looks at each once more. True: there is nothing to do now, and
    /// whatever comes makes [`fd`](Self::fd) readable. False: [`turn`](Self::turn) again.
    pub fn prepare_to_sleep(&mut self) -> bool {
        self.core.prepare_to_sleep()
    }

    /// The descriptor to wait for readability of, in epoll or poll, after
    /// [`prepare_to_sleep`](Self::prepare_to_sleep); it nests in an epoll of the program's own.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.core.fd()
    }

    /// How long that wait may take at most; `None`: until something comes.
    pub fn next_timer(&self) -> Option<Duration> {
        let now: Time = self.runtime.clock().now();
        self.core.next_wake(now)
    }
}

impl Drop for LocalRuntime {
    fn drop(&mut self) {
        // First no new connections, then the core.
        self.runtime.control().shutdown();
        self.core.shut_down();
    }
}

/// Turns the core until `future` is ready.
pub(super) fn drive<F: Future>(core: &mut Core, future: F) -> F::Output {
    let flag = Arc::new(Flag { woken: AtomicBool::new(true), core: Arc::clone(&core.shared) });
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // Polled inside the turn: what it asks for goes out with what the turn has to say.
        let mut output = None;
        let progress = core.turn_with(|| {
            if flag.woken.swap(false, Ordering::SeqCst)
                && let Poll::Ready(ready) = future.as_mut().poll(&mut context)
            {
                output = Some(ready);
            }
        });
        if let Some(output) = output {
            return output;
        }
        if progress.is_idle() && !flag.woken.load(Ordering::SeqCst) {
            core.idle(|| flag.woken.load(Ordering::SeqCst));
        }
    }
}

/// The waker of the future that the thread itself waits for.
struct Flag {
    woken: AtomicBool,
    core: Arc<CoreShared>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.core.sleeper.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_used_as_long_as_a_connection_is_made_or_there() {
        let local = Runtime::builder().on_this_thread().unwrap();
        let is_unused = || local.core.engines[0].is_unused();
        assert!(is_unused());
        let place = local.runtime.core_handles()[0].engine.reserve();
        assert!(place.is_some() && !is_unused(), "its first SEND may come before it is installed");
        drop(place);
        assert!(is_unused());
    }
}
