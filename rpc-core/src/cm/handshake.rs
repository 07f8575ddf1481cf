use std::net::IpAddr;

use super::confirm::{ConfirmInput, ConfirmKeys};
use super::convert::{Expected, from_blob, to_blob};
use super::{ConnectError, LocalHello, NONCE_BYTES, Role, Step};
use crate::Code;
use crate::verbs::QpAddress;
use crate::wire::handshake::frame_len;
use crate::wire::hello::PEER_NAME_BYTES_MAX;
use crate::wire::{
    AddressBlob, Agreed, Candidate, ControlMessage, DecodeError, Hello, HelloError,
    REFUSED_FOR_DEVICE, Refusal, WindowType,
};

/// One side of the exchange that makes a connection, without I/O: bytes in, bytes out, and what it
/// needs next.
///
/// The two sides speak in turn, so a byte that follows a message is an error; and since a message
/// that is too long is refused by its prefix, what is buffered stays below two messages
/// ([`CONTROL_BYTES_MAX`](crate::wire::CONTROL_BYTES_MAX) each).
pub struct Handshake {
    state: State,
    own: Hello,
    peer: Option<(Hello, Agreed)>,
    own_address: Option<QpAddress>,
    candidate: u8,
    peer_blob: Option<AddressBlob>,
    remote_ip: Option<IpAddr>,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
}

/// The order on the connecting side is Hello, Open, Blob, Connect; on the accepting side Hello, Offers,
/// Blob, Open, Connect: it makes a QP only for a peer that has made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hello,
    Offers,
    Open,
    Blob,
    Connect,
    Install,
    Done,
}

/// What a handshake needs to go on. Whatever it is, [`Handshake::outbound`] goes out first.
#[derive(Debug, PartialEq, Eq)]
pub enum Need {
    /// Bytes of the peer: [`Handshake::on_bytes`].
    Bytes,
    /// What the server offers: [`Handshake::on_offers`].
    Offers,
    /// A QP: [`Handshake::on_opened`].
    Open,
    /// The QP connected to this address and given to its core: [`Handshake::on_connected`].
    Connect(QpAddress),
    /// The core's answer: [`Handshake::on_installed`].
    Install,
    /// Nothing more; the connection is made.
    Done,
}

/// What both sides agreed on.
#[derive(Debug)]
pub struct Outcome {
    /// Version, features and limits.
    pub agreed: Agreed,
    /// The name the peer gave itself.
    pub peer_name: String,
    /// The peer's boot id.
    pub peer_boot_id: u128,
    /// What the first messages on the QP must carry.
    pub confirm: ConfirmKeys,
}

impl Handshake {
    /// The side that dialled; its hello is ready to go out. `epoch` and `nonce` are random.
    ///
    /// # Errors
    /// [`ConnectError::Malformed`] if `local` breaks a rule of the hello.
    pub fn connecting(
        local: LocalHello,
        nonce: [u8; NONCE_BYTES],
        epoch: u32,
        remote_ip: Option<IpAddr>,
    ) -> Result<Self, ConnectError> {
        let mut this = Self::new(Role::Connecting, local, nonce, epoch, remote_ip);
        this.say(&ControlMessage::Hello(this.own.clone()))?;
        Ok(this)
    }

    /// The side that was dialled.
    pub fn accepting(
        local: LocalHello,
        nonce: [u8; NONCE_BYTES],
        remote_ip: Option<IpAddr>,
    ) -> Self {
        Self::new(Role::Accepting, local, nonce, 0, remote_ip)
    }

    fn new(
        role: Role,
        local: LocalHello,
        nonce: [u8; NONCE_BYTES],
        epoch: u32,
        remote_ip: Option<IpAddr>,
    ) -> Self {
        let own = Hello {
            epoch,
            eager_bytes: local.eager_bytes,
            message_bytes_max: local.message_bytes_max,
            name: cut(local.name),
            // Every device of this version has windows.
            window: WindowType::Type2,
            ..Hello::new(role, local.boot_id, nonce)
        };
        Self {
            state: State::Hello,
            own,
            peer: None,
            own_address: None,
            candidate: 0,
            peer_blob: None,
            remote_ip,
            inbound: Vec::new(),
            outbound: Vec::new(),
        }
    }

    /// This side's role.
    pub fn role(&self) -> Role {
        self.own.role
    }

    /// What it waits for.
    pub fn step(&self) -> Step {
        match self.state {
            State::Hello | State::Offers => Step::Hello,
            State::Open | State::Blob => Step::Blob,
            State::Connect | State::Install | State::Done => Step::Install,
        }
    }

    /// What it needs next.
    ///
    /// # Errors
    /// [`ConnectError::Malformed`] if the peer's address cannot be used by our device.
    pub fn need(&self) -> Result<Need, ConnectError> {
        Ok(match self.state {
            State::Hello | State::Blob => Need::Bytes,
            State::Offers => Need::Offers,
            State::Open => Need::Open,
            State::Connect => Need::Connect(self.peer_address()?),
            State::Install => Need::Install,
            State::Done => Need::Done,
        })
    }

    /// Bytes to send.
    pub fn outbound(&self) -> &[u8] {
        &self.outbound
    }

    /// The first `count` bytes of [`Self::outbound`] went out.
    pub fn on_sent(&mut self, count: usize) {
        self.outbound.drain(..count.min(self.outbound.len()));
    }

    /// Bytes of the peer came.
    ///
    /// # Errors
    /// What is wrong with them, or why the peer, or this side, does not want the connection.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        self.inbound.extend_from_slice(bytes);
        let Some(len) = frame_len(&self.inbound).map_err(undecodable)? else {
            return Ok(());
        };
        let Some(message) = self.inbound.get(..len) else {
            return Ok(());
        };
        let message = ControlMessage::decode(message).map_err(undecodable)?;
        if let Some(rest) = self.inbound.get(len..).filter(|rest| !rest.is_empty()) {
            // A peer that gives up does not wait for its turn, and what it says may come together with
            // what it sent before.
            if let Ok(ControlMessage::Refused(refusal)) = ControlMessage::decode(rest) {
                return Err(refused(&refusal));
            }
            return Err(malformed("bytes follow it, though it was this side's turn"));
        }
        self.inbound.clear();
        match (self.state, message) {
            (_, ControlMessage::Refused(refusal)) => Err(refused(&refusal)),
            (State::Hello, ControlMessage::Hello(hello)) => self.on_hello(hello),
            (State::Blob, ControlMessage::Blob(blob)) => {
                self.peer_blob = Some(blob);
                self.state = match self.role() {
                    Role::Connecting => State::Connect,
                    Role::Accepting => State::Open,
                };
                Ok(())
            }
            _ => Err(malformed("it is out of turn")),
        }
    }

    fn on_hello(&mut self, hello: Hello) -> Result<(), ConnectError> {
        if self.role() == Role::Accepting {
            // The epoch is the one the connecting side drew: the accepting side repeats it.
            self.own.epoch = hello.epoch;
        }
        let agreed = self.own.negotiate(&hello).map_err(disagreed)?;
        self.peer = Some((hello, agreed));
        self.state = match self.role() {
            Role::Connecting => State::Open,
            Role::Accepting => State::Offers,
        };
        Ok(())
    }

    /// What this side, the server, can make the queue pair on, in the order that it prefers: asked for when a
    /// peer has said a hello that will do, and not before.
    ///
    /// # Errors
    /// [`ConnectError::OwnMessage`] if there are too many.
    pub fn on_offers(&mut self, candidates: Vec<Candidate>) -> Result<(), ConnectError> {
        self.own.candidates = candidates;
        self.say(&ControlMessage::Hello(self.own.clone()))?;
        self.state = State::Blob;
        Ok(())
    }

    /// What the peer's hello offers, once it is there.
    pub fn candidates(&self) -> &[Candidate] {
        self.peer.as_ref().map_or(&[], |(hello, _)| &hello.candidates)
    }

    /// What the peer has said of its device, once it has.
    pub fn peer_blob(&self) -> Option<&AddressBlob> {
        self.peer_blob.as_ref()
    }

    /// A QP was made; `address` reaches it. `candidate` is the number of the peer's offer that it is for,
    /// if this side chose one, or 0.
    ///
    /// # Errors
    /// [`ConnectError::Malformed`] if the address breaks a rule of the blob.
    pub fn on_opened(&mut self, address: QpAddress, candidate: u8) -> Result<(), ConnectError> {
        self.own_address = Some(address);
        self.candidate = candidate;
        match self.role() {
            Role::Connecting => {
                self.say_blob()?;
                self.state = State::Blob;
            }
            Role::Accepting => self.state = State::Connect,
        }
        Ok(())
    }

    /// The QP is in RTS and on its way to its core.
    pub fn on_connected(&mut self) {
        self.state = State::Install;
    }

    /// The core has it, and its receives are posted: the peer may be told.
    ///
    /// # Errors
    /// As [`Self::on_opened`].
    pub fn on_installed(&mut self) -> Result<(), ConnectError> {
        if self.role() == Role::Accepting {
            self.say_blob()?;
        }
        self.state = State::Done;
        Ok(())
    }

    /// Puts a refusal behind what is still to be sent. Nothing else may follow.
    pub fn refuse(&mut self, error: &ConnectError) {
        let (code, text) = error.refusal();
        let code = code as u32 | if error.concerns_device() { REFUSED_FOR_DEVICE } else { 0 };
        // It fits by construction; without it the peer sees only the connection close.
        let _ = self.say(&ControlMessage::Refused(Refusal { code, text }));
    }

    /// What was agreed, once [`Need::Connect`] has been reached; an error before.
    ///
    /// # Errors
    /// [`ConnectError::Malformed`].
    pub fn outcome(&self) -> Result<Outcome, ConnectError> {
        let (Some((peer, agreed)), Some(own_address), Some(peer_blob)) =
            (&self.peer, &self.own_address, &self.peer_blob)
        else {
            return Err(malformed("the handshake is not that far"));
        };
        let own_side = (&self.own, own_address.qp_num.0);
        let peer_side = (peer, peer_blob.qp_num);
        let ((connecting, connecting_qpn), (accepting, accepting_qpn)) = match self.role() {
            Role::Connecting => (own_side, peer_side),
            Role::Accepting => (peer_side, own_side),
        };
        let input = ConfirmInput {
            connecting_nonce: connecting.nonce,
            accepting_nonce: accepting.nonce,
            connecting_qpn,
            accepting_qpn,
            connecting_boot_id: connecting.boot_id,
            accepting_boot_id: accepting.boot_id,
            epoch: agreed.epoch,
            version: agreed.version,
        };
        Ok(Outcome {
            agreed: *agreed,
            peer_name: peer.name.clone(),
            peer_boot_id: peer.boot_id,
            confirm: ConfirmKeys::new(self.role(), &input),
        })
    }

    fn peer_address(&self) -> Result<QpAddress, ConnectError> {
        let (Some((peer, agreed)), Some(own_address), Some(peer_blob)) =
            (&self.peer, &self.own_address, &self.peer_blob)
        else {
            return Err(malformed("the handshake is not that far"));
        };
        let expected = Expected {
            boot_id: peer.boot_id,
            epoch: agreed.epoch,
            eager_bytes: agreed.eager_bytes,
            role: self.role(),
            remote_ip: self.remote_ip,
        };
        from_blob(peer_blob, own_address, &expected)
    }

    fn say_blob(&mut self) -> Result<(), ConnectError> {
        let (Some((_, agreed)), Some(address)) = (&self.peer, &self.own_address) else {
            return Err(malformed("the handshake is not that far"));
        };
        let blob = to_blob(address, self.own.boot_id, agreed.epoch);
        self.say(&ControlMessage::Blob(AddressBlob { candidate: self.candidate, ..blob }))
    }

    fn say(&mut self, message: &ControlMessage) -> Result<(), ConnectError> {
        let bytes = message.encode().map_err(|_| ConnectError::OwnMessage {
            kind: match message {
                ControlMessage::Hello(_) => "hello",
                ControlMessage::Blob(_) => "device address",
                ControlMessage::Refused(_) => "refusal",
            },
        })?;
        self.outbound.extend_from_slice(&bytes);
        Ok(())
    }
}

/// Cuts a name to what a hello holds.
fn cut(mut name: String) -> String {
    while name.len() > PEER_NAME_BYTES_MAX {
        name.pop();
    }
    name
}

fn undecodable(error: DecodeError) -> ConnectError {
    match error {
        DecodeError::Magic => ConnectError::NotThisProtocol,
        error => ConnectError::Malformed { what: error.to_string() },
    }
}

fn disagreed(error: HelloError) -> ConnectError {
    match error {
        HelloError::Version { own_min, own_max, peer_min, peer_max } => {
            ConnectError::Version { own_min, own_max, peer_min, peer_max }
        }
        HelloError::PeerRequires(features) => ConnectError::Feature { features, by_peer: true },
        HelloError::OwnRequires(features) => ConnectError::Feature { features, by_peer: false },
        HelloError::Role(_) => malformed(&error.to_string()),
    }
}

fn refused(refusal: &Refusal) -> ConnectError {
    let of_device = refusal.code & REFUSED_FOR_DEVICE != 0;
    let code = match Code::from_u32(refusal.code & !REFUSED_FOR_DEVICE) {
        // A refusal cannot be a success.
        Code::Ok => Code::Unknown,
        code => code,
    };
    ConnectError::PeerRefused { code, of_device, message: printable(&refusal.text) }
}

/// Text of a peer goes into logs and onto terminals: its control characters are shown, not obeyed.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

fn malformed(what: &str) -> ConnectError {
    ConnectError::Malformed { what: what.to_owned() }
}

#[cfg(test)]
mod tests;
