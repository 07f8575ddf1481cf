use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::attempt::Attempt;
use super::backoff::Backoff;
use super::builder::ChannelOptions;
use super::info::ConnectionInfo;
use super::watch::Watch;
use crate::cm::{ConnectFailure, ConnectRequest, Path, Route, Target};
use crate::engine::{AlarmId, ConnectionKey, CoreShared, Negotiated, Observer, Terms};
use crate::{Code, Execution, Peer, Runtime, Status, Time, world};

/// A channel's connection on one core: made when it is first needed, and again after it was lost.
pub(super) struct Lane {
    pub(super) core: usize,
    pub(super) shared: Arc<CoreShared>,
    target: Target,
    /// Which of the server's devices the connection takes.
    route: Arc<Route>,
    connect_timeout: Duration,
    backoff: Backoff,
    watch: Arc<Watch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Who is at its other end, or was at that of the last one, and on which terms.
    about: Option<(Arc<Peer>, Terms)>,
    /// Connections whose server goes away, oldest first: calls in progress end on them.
    retired: VecDeque<ConnectionKey>,
    connecting: bool,
    /// Attempts begun; a failure belongs to the attempts up to its number.
    attempts: u64,
    failure: Option<(u64, Status)>,
    /// Attempts that failed since the last connection.
    failures: u32,
    /// When the next may be made.
    next_attempt: Option<Instant>,
    /// Wakes those who wait then.
    alarm: Option<Alarm>,
    /// Whether there was a connection that is gone.
    lost: bool,
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
/// long, so there are more only of one that breaks its word; the older ones are closed then, and are gone
/// when their calls have ended or been given up.
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
        options: &ChannelOptions,
        watch: &Arc<Watch>,
        route: Route,
    ) -> Arc<Self> {
        Arc::new(Self {
            core,
            shared: Arc::clone(&runtime.core_handles()[core].shared),
            target,
            route: Arc::new(route),
            connect_timeout: options.connect_timeout,
            backoff: options.backoff,
            watch: Arc::clone(watch),
            state: Mutex::default(),
        })
    }

    /// The connection, once there is one. Begins connecting if nobody has. A caller that does not `wait`
    /// fails with the attempt that it waits for, and at once while the next one is not due; one that does
    /// goes on waiting unless another attempt would fail as well. Either ends at `deadline`, whoever made
    /// the attempt.
    pub(super) async fn connection(
        self: &Arc<Self>,
        runtime: &Runtime,
        deadline: Option<Instant>,
        wait: bool,
    ) -> Result<Connection, Status> {
        let mut attempt = None;
        let mut alarm = None;
        std::future::poll_fn(|context| {
            let polled = self.poll_connection(runtime, &mut attempt, wait, context);
            if polled.is_pending()
                && let Some(deadline) = deadline
            {
                if deadline <= world::now() {
                    return Poll::Ready(Err(too_late()));
                }
                alarm.get_or_insert_with(|| {
                    let at = runtime.clock().at(deadline);
                    Alarm::set(&self.shared, at, context.waker().clone())
                });
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
        wait: bool,
        context: &Context<'_>,
    ) -> Poll<Result<Connection, Status>> {
        let mut state = self.lock();
        if let Some(connection) = state.connection {
            return Poll::Ready(Ok(connection));
        }
        let due = state.next_attempt.is_none_or(|at| at <= world::now());
        if let Some((failed, status)) = &state.failure {
            let mine = attempt.is_some_and(|mine| *failed >= mine);
            let early = !state.connecting && !due;
            if (mine || early) && !(wait && may_pass(status)) {
                return Poll::Ready(Err(status.clone()));
            }
        }
        let begin = !state.connecting && due;
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
        let pause = if state.connecting { None } else { state.next_attempt };
        if let Some(at) = pause
            && state.alarm.is_none()
        {
            let waker = Waker::from(Arc::clone(self));
            state.alarm = Some(Alarm::set(&self.shared, runtime.clock().at(at), waker));
        }
        let number = state.attempts;
        drop(state);
        if begin {
            self.watch.changed();
            self.begin(runtime, number);
        }
        Poll::Pending
    }

    fn begin(self: &Arc<Self>, runtime: &Runtime, number: u64) {
        let observer: Arc<dyn Observer> = Arc::new(Attempt::new(self, number));
        let lane = Arc::clone(self);
        runtime.control().connect(ConnectRequest {
            target: self.target.clone(),
            core: self.core,
            deadline: world::now() + self.connect_timeout,
            route: Arc::clone(&self.route),
            context: Box::new(observer),
            done: Box::new(move |result| {
                // On success the engine tells the observer when both sides have confirmed.
                if let Err(ConnectFailure { error, .. }) = result {
                    let way_failed = error.concerns_device();
                    lane.fail(number, error.into(), way_failed);
                }
            }),
        });
    }

    /// What carries the connection, or carried the last one.
    pub(super) fn path(&self) -> Option<Path> {
        self.route.path()
    }

    /// The connection that there is now, for people.
    pub(super) fn info(&self) -> Option<ConnectionInfo> {
        let state = self.lock();
        let Negotiated { eager_bytes, message_bytes_max } = state.connection?.negotiated;
        let (peer, terms) = state.about.clone()?;
        let path = self.route.path()?;
        Some(ConnectionInfo {
            device: path.device,
            reason: path.reason,
            peer,
            version: terms.version,
            eager_bytes,
            message_bytes_max,
            mtu: terms.mtu,
            mtu_own: terms.mtus[0],
            mtu_peer: terms.mtus[1],
            reads_max: terms.reads_max,
        })
    }

    /// Attempt `number` led to nothing.
    fn fail(&self, number: u64, status: Status, way_failed: bool) {
        let mut state = self.lock();
        if !state.connecting || number != state.attempts {
            return; // it has failed before
        }
        state.connecting = false;
        state.lost = true;
        if self.route.failed(status.message(), way_failed, world::now()) {
            tracing::warn!(%status, "a way to the server failed; the next one is tried");
            // At once: whoever waits goes on waiting, and begins the attempt.
            (state.failure, state.next_attempt) = (None, None);
            return self.tell(state);
        }
        state.failure = Some((state.attempts, status));
        state.failures = state.failures.saturating_add(1);
        let pause = self.backoff.after(state.failures, random());
        state.next_attempt = world::now().checked_add(pause);
        self.tell(state);
    }

    /// Something has changed: whoever waits for the connection, or for the channel's state, looks again.
    fn tell(&self, mut state: MutexGuard<'_, State>) {
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for waker in waiting {
            waker.wake();
        }
        self.watch.changed();
    }

    pub(super) fn state(&self) -> LaneState {
        let state = self.lock();
        if state.connection.is_some() {
            LaneState::Ready
        } else if state.connecting {
            LaneState::Connecting
        } else if state.failure.is_some() || state.lost {
            LaneState::Failed
        } else {
            LaneState::Idle
        }
    }

    /// The channel is gone: closes the connection, now or as soon as it is there.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.alarm = None;
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

/// What an [`Attempt`] hears.
impl Lane {
    pub(super) fn ready(
        &self,
        number: u64,
        key: ConnectionKey,
        negotiated: Negotiated,
        peer: &Arc<Peer>,
        terms: Terms,
    ) {
        let mut state = self.lock();
        if state.closed || number != state.attempts || !state.connecting {
            drop(state);
            self.close_connection(key);
            return;
        }
        state.connecting = false;
        if let Some(path) = self.route.connected() {
            tracing::info!(core = self.core, %path, "connected");
        }
        (state.failure, state.failures, state.next_attempt) = (None, 0, None);
        state.connection = Some(Connection { key, negotiated });
        state.about = Some((Arc::clone(peer), terms));
        self.tell(state);
    }

    pub(super) fn retiring(&self, key: ConnectionKey) {
        let mut state = self.lock();
        if state.connection.is_none_or(|connection| connection.key != key) {
            return;
        }
        state.connection = None;
        state.retired.push_back(key);
        // It stays among them until it is gone: its end is not that of an attempt.
        let over = state.retired.len().checked_sub(RETIRED_MAX + 1);
        let over = over.and_then(|at| state.retired.get(at).copied());
        state.lost = true;
        self.tell(state);
        if let Some(over) = over {
            self.close_connection(over);
        }
    }

    pub(super) fn lost(&self, number: u64, key: ConnectionKey, why: Status, way_failed: bool) {
        let mut state = self.lock();
        if let Some(at) = state.retired.iter().position(|other| *other == key) {
            state.retired.remove(at);
            return;
        }
        match state.connection {
            Some(connection) if connection.key == key => {
                state.connection = None;
                state.lost = true;
                self.tell(state);
            }
            Some(_) => {}
            None => {
                // It was lost before both sides had confirmed it.
                drop(state);
                self.fail(number, why, way_failed);
            }
        }
    }
}

fn too_late() -> Status {
    Status::deadline_exceeded("the deadline passed before the server was reached")
        .with_execution(Execution::NotExecuted)
}

/// Whether another attempt may succeed where this one failed.
fn may_pass(failure: &Status) -> bool {
    let code = failure.code();
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted)
}

/// Any number: clients that were lost together come back apart.
fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without random numbers the waits are only less apart.
    let _ = world::fill_random(&mut bytes);
    u32::from_ne_bytes(bytes)
}

impl Wake for Lane {
    /// The time between two attempts has passed.
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        state.alarm = None;
        self.tell(state);
    }
}

/// An alarm on a lane's core, taken back when whoever set it needs it no longer.
struct Alarm {
    shared: Arc<CoreShared>,
    id: AlarmId,
}

impl Alarm {
    fn set(shared: &Arc<CoreShared>, at: Time, waker: Waker) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = AlarmId { at, number: NEXT.fetch_add(1, Ordering::Relaxed) };
        shared.run_on_core(Box::new(move |core| core.add_alarm(id, waker)));
        Self { shared: Arc::clone(shared), id }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let id = self.id;
        // After the one that set it: jobs keep their order.
        self.shared.run_on_core(Box::new(move |core| core.remove_alarm(id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_that_was_closed_for_want_of_room_is_not_that_of_the_attempt() {
        let runtime = Runtime::builder().build().unwrap();
        let target = Target::InProcess { server: 0 };
        let (options, watch) = (ChannelOptions::default(), Arc::default());
        let lane = Lane::new(&runtime, 0, target, &options, &watch, Route::default());
        let negotiated = Negotiated { eager_bytes: 9216, message_bytes_max: 1 << 20 };
        let peer = Arc::new(Peer {
            name: String::new(),
            boot_id: 0,
            remote_addr: None,
            local_addr: None,
            device: "soft",
        });
        let terms = Terms { version: 1, mtu: 4096, mtus: [4096; 2], reads_max: 16 };
        let key = |slot| ConnectionKey { engine: 0, slot, generation: 1 };
        for slot in 0..=RETIRED_MAX as u32 {
            lane.lock().connecting = true;
            lane.ready(0, key(slot), negotiated, &peer, terms);
            lane.retiring(key(slot));
        }
        lane.lock().connecting = true;
        for slot in 0..=RETIRED_MAX as u32 {
            lane.lost(0, key(slot), Status::unavailable("gone"), false);
        }
        let state = lane.lock();
        assert!(state.connecting && state.failure.is_none() && state.retired.is_empty());
    }

    #[test]
    fn what_is_heard_of_an_attempt_whose_time_was_over_is_no_news_of_the_next_one() {
        let runtime = Runtime::builder().build().unwrap();
        let (options, watch) = (ChannelOptions::default(), Arc::default());
        let target = Target::InProcess { server: 0 };
        let lane = Lane::new(&runtime, 0, target, &options, &watch, Route::default());
        let begin = || {
            let mut state = lane.lock();
            state.connecting = true;
            state.attempts += 1;
            state.attempts
        };
        let first = begin();
        lane.fail(first, Status::deadline_exceeded("timed out"), false);
        let second = begin();
        let key = ConnectionKey { engine: 0, slot: 0, generation: 1 };
        lane.lost(first, key, Status::unavailable("its socket was closed"), true);
        lane.fail(first, Status::unavailable("again"), true);
        assert!(lane.lock().connecting, "the second attempt goes on");
        lane.lost(second, key, Status::unavailable("gone"), false);
        assert!(!lane.lock().connecting);
    }
}
