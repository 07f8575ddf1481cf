//! Calls that arrive: found, begun in place, answered.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::capacity::{CALLS_PER_FLUSH, COMPLETIONS_PER_TURN};
use super::connection::Waiting;
use super::drive::Turn;
use super::engine::Engine;
use super::executor;
use super::leases::NotNow;
use super::load::{Place, ServerLoad};
use super::local;
use super::outbound::{encode_metadata, has_pieces};
use super::status;
use super::submission::{
    Answer, Answered, ConnectionKey, HandlerEnd, HandlerFuture, IncomingCall, Method, ReceivedBody,
};
use super::turns::Turns;
use crate::failpoint::{self, Point};
use crate::protocol::{CallId, InCall, OutAnswer};
use crate::verbs::Device;
use crate::{Code, Status, Time};

/// A call that a peer made, its payloads READ.
pub(super) struct Arrived {
    pub(super) connection: ConnectionKey,
    pub(super) call: CallId,
    pub(super) method: u32,
    pub(super) name: Option<Box<str>>,
    pub(super) deadline: Option<Time>,
    pub(super) urgent: bool,
    pub(super) metadata: Bytes,
    pub(super) body: ReceivedBody,
}

/// Calls that wait for a handler of their server to end.
pub(super) struct Queue {
    load: std::sync::Arc<ServerLoad>,
    calls: Turns<(Arrived, Method)>,
}

/// What is done beside handlers that are begun one after the other: what they have said is sent now and
/// then, and one that keeps the core is noticed.
struct Pace<'a> {
    turn: &'a Turn<'a>,
    begun: usize,
    started: Time,
}

impl<'a> Pace<'a> {
    fn new(turn: &'a Turn<'a>) -> Self {
        Self { turn, begun: 0, started: turn.clock.now() }
    }

    fn before_each<D: Device>(&self, engine: &mut Engine<D>) {
        if self.begun > 0 && self.begun.is_multiple_of(CALLS_PER_FLUSH) {
            engine.flush_dirty(self.turn);
        }
    }

    fn after_each(&mut self, method: &'static str) {
        let ended = self.turn.clock.now();
        self.turn.report_stall(method, ended.since(self.started));
        self.started = ended;
        self.begun += 1;
    }
}

/// An answer's lease outlives the call that it answers: the peer needs time to READ it. It has until
/// the call's deadline, and at least this long.
const ANSWER_LEASE: Duration = Duration::from_secs(30);

impl<D: Device> Engine<D> {
    /// A call arrived: it begins with the others of this turn.
    pub(super) fn arrive(&mut self, slot: u32, call: InCall) {
        let Some(connection) = self.connections.at(slot) else { return };
        if let Some(name) = &call.name {
            // Now, and not when the call begins: it may be cancelled before, and later calls of the
            // method come without its name.
            connection.learn(call.method, name);
        }
        let body = connection.take_body(&self.pool, call.body);
        self.arrived.push(Arrived {
            connection: connection.key,
            call: call.call,
            method: call.method,
            name: call.name,
            deadline: call.deadline,
            urgent: call.priority > 0,
            metadata: call.metadata,
            body,
        });
    }

    /// Begins the calls that arrived in this turn, those that waited for a place before them.
    pub(super) fn begin_arrived(&mut self, turn: &Turn<'_>) -> usize {
        let begun = self.begin_queued(turn);
        if self.arrived.is_empty() {
            return begun;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        if arrived.iter().any(|call| call.urgent) {
            // Those of one kind keep their order.
            arrived.sort_by_key(|call| !call.urgent);
        }
        let count = arrived.len();
        let mut pace = Pace::new(turn);
        for call in arrived.drain(..) {
            pace.before_each(self);
            let method = self.begin(turn, call);
            pace.after_each(method);
        }
        if self.arrived.is_empty() {
            self.arrived = arrived; // for its memory
        }
        count + begun
    }

    /// Begins calls that waited and whose server has a place now, in their order, within a turn's budget.
    fn begin_queued(&mut self, turn: &Turn<'_>) -> usize {
        if self.queued.is_empty() {
            return 0;
        }
        let mut begun = 0;
        let mut pace = Pace::new(turn);
        // A handler may end connections, and with them what waits: the queues are looked up anew.
        for index in 0..self.queued.len() {
            while begun < COMPLETIONS_PER_TURN
                && let Some(queue) =
                    self.queued.get_mut(index).filter(|queue| !queue.calls.is_empty())
                && let Some(place) = queue.load.try_take()
                && let Some((arrived, method)) = queue.calls.pop()
            {
                pace.before_each(self);
                self.run(turn, arrived, method, Some(place));
                pace.after_each(method.path);
                begun += 1;
            }
        }
        self.queued.retain(|queue| !queue.calls.is_empty());
        if begun >= COMPLETIONS_PER_TURN && !self.queued.is_empty() {
            // Another server's come first in the next turn.
            self.queued.rotate_left(1);
        }
        begun
    }

    /// A handler's place for a call of a server that limits them. If there is none, the call waits; if too
    /// many do, one of the connection that has most waiting is refused.
    fn place(
        &mut self,
        turn: &Turn<'_>,
        load: &std::sync::Arc<ServerLoad>,
        arrived: Arrived,
        method: Method,
    ) -> Option<(Arrived, Place)> {
        let at = self.queued.iter().position(|queue| std::sync::Arc::ptr_eq(&queue.load, load));
        let waiting = at.map_or(0, |at| self.queued[at].calls.len());
        // Those that wait come first.
        if waiting == 0
            && let Some(place) = load.try_take()
        {
            return Some((arrived, place));
        }
        let (from, urgent) = (arrived.connection, arrived.urgent);
        if waiting >= load.queued_max as usize {
            let calls = at.map(|at| &mut self.queued[at].calls);
            match calls.and_then(|calls| calls.give_way(from, urgent)) {
                Some((key, (other, _))) => self.refuse_full(turn, load, key, other.call),
                None => {
                    self.refuse_full(turn, load, from, arrived.call);
                    return None;
                }
            }
        }
        let at = at.unwrap_or_else(|| {
            let load = std::sync::Arc::clone(load);
            self.queued.push(Queue { load, calls: Turns::default() });
            self.queued.len() - 1
        });
        self.queued[at].calls.push(from, urgent, (arrived, method));
        None
    }

    /// Refuses a call for which there is neither a handler's place nor one to wait in.
    fn refuse_full(
        &mut self,
        turn: &Turn<'_>,
        load: &ServerLoad,
        key: ConnectionKey,
        call: CallId,
    ) {
        self.counters.errors += 1;
        if let Some(connection) = self.connections.get(key) {
            let code = Code::ResourceExhausted as u32;
            connection.protocol.refuse(turn.now, call, code, &load.full());
            self.mark_dirty(key.slot);
        }
    }

    /// A call was cancelled before its handler began, or after it ended.
    pub(super) fn forget_arrived(&mut self, turn: &Turn<'_>, slot: u32, call: CallId) {
        let Some(connection) = self.connections.at(slot) else { return };
        let key = connection.key;
        connection.protocol.end_incoming(turn.now, call);
        connection.waiting.retain(
            |waiting| !matches!(waiting, Waiting::Answer { call: other, .. } if *other == call),
        );
        self.arrived.retain(|arrived| arrived.connection != key || arrived.call != call);
        for queue in &mut self.queued {
            queue.calls.forget(key, |(queued, _)| queued.call == call);
        }
    }

    /// Polls the handler once in place. Returns the method's name.
    fn begin(&mut self, turn: &Turn<'_>, arrived: Arrived) -> &'static str {
        // What calls before it had to say may have ended their connection.
        let connection = self.connections.get(arrived.connection).filter(|c| c.is_alive());
        let Some(connection) = connection else { return "" };
        let slot = arrived.connection.slot;
        let method = match resolve(connection, arrived.method, arrived.name.as_deref()) {
            Ok(method) => method,
            Err(message) => {
                self.counters.errors += 1;
                connection.protocol.refuse(
                    turn.now,
                    arrived.call,
                    Code::Unimplemented as u32,
                    &message,
                );
                self.mark_dirty(slot);
                return "";
            }
        };
        match &connection.load {
            None => self.run(turn, arrived, method, None),
            Some(load) => {
                let load = std::sync::Arc::clone(load);
                if let Some((arrived, place)) = self.place(turn, &load, arrived, method) {
                    self.run(turn, arrived, method, Some(place));
                }
            }
        }
        method.path
    }

    /// Calls a handler.
    fn run(&mut self, turn: &Turn<'_>, arrived: Arrived, method: Method, place: Option<Place>) {
        let Some(connection) = self.connections.get(arrived.connection) else { return };
        let Some(server) = &connection.server else { return };
        let dispatch = std::sync::Arc::clone(&server.dispatch);
        let incoming = IncomingCall {
            deadline: arrived.deadline,
            urgent: arrived.urgent,
            metadata: arrived.metadata,
            body: arrived.body,
            peer: std::sync::Arc::clone(&connection.peer),
            message_bytes_max: connection.message_bytes_max,
            eager_bytes: connection.eager_bytes,
            allowance: std::sync::Arc::clone(&connection.allowance),
        };
        self.counters.calls_served += 1;
        turn.local.running.set(Some(method.path));
        let mut handler = Guarded { future: dispatch.call(method, incoming), _place: place };
        // A waker that does nothing is enough: a handler that is not ready becomes a task, and a
        // task is polled again at once.
        let first = Pin::new(&mut handler).poll(&mut Context::from_waker(Waker::noop()));
        turn.local.running.set(None);
        match first {
            Poll::Ready(answer) => self.answer(turn, arrived.connection, arrived.call, answer),
            Poll::Pending => {
                failpoint::pass(Point::HandlerRunning);
                self.go_on_as_task(turn, arrived.connection, arrived.call, method, handler);
            }
        }
    }

    fn go_on_as_task(
        &mut self,
        turn: &Turn<'_>,
        key: ConnectionKey,
        call: CallId,
        method: Method,
        handler: Guarded,
    ) {
        let Some(connection) = self.connections.get(key) else { return };
        let shared = std::sync::Arc::clone(turn.shared);
        let ending = Ending { shared, connection: key, call, answered: false };
        let task = executor::spawn(turn.shared, async move {
            let mut ending = ending;
            let mut handler = handler;
            let answer = std::future::poll_fn(|context| {
                let _running = Running::set(method.path);
                Pin::new(&mut handler).poll(context)
            })
            .await;
            // The handler's own state goes before its call is reported as ended.
            drop(handler);
            ending.report(Some(answer));
        });
        connection.handlers.insert(call, task);
    }

    /// A handler that had become a task has ended, or was dropped.
    pub(super) fn end_handler(&mut self, turn: &Turn<'_>, end: HandlerEnd) {
        let Some(connection) = self.connections.get(end.connection) else { return };
        if let Some(task) = connection.handlers.remove(&end.call) {
            task.detach();
        }
        match end.answer {
            Some(answer) => self.answer(turn, end.connection, end.call, answer),
            None => {
                connection.protocol.end_incoming(turn.now, end.call);
                self.pump(turn, end.connection.slot);
                self.mark_dirty(end.connection.slot);
            }
        }
    }

    /// Hands an answer to the state machine, with its payloads advertised.
    pub(super) fn answer(
        &mut self,
        turn: &Turn<'_>,
        key: ConnectionKey,
        call: CallId,
        answer: Answer,
    ) {
        let Some(connection) = self.connections.get(key) else { return };
        let slot = key.slot;
        let out = match answer {
            Err(failed) => {
                self.counters.errors += 1;
                status::to_answer(&failed)
            }
            Ok(answered) => {
                if !connection.waiting.is_empty() && has_pieces(&answered.outbound) {
                    self.let_answer_wait(turn, key, call, answered);
                    return;
                }
                match self.advertise_answer(turn, slot, answered) {
                    Ok(out) => out,
                    Err(answered) => {
                        self.let_answer_wait(turn, key, call, answered);
                        return;
                    }
                }
            }
        };
        if let Some(connection) = self.connections.get(key) {
            connection.protocol.answer(turn.now, call, out);
        }
        self.pump(turn, slot);
        self.mark_dirty(slot);
    }

    /// The answer is tried again when a lease of its connection ends, and now and then, since the
    /// windows may be other connections'.
    fn let_answer_wait(
        &mut self,
        turn: &Turn<'_>,
        key: ConnectionKey,
        call: CallId,
        answered: Answered,
    ) {
        if let Some(connection) = self.connections.get(key) {
            connection.waiting.push_back(Waiting::Answer { call, answer: Ok(answered) });
            self.schedule_waiting_check(turn.now, key.slot);
        }
    }

    /// An answer with its payloads advertised; given back if it must wait for windows or a lease.
    fn advertise_answer(
        &mut self,
        turn: &Turn<'_>,
        slot: u32,
        answered: Answered,
    ) -> Result<OutAnswer, Answered> {
        let Answered { outbound, metadata, allowed, deadline } = answered;
        let expires = deadline.unwrap_or(Time::ZERO).max(turn.now + ANSWER_LEASE);
        match self.advertise(turn, slot, outbound, expires) {
            Ok(body) => {
                let connection = self.connections.at(slot);
                if let Some(lease) =
                    body.lease.and_then(|id| connection.and_then(|c| c.leases.get_mut(&id)))
                {
                    lease.allowed = allowed;
                }
                Ok(OutAnswer { status: None, metadata: encode_metadata(&metadata), body })
            }
            Err(NotNow::Wait(outbound)) => Err(Answered { outbound, metadata, allowed, deadline }),
            Err(NotNow::Refused(status)) => {
                self.counters.errors += 1;
                Ok(status::to_answer(&status))
            }
        }
    }
}

/// The handler of a method that a peer names, by its number on this connection.
fn resolve<D: Device>(
    connection: &mut super::connection::Connection<D>,
    number: u32,
    name: Option<&str>,
) -> Result<Method, String> {
    if let Some(name) = name {
        return connection.learn(number, name).ok_or_else(|| {
            format!("this server has no method '{name}'; it may be older or newer than the caller")
        });
    }
    connection
        .methods
        .get(number as usize)
        .copied()
        .flatten()
        .ok_or_else(|| "this server does not have the method that was called".to_owned())
}

/// A handler whose panic is an answer: one bad request must not take the core down.
struct Guarded {
    future: HandlerFuture,
    /// Free when the handler's own state has gone.
    _place: Option<Place>,
}

impl Future for Guarded {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let future = &mut self.future;
        std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)))
            .unwrap_or_else(|_| Poll::Ready(Err(Status::internal("the method's handler panicked"))))
    }
}

/// Reports the end of a handler that is a task, also when its future is dropped.
struct Ending {
    shared: std::sync::Arc<super::shared::CoreShared>,
    connection: ConnectionKey,
    call: CallId,
    answered: bool,
}

impl Ending {
    fn report(&mut self, answer: Option<Answer>) {
        self.answered = true;
        let end = HandlerEnd { connection: self.connection, call: self.call, answer };
        // A task is polled and dropped on its core alone, so the core is the current one; after the
        // core's end there is nobody left to tell.
        local::with_current(&self.shared, |local| local.ended.borrow_mut().push_back(end));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.answered {
            self.report(None);
        }
    }
}

/// Names the method at work on this core while it is polled.
struct Running(Option<Rc<local::Local>>);

impl Running {
    fn set(path: &'static str) -> Self {
        let local = local::current();
        if let Some(local) = &local {
            local.running.set(Some(path));
        }
        Self(local)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(local) = &self.0 {
            local.running.set(None);
        }
    }
}
