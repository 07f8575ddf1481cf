use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use async_task::Task;

use super::shared::CoreShared;
use crate::sync::{AtomicWaker, Mutex};

/// Spawns a future that may move between threads; it is polled on the core alone.
pub(super) fn spawn<F>(shared: &Arc<CoreShared>, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let shared = Arc::clone(shared);
    let (runnable, task) = async_task::spawn(future, move |runnable| shared.schedule(runnable));
    runnable.schedule();
    task
}

/// Spawns a future that stays on this thread, which must be the core's.
pub(super) fn spawn_local<F>(shared: &Arc<CoreShared>, future: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let shared = Arc::clone(shared);
    let (runnable, task) =
        async_task::spawn_local(future, move |runnable| shared.schedule(runnable));
    runnable.schedule();
    task
}

/// The end of a task that [`Runtime::spawn_on`](crate::Runtime::spawn_on) placed on a core.
///
/// Dropping it lets the task go on by itself.
#[derive(Debug)]
#[must_use = "dropping the handle lets the task go on; await it to learn its result"]
pub struct JoinHandle<T> {
    shared: Arc<JoinCell<T>>,
}

#[derive(Debug)]
struct JoinCell<T> {
    state: Mutex<JoinState<T>>,
    waker: AtomicWaker,
}

#[derive(Debug)]
enum JoinState<T> {
    Running,
    Done(T),
    Lost,
}

/// A task that will never give its result: it panicked, or its runtime stopped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task did not finish: it panicked, or its runtime was shut down")]
pub struct JoinError;

/// The task's side of a [`JoinHandle`].
pub(crate) struct Joining<T> {
    shared: Option<Arc<JoinCell<T>>>,
}

impl<T> JoinHandle<T> {
    pub(crate) fn new() -> (Self, Joining<T>) {
        let shared =
            Arc::new(JoinCell { state: Mutex::new(JoinState::Running), waker: AtomicWaker::new() });
        (Self { shared: Arc::clone(&shared) }, Joining { shared: Some(shared) })
    }

    fn take(&self) -> Option<Result<T, JoinError>> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, JoinState::Lost) {
            JoinState::Running => {
                *state = JoinState::Running;
                None
            }
            JoinState::Done(value) => Some(Ok(value)),
            JoinState::Lost => Some(Err(JoinError)),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(end) = self.take() {
            return Poll::Ready(end);
        }
        self.shared.waker.register(context.waker());
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Joining<T> {
    pub(crate) fn finish(mut self, value: T) {
        if let Some(shared) = self.shared.take() {
            shared.end(JoinState::Done(value));
        }
    }
}

impl<T> Drop for Joining<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.end(JoinState::Lost);
        }
    }
}

impl<T> JoinCell<T> {
    fn end(&self, state: JoinState<T>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.waker.wake();
    }
}
