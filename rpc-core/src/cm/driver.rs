use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use super::control::{Notice, Request};
use super::poller::Poller;
use super::{ConnectError, Host};

/// The state of the control thread.
pub(super) struct Driver {
    poller: Arc<Poller>,
    requested: Receiver<Request>,
    noticed: Receiver<Notice>,
}

impl Driver {
    pub(super) fn new(
        _host: Arc<dyn Host>,
        poller: Arc<Poller>,
        requested: Receiver<Request>,
        noticed: Receiver<Notice>,
        _notices: Sender<Notice>,
    ) -> Self {
        Self { poller, requested, noticed }
    }

    pub(super) fn run(self) {
        let mut keys = Vec::new();
        loop {
            let _ = self.poller.wait(None, &mut keys);
            if self.noticed.try_iter().any(|notice| matches!(notice, Notice::Shutdown)) {
                break;
            }
            for request in self.requested.try_iter() {
                request.fail(ConnectError::NoServer);
            }
        }
    }
}
