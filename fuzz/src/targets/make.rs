//! Well-formed messages from recipes.

use std::net::{IpAddr, SocketAddr};

use rpc_core::wire::candidate::CANDIDATES_MAX;
use rpc_core::wire::hello::{EAGER_BYTES_MAX, EAGER_BYTES_MIN, PEER_NAME_BYTES_MAX};
use rpc_core::wire::{
    AddressBlob, Candidate, ControlMessage, DecodeError, DeviceKind, Features, GidType, Hello,
    LinkLayer, PayloadDescriptor, Refusal, Role, Segment, SoftLink, WindowType, blob,
};

use crate::recipe::Recipe;

/// What every error of a decoder must do: say whose fault it is, in a sentence of bounded length that
/// can be printed.
pub(crate) fn says_what(error: &DecodeError) {
    let text = error.to_string();
    assert!(text.starts_with("the peer"), "{text}");
    assert!(text.len() <= 256 && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
}

pub(crate) fn control(r: &mut Recipe<'_>) -> ControlMessage {
    match r.below(3) {
        0 => ControlMessage::Hello(hello(r)),
        1 => ControlMessage::Blob(address_blob(r)),
        _ => ControlMessage::Refused(Refusal { code: r.number32(), text: r.text(300).into() }),
    }
}

pub(crate) fn hello(r: &mut Recipe<'_>) -> Hello {
    let role = if r.flag() { Role::Connecting } else { Role::Accepting };
    let version_min = (r.number() as u16).max(1);
    let offered = r.number();
    let eager = EAGER_BYTES_MIN + r.number32() % (EAGER_BYTES_MAX - EAGER_BYTES_MIN + 1);
    Hello {
        version_min,
        version_max: version_min.saturating_add(r.number() as u16),
        offered: Features(offered),
        required: Features(offered & r.number()),
        epoch: r.number32(),
        eager_bytes: eager / 8 * 8,
        message_bytes_max: r.number().max(1),
        name: r.text(PEER_NAME_BYTES_MAX).into(),
        window: if r.flag() { WindowType::Type2 } else { WindowType::None },
        candidates: (0..r.below(CANDIDATES_MAX + 1)).map(|_| candidate(r)).collect(),
        ..Hello::new(role, u128::from(r.number()), r.array())
    }
}

fn candidate(r: &mut Recipe<'_>) -> Candidate {
    Candidate {
        number: r.u8().max(1),
        kind: r.pick(DeviceKind::ALL).unwrap_or(DeviceKind::Soft),
        link_layer: r.pick(LinkLayer::ALL).unwrap_or(LinkLayer::Unspecified),
        gid_type: r.pick(GidType::ALL).unwrap_or(GidType::None),
        gid: r.array(),
    }
}

pub(crate) fn address_blob(r: &mut Recipe<'_>) -> AddressBlob {
    let soft = r.flag().then(|| SoftLink { guid: r.u64(), dial: dial(r) });
    AddressBlob {
        kind: if soft.is_some() { DeviceKind::Soft } else { DeviceKind::Ibv },
        link_layer: r.pick(LinkLayer::ALL).unwrap_or(LinkLayer::Unspecified),
        qp_num: r.number32() & 0x00ff_ffff,
        psn: r.number32() & 0x00ff_ffff,
        gid: r.array(),
        gid_type: r.pick(GidType::ALL).unwrap_or(GidType::None),
        lid: r.u16(),
        pkey: r.u16(),
        mtu: r.number32().clamp(blob::MTU_BYTES_MIN, blob::MTU_BYTES_MAX),
        max_rd_atomic: r.u8(),
        max_dest_rd_atomic: r.u8(),
        message_bytes_max: r.number32().max(1),
        window: if r.flag() { WindowType::Type2 } else { WindowType::None },
        remote_invalidate: r.flag(),
        boot_id: u128::from(r.number()),
        epoch: r.number32(),
        candidate: r.u8(),
        soft,
    }
}

fn dial(r: &mut Recipe<'_>) -> Option<SocketAddr> {
    let ip = match r.below(3) {
        0 => return None,
        1 => IpAddr::from(r.array::<4>()),
        _ => IpAddr::from(r.array::<16>()),
    };
    Some(SocketAddr::new(ip, r.u16().max(1)))
}

/// A message's parts: segments that sum to the inline bytes, if there are any segments.
pub(crate) fn parts<'a>(r: &mut Recipe<'a>) -> (Vec<Segment>, &'a [u8]) {
    let inline = r.some_bytes(600);
    let (mut segments, mut left) = (Vec::new(), inline.len() as u32);
    let (pieces, lease) = (r.below(4), r.number());
    if pieces == 0 {
        return (segments, inline);
    }
    for _ in 0..pieces {
        if left > 0 && r.flag() {
            let step = 1 + r.number32() % left;
            segments.push(Segment::Inline(step));
            left -= step;
        }
        segments.push(Segment::Payload(descriptor(r, lease)));
    }
    if left > 0 {
        segments.push(Segment::Inline(left));
    }
    (segments, inline)
}

pub(crate) fn descriptor(r: &mut Recipe<'_>, lease: u64) -> PayloadDescriptor {
    let len = r.number32().max(1);
    let addr = r.number().min(u64::MAX - u64::from(len));
    PayloadDescriptor { addr, len, rkey: r.u32(), lease }
}
