use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::cm::{ConnectFailure, ConnectRequest, Target};
use crate::engine::{ConnectionKey, CoreShared, Negotiated, Observer};
use crate::{Execution, Runtime, Status};

/// A channel's connection on one core: made when it is first needed, and again after it was lost.
pub(super) struct Lane {
    pub(super) core: usize,
    pub(super) shared: Arc<CoreShared>,
    target: Target,
    connect_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Connections whose server goes away, oldest first: calls in progress end on them.
    retired: VecDeque<ConnectionKey>,
    connecting: bool,
    /// Attempts begun; a failure belongs to the attempts up to its number.
    attempts: u64,
    failure: Option<(u64, Status)>,
    waiting: Vec<Waker>,
    closed: bool,
}

/// A connection that calls can be made on, and what was agreed for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) key: ConnectionKey,
    pub(super) negotiated: Negotiated,
}

/// Connections of one lane that only wait for their last calls. A server that goes away keeps none for
/// long, so there are more only of one that breaks its word; the oldest is closed then.
const RETIRED_MAX: usize = 4;

/// What a lane is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    Idle,
    Connecting,
    Ready,
    Failed,
}

impl Lane {
    pub(super) fn new(
        runtime: &Runtime,
        core: usize,
        target: Target,
        connect_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            core,
            shared: Arc::clone(&runtime.core_handles()[core].shared),
            target,
            connect_timeout,
            state: Mutex::default(),
        })
    }

    /// The connection, once there is one. Begins connecting if nobody has; a caller that finds an
    /// earlier failure makes a new attempt, and fails only with an attempt of its own time.
    /// The wait ends at `deadline`, whoever made the attempt.
    pub(super) async fn connection(
        self: &Arc<Self>,
        runtime: &Runtime,
        deadline: Option<Instant>,
    ) -> Result<Connection, Status> {
        let mut attempt = None;
        let mut alarm = deadline;
        std::future::poll_fn(|context| {
            let polled = self.poll_connection(runtime, &mut attempt, context);
            if polled.is_pending() && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Poll::Ready(Err(too_late()));
            }
            if polled.is_pending()
                && let Some(deadline) = alarm.take()
            {
                let (at, waker) = (runtime.clock().at(deadline), context.waker().clone());
                self.shared.run_on_core(Box::new(move |core| core.add_alarm(at, waker)));
            }
            polled
        })
        .await
    }

    /// The connection, if there is one now.
    pub(super) fn ready_connection(&self) -> Option<Connection> {
        self.lock().connection
    }

    fn poll_connection(
        self: &Arc<Self>,
        runtime: &Runtime,
        attempt: &mut Option<u64>,
        context: &Context<'_>,
    ) -> Poll<Result<Connection, Status>> {
        let mut state = self.lock();
        if let Some(connection) = state.connection {
            return Poll::Ready(Ok(connection));
        }
        if let (Some(mine), Some((failed, status))) = (*attempt, &state.failure)
            && *failed >= mine
        {
            return Poll::Ready(Err(status.clone()));
        }
        let begin = !state.connecting;
        if begin {
            state.connecting = true;
            state.attempts += 1;
        }
        if attempt.is_none() || begin {
            *attempt = Some(state.attempts);
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        drop(state);
        if begin {
            self.begin(runtime);
        }
        Poll::Pending
    }

    fn begin(self: &Arc<Self>, runtime: &Runtime) {
        let observer: Arc<dyn Observer> = Arc::clone(self) as _;
        let lane = Arc::clone(self);
        runtime.control().connect(ConnectRequest {
            target: self.target.clone(),
            core: self.core,
            deadline: Instant::now() + self.connect_timeout,
            context: Box::new(observer),
            done: Box::new(move |result| {
                // On success the engine tells the observer when both sides have confirmed.
                if let Err(ConnectFailure { error, .. }) = result {
                    lane.fail(error.into());
                }
            }),
        });
    }

    fn fail(&self, status: Status) {
        let mut state = self.lock();
        state.connecting = false;
        state.failure = Some((state.attempts, status));
        wake_all(state);
    }

    pub(super) fn state(&self) -> LaneState {
        let state = self.lock();
        if state.connection.is_some() {
            LaneState::Ready
        } else if state.connecting {
            LaneState::Connecting
        } else if state.failure.is_some() {
            LaneState::Failed
        } else {
            LaneState::Idle
        }
    }

    /// The channel is gone: closes the connection, now or as soon as it is there.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let current = state.connection.take().map(|connection| connection.key);
        let mut keys = std::mem::take(&mut state.retired);
        drop(state);
        keys.extend(current);
        for key in keys {
            self.close_connection(key);
        }
    }

    fn close_connection(&self, key: ConnectionKey) {
        self.shared.run_on_core(Box::new(move |core| core.close(key)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Lane {
    fn ready(&self, key: ConnectionKey, negotiated: Negotiated) {
        let mut state = self.lock();
        state.connecting = false;
        if state.closed {
            drop(state);
            self.close_connection(key);
            return;
        }
        state.failure = None;
        state.connection = Some(Connection { key, negotiated });
        wake_all(state);
    }

    fn retiring(&self, key: ConnectionKey) {
        let mut state = self.lock();
        if state.connection.is_none_or(|connection| connection.key != key) {
            return;
        }
        state.connection = None;
        state.retired.push_back(key);
        let over = (state.retired.len() > RETIRED_MAX).then(|| state.retired.pop_front()).flatten();
        drop(state);
        if let Some(over) = over {
            self.close_connection(over);
        }
    }

    fn lost(&self, key: ConnectionKey, why: Status) {
        let mut state = self.lock();
        if let Some(at) = state.retired.iter().position(|other| *other == key) {
            state.retired.remove(at);
            return;
        }
        match state.connection {
            Some(connection) if connection.key == key => {
                state.connection = None;
                wake_all(state);
            }
            Some(_) => {}
            None => {
                // It was lost before both sides had confirmed it.
                drop(state);
                self.fail(why);
            }
        }
    }
}

fn too_late() -> Status {
    Status::deadline_exceeded("the deadline passed before the server was reached")
        .with_execution(Execution::NotExecuted)
}

fn wake_all(mut state: MutexGuard<'_, State>) {
    let waiting = std::mem::take(&mut state.waiting);
    drop(state);
    for waker in waiting {
        waker.wake();
    }
}
