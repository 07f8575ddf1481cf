//! The exchange on a control connection as a whole, its bytes cut anywhere.

use std::net::{IpAddr, Ipv4Addr};

use rpc_core::cm::{ConnectError, Handshake, LocalHello, Need, Role};
use rpc_core::verbs::{Link, Psn, QpAddress, QpNum};
use rpc_core::wire::handshake::{CONTROL_BYTES_MAX, frame_len};
use rpc_core::wire::{AddressBlob, Candidate, ControlMessage, Hello, SoftLink, WindowType};

use super::{control, make};
use crate::heap;
use crate::recipe::Recipe;

/// What a handshake holds and takes while it works: two messages that come in, two that go out, each
/// in a vector that grows by doubling, a message being encoded, and sentences.
const HEAP_BYTES_MAX: u64 = 8 * CONTROL_BYTES_MAX as u64;

const NONCE: [u8; 32] = [7; 32];

pub(crate) fn run(input: &[u8]) {
    let mut r = Recipe::new(input);
    let role = if r.flag() { Role::Connecting } else { Role::Accepting };
    let name = r.text(100).to_owned();
    let messages: Vec<Vec<u8>> =
        (0..1 + r.below(4)).map(|step| message(&mut r, role, step)).collect();
    let cuts: [u8; 16] = r.array();
    let side = || Side::new(role, &name);
    let whole = converse(side(), &messages, |_| usize::MAX);
    let mut at = 0;
    let cut = converse(side(), &messages, |_| {
        at += 1;
        1 + usize::from(cuts[at % cuts.len()])
    });
    // How TCP cuts the stream says nothing, as long as nobody speaks out of turn.
    if messages
        .iter()
        .all(|message| frame_len(message).map(|len| len == Some(message.len())) != Ok(false))
    {
        assert_eq!(whole, cut);
    }
}

/// What a peer says in its turn: what it should, nearly that, or anything.
fn message(r: &mut Recipe<'_>, own: Role, step: usize) -> Vec<u8> {
    let peer = match own {
        Role::Connecting => Role::Accepting,
        Role::Accepting => Role::Connecting,
    };
    let mut bytes = match r.below(8) {
        0 => return r.some_bytes(200).to_vec(),
        1 => make::control(r).encode().expect("within its bounds"),
        _ if step == 0 => {
            // On the connecting side the epoch is the one it drew itself.
            let hello = Hello { epoch: 7, ..Hello::new(peer, 9, [9; 32]) };
            ControlMessage::Hello(hello).encode().expect("within its bounds")
        }
        _ => ControlMessage::Blob(blob(r)).encode().expect("within its bounds"),
    };
    if r.one_in(3) {
        r.spoil(&mut bytes);
        if r.flag() {
            control::set_len(&mut bytes);
        }
    }
    bytes
}

/// A blob that fits the hello above, or nearly.
fn blob(r: &mut Recipe<'_>) -> AddressBlob {
    if r.one_in(4) {
        return make::address_blob(r);
    }
    let link = SoftLink { guid: 5, dial: None };
    AddressBlob {
        boot_id: if r.one_in(8) { 8 } else { 9 },
        epoch: if r.one_in(8) { 8 } else { 7 },
        max_rd_atomic: r.u8(),
        max_dest_rd_atomic: r.u8(),
        message_bytes_max: if r.one_in(4) { r.number32().max(1) } else { 1 << 20 },
        window: if r.one_in(8) { WindowType::None } else { WindowType::Type2 },
        ..AddressBlob::soft(r.number32() & 0x00ff_ffff, 3, 1024 + r.number32() % 4096, link)
    }
}

/// One side, and what it said.
struct Side {
    handshake: Handshake,
    said: Vec<u8>,
}

impl Side {
    fn new(role: Role, name: &str) -> Self {
        let local = LocalHello {
            boot_id: 1,
            name: name.to_owned(),
            eager_bytes: 9216,
            message_bytes_max: 1 << 20,
        };
        let ip = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let handshake = match role {
            Role::Connecting => {
                Handshake::connecting(local, NONCE, 7, ip).expect("our own hello keeps the rules")
            }
            Role::Accepting => Handshake::accepting(local, NONCE, ip),
        };
        Self { handshake, said: Vec::new() }
    }

    /// Goes on until bytes of the peer are needed; whether they are.
    fn go_on(&mut self) -> Result<bool, ConnectError> {
        for _ in 0..8 {
            self.said.extend_from_slice(self.handshake.outbound());
            self.handshake.on_sent(self.handshake.outbound().len());
            match self.handshake.need()? {
                Need::Bytes => return Ok(true),
                Need::Offers => self.handshake.on_offers(vec![Candidate::soft(1)])?,
                Need::Open => self.handshake.on_opened(own_address(), 0)?,
                Need::Connect(peer) => {
                    connectable(&peer);
                    let outcome = self.handshake.outcome()?;
                    assert_ne!(outcome.confirm.own, outcome.confirm.peer);
                    self.handshake.on_connected();
                }
                Need::Install => self.handshake.on_installed()?,
                Need::Done => return Ok(false),
            }
        }
        panic!("the handshake does not come to an end");
    }
}

fn own_address() -> QpAddress {
    QpAddress {
        qp_num: QpNum(77),
        psn: Psn::new(7),
        mtu: 4096,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        message_bytes_max: 1 << 30,
        link: Link::Soft { guid: 1, dial: None },
    }
}

/// What a device can be given.
fn connectable(peer: &QpAddress) {
    assert!(peer.qp_num.0 < 1 << 24 && peer.psn.0 < 1 << 24);
    assert!(peer.mtu >= 256 && peer.message_bytes_max > 0);
}

/// Gives the handshake these messages, each in its turn and in parts of the lengths given. Returns
/// what it said and how it ended.
fn converse(
    mut side: Side,
    messages: &[Vec<u8>],
    mut cut: impl FnMut(usize) -> usize,
) -> (Vec<u8>, String) {
    let end =
        heap::at_most("a handshake", HEAP_BYTES_MAX, || listen(&mut side, messages, &mut cut));
    let text = match end {
        Ok(text) => text.to_owned(),
        Err(error) => {
            side.handshake.refuse(&error);
            side.said.extend_from_slice(side.handshake.outbound());
            let text = error.to_string();
            let shown = |c: char| !c.is_control();
            assert!(!text.is_empty() && text.chars().all(shown), "{text:?}");
            text
        }
    };
    sensible(&side.said);
    (side.said, text)
}

fn listen(
    side: &mut Side,
    messages: &[Vec<u8>],
    cut: &mut impl FnMut(usize) -> usize,
) -> Result<&'static str, ConnectError> {
    for message in messages {
        if !side.go_on()? {
            return Ok("done");
        }
        let mut rest = message.as_slice();
        while !rest.is_empty() {
            // What one read of the socket brings at most.
            let (part, after) =
                rest.split_at(cut(rest.len()).min(rest.len()).min(CONTROL_BYTES_MAX));
            side.handshake.on_bytes(part)?;
            rest = after;
        }
    }
    Ok(if side.go_on()? { "waits" } else { "done" })
}

/// What this side said is a row of messages.
fn sensible(mut said: &[u8]) {
    while !said.is_empty() {
        let len = frame_len(said).expect("this side speaks the protocol").expect("a whole message");
        ControlMessage::decode(&said[..len]).expect("this side speaks the protocol");
        said = &said[len..];
    }
}
