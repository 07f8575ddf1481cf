use std::io;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::answer::{ConnectDone, install_done};
use super::control::Notice;
use super::handshake::{Handshake, Need};
use super::poller::{Interest, Poller};
use super::route::{Route, WayId};
use super::socket::system;
use super::ways::{answer, path_of, ways};
use super::{
    ConnectError, ControlStream, DeviceChoice, Established, Host, Offer, OpenRequest, Path,
    PendingQp, RdmaOptions, Role, Step,
};
use crate::Peer;
use crate::failpoint::{self, Point};
use crate::verbs::QpAddress;
use crate::wire::CONTROL_BYTES_MAX;
use crate::world;

/// How long a refusal may take to reach the peer before the socket is closed over it.
const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes of a refused peer that are read and dropped, so that closing does not reset the connection
/// under the refusal. A peer that sends more than a hello and a blob loses the sentence.
const FAREWELL_BYTES_MAX: usize = 2 * CONTROL_BYTES_MAX;

/// What the thread's entries work with.
pub(super) struct Tools {
    pub host: Arc<dyn Host>,
    pub poller: Arc<Poller>,
    pub notices: Sender<Notice>,
    /// What connects nodes; `None`: TCP.
    #[cfg(any(test, feature = "test-util"))]
    pub network: Option<Arc<dyn super::Network>>,
}

/// A handshake on an open control connection.
pub(super) struct Shake {
    /// Who wants it.
    pub origin: Origin,
    /// When to give up.
    pub deadline: Instant,
    stream: Watched,
    handshake: Handshake,
    /// What this side offers a peer that connects.
    offers: Vec<Offer>,
    /// What carries the connection, and why, once its QP is made.
    path: Option<Path>,
    qp: Option<Box<dyn PendingQp>>,
    /// Whether a core has been given the QP: closing the socket is then how it learns of a failure.
    installed: bool,
    in_process: bool,
}

/// Who wants a connection.
pub(super) enum Origin {
    /// A caller of this process.
    Connect {
        /// The core that asked.
        core: usize,
        /// The device it asked for.
        device: DeviceChoice,
        /// Who is told.
        done: ConnectDone,
    },
    /// A peer.
    Accept {
        /// The server it came to.
        server: u64,
        /// The device of the address it came to.
        device: DeviceChoice,
    },
}

/// How a handshake goes on.
pub(super) enum Shaken {
    /// It waits, until its deadline at the latest.
    Waiting,
    /// The connection is made.
    Done,
    /// It failed.
    Failed(ConnectError),
}

/// A stream, and what its descriptor is watched for.
struct Watched {
    stream: ControlStream,
    interest: Option<Interest>,
}

impl Watched {
    /// Watches for something else, or for nothing: then not even a hang-up is told.
    fn watch(
        &mut self,
        poller: &Poller,
        key: u64,
        interest: Option<Interest>,
    ) -> Result<(), ConnectError> {
        let result = match (self.interest, interest) {
            (before, now) if before == now => Ok(()),
            (None, Some(now)) => poller.add(&self.stream, key, now),
            (Some(_), Some(now)) => poller.modify(&self.stream, key, now),
            (_, None) => {
                poller.delete(&self.stream);
                Ok(())
            }
        };
        result.map_err(|source| system("watching a socket", source))?;
        self.interest = interest;
        Ok(())
    }
}

impl Shake {
    /// Begins a handshake; what `host` says and fresh randomness make its hello.
    pub(super) fn new(
        stream: ControlStream,
        host: &dyn Host,
        deadline: Instant,
        origin: Origin,
    ) -> Result<Self, Box<(Origin, ConnectError)>> {
        let remote_ip = stream.remote_addr().map(|addr| addr.ip());
        let local = host.hello();
        let begun = randomness().and_then(|(nonce, epoch)| match origin {
            Origin::Connect { .. } => Handshake::connecting(local, nonce, epoch, remote_ip),
            Origin::Accept { .. } => Ok(Handshake::accepting(local, nonce, remote_ip)),
        });
        let in_process = stream.is_in_process();
        let stream = Watched { stream, interest: None };
        match begun {
            Ok(handshake) => {
                let (path, qp, installed) = (None, None, false);
                Ok(Self {
                    origin,
                    deadline,
                    stream,
                    handshake,
                    offers: Vec::new(),
                    path,
                    qp,
                    installed,
                    in_process,
                })
            }
            Err(error) => Err(Box::new((origin, error))),
        }
    }

    /// Whether it came over the network, and not from this process.
    pub(super) fn is_of_peer(&self) -> bool {
        matches!(self.origin, Origin::Accept { .. }) && !self.in_process
    }

    /// Whether nothing would be lost by ending it for another: a peer that has not said a whole
    /// hello yet.
    pub(super) fn is_evictable(&self) -> bool {
        self.is_of_peer() && self.handshake.step() == Step::Hello
    }

    /// The server that a peer came to.
    pub(super) fn server(&self) -> Option<u64> {
        match self.origin {
            Origin::Accept { server, .. } => Some(server),
            Origin::Connect { .. } => None,
        }
    }

    /// What it waits for.
    pub(super) fn step(&self) -> Step {
        if self.handshake.outbound().is_empty() { self.handshake.step() } else { Step::Send }
    }

    /// Goes on as far as it can without waiting.
    pub(super) fn turn(&mut self, tools: &Tools, key: u64) -> Shaken {
        match self.go_on(tools, key) {
            Ok(shaken) => shaken,
            Err(error) => Shaken::Failed(error),
        }
    }

    fn go_on(&mut self, tools: &Tools, key: u64) -> Result<Shaken, ConnectError> {
        loop {
            if !self.send()? {
                self.stream.watch(&tools.poller, key, Some(Interest::Write))?;
                return Ok(Shaken::Waiting);
            }
            match self.handshake.need()? {
                Need::Bytes => {
                    if !self.receive()? {
                        self.stream.watch(&tools.poller, key, Some(Interest::Read))?;
                        return Ok(Shaken::Waiting);
                    }
                }
                Need::Offers => {
                    if let Origin::Accept { device, .. } = &self.origin {
                        let ip = local_ip(&self.stream.stream);
                        self.offers = tools.host.offers(device, ip);
                    }
                    let candidates = self.offers.iter().map(|offer| offer.candidate).collect();
                    self.handshake.on_offers(candidates)?;
                }
                Need::Open => {
                    failpoint::pass(Point::HelloSent);
                    let (qp, candidate) = match &self.origin {
                        Origin::Connect { .. } => self.open_first_way(tools)?,
                        Origin::Accept { .. } => (self.open_as_chosen(tools)?, 0),
                    };
                    self.handshake.on_opened(qp.address(), candidate)?;
                    self.qp = Some(qp);
                }
                Need::Connect(peer) => {
                    // From here on the core watches the socket, and this thread only writes to it.
                    self.stream.watch(&tools.poller, key, None)?;
                    self.connect(tools, key, peer)?;
                }
                Need::Install => return Ok(Shaken::Waiting),
                Need::Done => {
                    self.stream.watch(&tools.poller, key, None)?;
                    return Ok(Shaken::Done);
                }
            }
        }
    }

    /// The core has answered.
    pub(super) fn on_installed(
        &mut self,
        tools: &Tools,
        key: u64,
        result: Result<(), ConnectError>,
    ) -> Shaken {
        failpoint::pass(Point::Installed);
        match result.and_then(|()| self.handshake.on_installed()) {
            Ok(()) => self.turn(tools, key),
            Err(error) => Shaken::Failed(error),
        }
    }

    /// Sends what there is; whether all of it went out.
    fn send(&mut self) -> Result<bool, ConnectError> {
        while !self.handshake.outbound().is_empty() {
            match self.stream.stream.write(self.handshake.outbound()) {
                Ok(count) => self.handshake.on_sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The peer may have refused before it closed: what it said comes first.
                Err(error) => return Err(self.last_words().unwrap_or_else(|| self.lost(error))),
            }
        }
        Ok(true)
    }

    /// Reads once; whether something came.
    fn receive(&mut self) -> Result<bool, ConnectError> {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        match self.stream.stream.read(&mut bytes) {
            Ok(0) => Err(ConnectError::Closed { step: self.handshake.step() }),
            Ok(count) => {
                self.handshake.on_bytes(bytes.get(..count).unwrap_or_default())?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// The refusal that waits in the socket, if one does.
    fn last_words(&mut self) -> Option<ConnectError> {
        self.receive().err().filter(|error| matches!(error, ConnectError::PeerRefused { .. }))
    }

    fn lost(&self, error: io::Error) -> ConnectError {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                ConnectError::Closed { step: self.handshake.step() }
            }
            io::ErrorKind::TimedOut => ConnectError::TimedOut { step: self.step() },
            _ => system("using the control connection", error),
        }
    }

    /// A QP on the first of the server's devices that this side has one for, and the number of its offer.
    /// Those that led nowhere before are passed over.
    fn open_first_way(&mut self, tools: &Tools) -> Result<(Box<dyn PendingQp>, u8), ConnectError> {
        let Origin::Connect { device, done, .. } = &self.origin else {
            return Err(ConnectError::NoServer);
        };
        let (route, wanted) = (Arc::clone(&done.route), device.clone());
        let offered = self.handshake.candidates();
        let ways = ways(&wanted, offered)?;
        let ids: Vec<WayId> = ways.iter().map(|way| way.id).collect();
        let (left, mut passed) = route.left(&ids, world::now());
        let mut failed = None;
        for (at, way) in left.iter().map(|index| &ways[*index]).enumerate() {
            let path = if self.in_process {
                Path { device: "soft", reason: "client and server are in one process".into() }
            } else {
                let soft = way.device == DeviceChoice::Soft && wanted != DeviceChoice::Soft;
                let lack = if soft { tools.host.lack(&wanted) } else { None };
                let path = path_of(&wanted, way, offered, passed.as_deref(), lack.as_deref());
                if soft && (lack.is_some() || passed.is_some()) {
                    warn_of_software(&wanted, &path, &route);
                }
                path
            };
            match tools.host.open(&self.open_request(way.device.clone(), way.ip)) {
                Ok(qp) => {
                    let more = left[at + 1..].iter().any(|index| ids[*index] != way.id);
                    route.take(way.id, ways.len() > 1, more, path.clone());
                    let number = way.number;
                    self.path = Some(path);
                    return Ok((qp, number));
                }
                Err(error) => {
                    passed = Some(error.to_string().into());
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or(ConnectError::NotOffered { offers_rdma: false }))
    }

    /// A QP on the device that the client has chosen of those that it was offered.
    fn open_as_chosen(&mut self, tools: &Tools) -> Result<Box<dyn PendingQp>, ConnectError> {
        let (Origin::Accept { device: own, .. }, Some(blob)) =
            (&self.origin, self.handshake.peer_blob())
        else {
            return Err(ConnectError::NoServer);
        };
        let (device, ip) = answer(own, &self.offers, blob)?;
        let kind = if device == DeviceChoice::Soft { "soft" } else { "rdma" };
        let qp = tools.host.open(&self.open_request(device, ip))?;
        self.path = Some(Path { device: kind, reason: "the client's choice".into() });
        Ok(qp)
    }

    fn open_request(&self, device: DeviceChoice, ip: Option<IpAddr>) -> OpenRequest {
        let (core, server) = match &self.origin {
            Origin::Connect { core, .. } => (Some(*core), None),
            Origin::Accept { server, .. } => (None, Some(*server)),
        };
        OpenRequest {
            device,
            core,
            role: self.handshake.role(),
            server,
            local_ip: ip.or_else(|| local_ip(&self.stream.stream)),
            in_process: self.in_process,
        }
    }

    /// RTR, RTS, and the QP to its core.
    fn connect(
        &mut self,
        tools: &Tools,
        key: u64,
        peer_address: QpAddress,
    ) -> Result<(), ConnectError> {
        let outcome = self.handshake.outcome()?;
        let (Some(mut qp), Some(path)) = (self.qp.take(), self.path.clone()) else {
            return Err(ConnectError::NoServer);
        };
        qp.connect(&peer_address)?;
        failpoint::pass(Point::QpReady);
        let stream = &self.stream.stream;
        let established = Established {
            role: self.handshake.role(),
            epoch: outcome.agreed.epoch,
            eager_bytes: outcome.agreed.eager_bytes,
            message_bytes_max: outcome.agreed.message_bytes_max,
            features: outcome.agreed.features.0,
            version: outcome.agreed.version,
            peer: Peer {
                name: outcome.peer_name,
                boot_id: outcome.peer_boot_id,
                remote_addr: stream.remote_addr(),
                local_addr: stream.local_addr(),
                device: path.device,
            },
            peer_address,
            confirm: outcome.confirm,
            control: stream.clone(),
            server: self.server(),
            context: match &mut self.origin {
                Origin::Connect { done, .. } => done.take_context(),
                Origin::Accept { .. } => None,
            },
            path,
        };
        self.handshake.on_connected();
        self.installed = true;
        let done = install_done(key, tools.notices.clone(), Arc::clone(&tools.poller));
        qp.install(established, done);
        Ok(())
    }

    /// Ends a handshake that failed: the QP goes, and the peer is told why if it is still there to
    /// hear it. Returns who wanted the connection, and what is left of the socket.
    pub(super) fn end(
        mut self,
        poller: &Poller,
        key: u64,
        error: &ConnectError,
        now: Instant,
    ) -> (Origin, Option<Farewell>) {
        drop(self.qp.take());
        let silent = matches!(
            error,
            ConnectError::PeerRefused { .. }
                | ConnectError::Closed { .. }
                | ConnectError::NotThisProtocol
        );
        // The connecting side has nothing to hear once it has our blob, and the accepting side
        // nothing once both have installed.
        let over = matches!(self.handshake.need(), Ok(Need::Done));
        if silent || over || (self.installed && self.handshake.role() == Role::Connecting) {
            poller.delete(&self.stream.stream);
            self.stream.stream.close();
            return (self.origin, None);
        }
        self.handshake.refuse(error);
        let farewell = Farewell {
            stream: self.stream,
            words: self.handshake.outbound().to_vec(),
            // A core that has the QP must see the end of the socket now, not after the farewell.
            at_once: self.installed,
            deadline: now + FAREWELL,
            heard_bytes: 0,
        };
        let farewell = farewell.turn(poller, key);
        (self.origin, farewell)
    }
}

/// A refusal on its way: sent, then the socket is closed when the peer has closed its end.
pub(super) struct Farewell {
    stream: Watched,
    words: Vec<u8>,
    at_once: bool,
    deadline: Instant,
    heard_bytes: usize,
}

impl Farewell {
    /// When it ends at the latest.
    pub(super) fn timer(&self) -> Instant {
        self.deadline
    }

    /// Goes on as far as it can; `None` when it is over and the socket closed.
    pub(super) fn turn(mut self, poller: &Poller, key: u64) -> Option<Self> {
        let stream = self.stream.stream.clone();
        if self.say().is_err() || (self.at_once && self.words.is_empty()) {
            self.close(poller);
            return None;
        }
        if !self.words.is_empty() {
            return self.wait(poller, key, Interest::Write);
        }
        let _ = stream.shutdown(Shutdown::Write);
        let mut bytes = [0; CONTROL_BYTES_MAX];
        while self.heard_bytes <= FAREWELL_BYTES_MAX {
            match stream.read(&mut bytes) {
                Ok(count @ 1..) => self.heard_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.wait(poller, key, Interest::Read);
                }
                _ => break,
            }
        }
        self.close(poller);
        None
    }

    /// Ends it, said or not.
    pub(super) fn close(self, poller: &Poller) {
        poller.delete(&self.stream.stream);
        self.stream.stream.close();
    }

    fn say(&mut self) -> io::Result<()> {
        while !self.words.is_empty() {
            match self.stream.stream.write(&self.words) {
                Ok(count) => drop(self.words.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(mut self, poller: &Poller, key: u64, interest: Interest) -> Option<Self> {
        match self.stream.watch(poller, key, Some(interest)) {
            Ok(()) => Some(self),
            Err(_) => {
                self.close(poller);
                None
            }
        }
    }
}

/// Who chooses a device or a path of RDMA expects to get it: a mistyped name is not passed over in silence.
fn warn_of_software(wanted: &DeviceChoice, path: &Path, route: &Route) {
    let chosen =
        matches!(wanted, DeviceChoice::Auto(options) if **options != RdmaOptions::default());
    if chosen && route.is_news(&path.reason) {
        tracing::warn!(
            reason = %path.reason,
            "the address chooses a device or path of RDMA, and the software device carries the connection"
        );
    }
}

/// This end of a control connection.
fn local_ip(stream: &ControlStream) -> Option<IpAddr> {
    stream.local_addr().map(|addr| addr.ip().to_canonical())
}

/// A nonce, and an epoch that is not 0.
fn randomness() -> Result<([u8; super::NONCE_BYTES], u32), ConnectError> {
    let fill = |bytes: &mut [u8]| {
        world::fill_random(bytes)
            .map_err(|error| system("drawing random bytes", io::Error::other(error)))
    };
    let (mut nonce, mut epoch) = ([0; super::NONCE_BYTES], [0; 4]);
    fill(&mut nonce)?;
    fill(&mut epoch)?;
    Ok((nonce, u32::from_le_bytes(epoch).max(1)))
}
