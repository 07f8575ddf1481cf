//! Callbacks that are called exactly once: one that is dropped uncalled answers that the runtime is
//! shutting down, whatever dropped it (the end of the thread, a queue that nobody reads, a panic).

use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::control::Notice;
use super::poller::Poller;
use super::{
    ConnectCallback, ConnectError, ConnectFailure, Context, InstallDone, ListenCallback, Route,
};

/// The answer to a connect request.
pub(super) struct ConnectDone {
    /// What is known of the ways to the server.
    pub(super) route: Arc<Route>,
    context: Option<Context>,
    done: Option<ConnectCallback>,
}

impl ConnectDone {
    pub(super) fn new(route: Arc<Route>, context: Context, done: ConnectCallback) -> Self {
        Self { route, context: Some(context), done: Some(done) }
    }

    /// The context, on its way to the core.
    pub(super) fn take_context(&mut self) -> Option<Context> {
        self.context.take()
    }

    pub(super) fn succeed(mut self) {
        if let Some(done) = self.done.take() {
            done(Ok(()));
        }
    }

    pub(super) fn fail(mut self, error: ConnectError) {
        self.answer(error);
    }

    fn answer(&mut self, error: ConnectError) {
        if let Some(done) = self.done.take() {
            done(Err(ConnectFailure { error, context: self.context.take() }));
        }
    }
}

impl Drop for ConnectDone {
    fn drop(&mut self) {
        self.answer(ConnectError::ShutDown);
    }
}

/// The answer to a listen request.
pub(super) struct ListenDone(Option<ListenCallback>);

impl ListenDone {
    pub(super) fn new(done: ListenCallback) -> Self {
        Self(Some(done))
    }

    pub(super) fn answer(mut self, result: Result<SocketAddr, ConnectError>) {
        self.give(result);
    }

    fn give(&mut self, result: Result<SocketAddr, ConnectError>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl Drop for ListenDone {
    fn drop(&mut self) {
        self.give(Err(ConnectError::ShutDown));
    }
}

/// A core's answer to `install`, on its way back to the control thread.
struct InstallAnswer {
    key: u64,
    notices: Sender<Notice>,
    poller: Arc<Poller>,
    given: bool,
}

/// What a core is given to answer the handshake `key` with.
pub(super) fn install_done(key: u64, notices: Sender<Notice>, poller: Arc<Poller>) -> InstallDone {
    let mut answer = InstallAnswer { key, notices, poller, given: false };
    Box::new(move |result| answer.give(result))
}

impl InstallAnswer {
    fn give(&mut self, result: Result<(), ConnectError>) {
        self.given = true;
        // A control thread that has ended needs no answer.
        let _ = self.notices.send(Notice::Installed(self.key, result));
        self.poller.notify();
    }
}

impl Drop for InstallAnswer {
    fn drop(&mut self) {
        if !self.given {
            self.give(Err(ConnectError::ShutDown));
        }
    }
}
