use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use super::{
    Address, ConfirmKeys, ConnectError, ControlStream, DeviceChoice, Offer, Path, Role, Route,
};
use crate::Peer;
use crate::verbs::QpAddress;

/// What this process says of itself in every hello.
#[derive(Clone, Debug)]
pub struct LocalHello {
    /// A number drawn when the runtime started.
    pub boot_id: u128,
    /// A name for people, at most 64 bytes of UTF-8 (a longer one is cut).
    pub name: String,
    /// Bytes of one eager receive buffer.
    pub eager_bytes: u32,
    /// The longest message this side takes.
    pub message_bytes_max: u64,
}

/// What the control thread needs of the runtime. Its methods are called on the control thread only,
/// and may block it; every other handshake waits meanwhile.
pub trait Host: Send + Sync + 'static {
    /// What to say of this process.
    fn hello(&self) -> LocalHello;

    /// Makes a QP, in INIT, for a core.
    ///
    /// # Errors
    /// [`ConnectError::NoServer`] when `server` is not known any more, [`ConnectError::NoMemory`]
    /// when the core cannot back the guaranteed receives, [`ConnectError::Device`].
    fn open(&self, request: &OpenRequest) -> Result<Box<dyn PendingQp>, ConnectError>;

    /// What a server that listens for this device offers a peer that came to this local address, in the order
    /// that it prefers. Nothing: what its address says. Called once the peer has said its hello.
    fn offers(&self, _device: &DeviceChoice, _local_ip: Option<IpAddr>) -> Vec<Offer> {
        Vec::new()
    }

    /// Why this side has no device of RDMA for a choice, as far as that is known without opening any. `None`: nothing
    /// is known that speaks against it.
    fn lack(&self, _device: &DeviceChoice) -> Option<String> {
        None
    }

    /// Connections are to be made on this device: what takes long is done before a peer waits for it.
    /// `local_ip` is `None` if it is not known, or is every address; `core` is `None` if it may be any.
    ///
    /// # Errors
    /// Why no connection could be made.
    fn prepare(
        &self,
        _device: &DeviceChoice,
        _local_ip: Option<IpAddr>,
        _core: Option<usize>,
    ) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Devices that were opened since the last call, whose asynchronous events the control thread
    /// is to watch.
    fn new_event_sources(&self) -> Vec<Arc<dyn EventSource>> {
        Vec::new()
    }
}

/// A device's asynchronous events, which the control thread watches as long as it lives.
pub trait EventSource: Send + Sync + 'static {
    /// Readable while an event waits; `None`: there never are any.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Fetches and acknowledges every event that waits, and passes it on. On the control thread.
    /// False: the device is gone, and its descriptor may be readable for ever.
    fn on_ready(&self) -> bool;
}

/// What a QP is needed for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenRequest {
    /// The device it must be of: the software device or one of RDMA, as the two sides agreed.
    pub device: DeviceChoice,
    /// The core it is for. `None`: spread evenly.
    pub core: Option<usize>,
    /// This side's role.
    pub role: Role,
    /// The server it belongs to, on the accepting side.
    pub server: Option<u64>,
    /// The local address that leads to the device: usually this end of the control connection; `None` inside
    /// one process.
    pub local_ip: Option<IpAddr>,
    /// Whether both ends are in this process.
    pub in_process: bool,
}

/// A QP that has no peer yet. Dropping it destroys the QP.
pub trait PendingQp: Send {
    /// What the peer needs to reach it.
    fn address(&self) -> QpAddress;

    /// RTR and RTS towards `peer`.
    ///
    /// # Errors
    /// [`ConnectError::Device`] when the device does not take the address.
    fn connect(&mut self, peer: &QpAddress) -> Result<(), ConnectError>;

    /// Gives it to its core. The core calls `done` when the connection's guaranteed receives are
    /// posted and it may be sent to, or with the reason why not; `done` only queues the answer and
    /// wakes the control thread. A `done` that is dropped uncalled counts as
    /// [`ConnectError::ShutDown`].
    fn install(self: Box<Self>, established: Established, done: InstallDone);
}

/// How a core answers [`PendingQp::install`].
pub type InstallDone = Box<dyn FnOnce(Result<(), ConnectError>) + Send>;

/// A connection as both sides agreed on it.
#[non_exhaustive]
pub struct Established {
    /// This side's role.
    pub role: Role,
    /// Drawn by the connecting side for this connection; every SEND header carries it.
    pub epoch: u32,
    /// Bytes of the longest eager SEND: the smaller of both sides' buffers.
    pub eager_bytes: u32,
    /// Bytes of the longest message that the peer takes.
    pub message_bytes_max: u64,
    /// The features that both sides have.
    pub features: u64,
    /// The protocol version in use.
    pub version: u16,
    /// Who the peer says it is.
    pub peer: Peer,
    /// The peer's QP.
    pub peer_address: QpAddress,
    /// What proves that the QP belongs to this control connection.
    pub confirm: ConfirmKeys,
    /// The control connection. The core watches it: its loss ends the QP.
    pub control: ControlStream,
    /// The server the connection belongs to, on the accepting side.
    pub server: Option<u64>,
    /// What the connect request carried, on the connecting side.
    pub context: Option<Context>,
    /// What carries it, and why.
    pub path: Path,
}

/// What a connect request carries through to the core.
pub type Context = Box<dyn Any + Send>;

/// Where to connect to.
#[derive(Clone, Debug)]
pub enum Target {
    /// A listening server.
    Address(Address),
    /// A server of this process, without any port.
    InProcess {
        /// Its number.
        server: u64,
    },
}

/// A connection to be made.
pub struct ConnectRequest {
    /// Where to.
    pub target: Target,
    /// The core that the QP is for.
    pub core: usize,
    /// When to give up.
    pub deadline: Instant,
    /// What is known of the ways to the server; says afterwards which one was taken.
    pub route: Arc<Route>,
    /// Given to the core in [`Established::context`], or back in [`ConnectFailure::context`].
    pub context: Context,
    /// Called exactly once, on the control thread or, when the request cannot be queued, before
    /// [`Control::connect`](super::Control::connect) returns: `Ok` after the core has answered
    /// `install` with `Ok`. It must not block.
    pub done: ConnectCallback,
}

/// How a connect request is answered.
pub type ConnectCallback = Box<dyn FnOnce(Result<(), ConnectFailure>) + Send>;

/// How a listen request is answered.
pub type ListenCallback = Box<dyn FnOnce(Result<SocketAddr, ConnectError>) + Send>;

/// A connection that did not come about.
pub struct ConnectFailure {
    /// Why.
    pub error: ConnectError,
    /// What the request carried; `None` if the core has it already.
    pub context: Option<Context>,
}

/// A server's wish to be connected to.
pub struct ListenRequest {
    /// Where. Port 0 takes any free port.
    pub address: Address,
    /// The server's number, for [`OpenRequest::server`] and
    /// [`Control::unlisten`](super::Control::unlisten). One server may listen at several addresses.
    pub server: u64,
    /// Called exactly once with the address bound, as [`ConnectRequest::done`] is.
    pub done: ListenCallback,
}
