//! What takes the place of TCP between the nodes of a simulation.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;

use super::answer::{ConnectDone, ListenDone};
use super::control::Notice;
use super::driver::Driver;
use super::poller::Poller;
use super::shake::Origin;
use super::{Address, ConnectError, ControlStream, DeviceChoice};
use crate::world;

/// The network as one node sees it.
pub(crate) trait Network: Send + Sync {
    /// One end of a new connection to whoever listens there, or will have listened when the bytes come.
    fn dial(&self, address: &Address) -> Result<ControlStream, ConnectError>;

    /// From now on whoever dials this address comes through `door`. Returns the address with its port.
    fn listen(&self, address: &Address, door: Door) -> Result<SocketAddr, ConnectError>;

    /// Closes a server's doors.
    fn unlisten(&self, server: u64);
}

/// How the network brings a server those who dial it.
#[derive(Clone)]
pub(crate) struct Door {
    /// The server behind it.
    pub(crate) server: u64,
    device: DeviceChoice,
    notices: Sender<Notice>,
    poller: Arc<Poller>,
}

/// Somebody at the door.
pub(super) struct Dialled {
    server: u64,
    device: DeviceChoice,
    stream: ControlStream,
}

impl Door {
    /// Somebody has dialled; `stream` is the server's end.
    pub(crate) fn enter(&self, stream: ControlStream) {
        let dialled = Dialled { server: self.server, device: self.device.clone(), stream };
        // A node that has ended hears nothing.
        let _ = self.notices.send(Notice::Dialled(dialled));
        self.poller.notify();
    }
}

impl Driver {
    pub(super) fn dial_on(
        &mut self,
        network: &dyn Network,
        address: &Address,
        core: usize,
        deadline: Instant,
        done: ConnectDone,
    ) {
        let key = self.new_key();
        let dialled = address.device().and_then(|device| Ok((device, network.dial(address)?)));
        match dialled {
            Ok((device, stream)) => {
                self.shake(key, stream, deadline, Origin::Connect { core, device, done });
            }
            Err(error) => done.fail(error),
        }
    }

    pub(super) fn listen_on(
        &self,
        network: &dyn Network,
        address: &Address,
        server: u64,
        done: ListenDone,
    ) {
        let listening = address.device().and_then(|device| {
            let poller = Arc::clone(&self.tools.poller);
            let door = Door { server, device, notices: self.tools.notices.clone(), poller };
            network.listen(address, door)
        });
        done.answer(listening);
    }

    pub(super) fn on_dialled_in(&mut self, dialled: Dialled) {
        let Dialled { server, device, stream } = dialled;
        self.admit(stream, Origin::Accept { server, device }, world::now());
    }
}
