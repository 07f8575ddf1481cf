//! Packets on a link between two software devices: a header of 32 bytes, then its payload.
//!
//! Little-endian. One format for every kind of link:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | operation: 1 SEND, 2 READ request, 3 READ response, 4 ACK, 5 NAK, 6 probe, 7 probe's answer |
//! | 1 | 1 | flags: 1 first, 2 last, 4 acknowledgement wanted, 8 invalidates `key` |
//! | 2 | 1 | NAK: the reason; otherwise 0 |
//! | 3 | 1 | NAK for RNR: the timer's code; otherwise 0 |
//! | 4 | 4 | number of the QP it is for, 24 bits |
//! | 8 | 4 | PSN, 24 bits |
//! | 12 | 4 | bytes of payload that follow, at most 1 MiB |
//! | 16 | 8 | READ request: address; READ response: offset; probes: number; otherwise 0 |
//! | 24 | 4 | READ request and invalidating SEND: key; otherwise 0 |
//! | 28 | 4 | READ request: bytes wanted; otherwise 0 |
//!
//! Probes are between devices, for no QP: a device answers one when it has dealt with everything
//! that came before it. They tell a QP that does not answer from a device that is not being polled.
//!
//! Reserved bits and fields that an operation does not use are zero; anything else is garbage, and
//! garbage ends the link.

use crate::verbs::{Psn, QpNum};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 32;

/// The longest payload of one packet. Bounds what a link's reader takes in one go on trust.
pub(super) const PIECE_BYTES_MAX: u32 = 1 << 20;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send { first: bool, last: bool, invalidate: Option<u32> },
    ReadRequest { addr: u64, key: u32, len: u32 },
    ReadResponse { offset: u64, last: bool },
    Ack,
    Nak(Nak),
    Probe { number: u64 },
    ProbeAnswer { number: u64 },
}

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nak {
    /// No receive is posted: try again after the time of this 5-bit code.
    Rnr(u8),
    /// The request is malformed, too long, too deep or not allowed on this QP.
    InvalidRequest,
    /// Key, bounds or rights.
    Access,
    /// The responder could not do it for reasons of its own.
    Operation,
}

/// A packet's header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) qp: QpNum,
    pub(super) psn: Psn,
    pub(super) payload: u32,
    pub(super) ack_wanted: bool,
}

/// These bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbage;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const ACK_WANTED: u8 = 4;
const INVALIDATES: u8 = 8;

impl Header {
    /// A packet without payload that wants no acknowledgement.
    pub(super) const fn answer(qp: QpNum, psn: Psn, kind: Kind) -> Self {
        Self { kind, qp, psn, payload: 0, ack_wanted: false }
    }

    /// A packet between the devices themselves.
    pub(super) const fn of_link(kind: Kind) -> Self {
        Self::answer(QpNum(0), Psn(0), kind)
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut flags = if self.ack_wanted { ACK_WANTED } else { 0 };
        let (mut reason, mut timer, mut addr, mut key, mut len) = (0, 0, 0, 0, 0);
        let op = match self.kind {
            Kind::Send { first, last, invalidate } => {
                flags |= if first { FIRST } else { 0 } | if last { LAST } else { 0 };
                if let Some(closed) = invalidate {
                    flags |= INVALIDATES;
                    key = closed;
                }
                1
            }
            Kind::ReadRequest { addr: from, key: of, len: bytes } => {
                (addr, key, len) = (from, of, bytes);
                2
            }
            Kind::ReadResponse { offset, last } => {
                flags |= if last { LAST } else { 0 };
                addr = offset;
                3
            }
            Kind::Ack => 4,
            Kind::Nak(nak) => {
                (reason, timer) = match nak {
                    Nak::Rnr(code) => (1, code & 31),
                    Nak::InvalidRequest => (2, 0),
                    Nak::Access => (3, 0),
                    Nak::Operation => (4, 0),
                };
                5
            }
            Kind::Probe { number } => {
                addr = number;
                6
            }
            Kind::ProbeAnswer { number } => {
                addr = number;
                7
            }
        };
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&[op, flags, reason, timer]);
        out[4..8].copy_from_slice(&self.qp.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.psn.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload.to_le_bytes());
        out[16..24].copy_from_slice(&addr.to_le_bytes());
        out[24..28].copy_from_slice(&key.to_le_bytes());
        out[28..].copy_from_slice(&len.to_le_bytes());
        out
    }

    /// Reads a header. Whatever it accepts would encode to the same bytes.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Garbage> {
        let flags = bytes[1];
        let key = u32_at(bytes, 24);
        let kind = match bytes[0] {
            1 => Kind::Send {
                first: flags & FIRST != 0,
                last: flags & LAST != 0,
                invalidate: (flags & INVALIDATES != 0).then_some(key),
            },
            2 => Kind::ReadRequest { addr: u64_at(bytes, 16), key, len: u32_at(bytes, 28) },
            3 => Kind::ReadResponse { offset: u64_at(bytes, 16), last: flags & LAST != 0 },
            4 => Kind::Ack,
            5 => Kind::Nak(match bytes[2] {
                1 => Nak::Rnr(bytes[3]),
                2 => Nak::InvalidRequest,
                3 => Nak::Access,
                4 => Nak::Operation,
                _ => return Err(Garbage),
            }),
            6 => Kind::Probe { number: u64_at(bytes, 16) },
            7 => Kind::ProbeAnswer { number: u64_at(bytes, 16) },
            _ => return Err(Garbage),
        };
        let header = Self {
            kind,
            qp: QpNum(u32_at(bytes, 4)),
            psn: Psn(u32_at(bytes, 8)),
            payload: u32_at(bytes, 12),
            ack_wanted: flags & ACK_WANTED != 0,
        };
        header.check()?;
        // One rule for every reserved bit and unused field.
        if header.encode() == *bytes { Ok(header) } else { Err(Garbage) }
    }

    fn check(&self) -> Result<(), Garbage> {
        let may_carry = matches!(self.kind, Kind::Send { .. } | Kind::ReadResponse { .. });
        let in_range = self.qp.0 < 1 << 24 && self.psn.0 < 1 << 24;
        let fits = self.payload <= if may_carry { PIECE_BYTES_MAX } else { 0 };
        if in_range && fits { Ok(()) } else { Err(Garbage) }
    }
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// Where PSN `a` stands against `b`, on the circle of 2^24.
pub(super) fn psn_order(a: Psn, b: Psn) -> std::cmp::Ordering {
    let ahead = a.0.wrapping_sub(b.0) & 0x00ff_ffff;
    match ahead {
        0 => std::cmp::Ordering::Equal,
        1..0x0080_0000 => std::cmp::Ordering::Greater,
        _ => std::cmp::Ordering::Less,
    }
}

/// The PSN `count` after `psn`.
pub(super) const fn psn_after(psn: Psn, count: u32) -> Psn {
    Psn::new(psn.0.wrapping_add(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    #[test]
    fn every_kind_survives_the_round_trip() {
        let kinds = [
            Kind::Send { first: true, last: false, invalidate: None },
            Kind::Send { first: false, last: true, invalidate: Some(0) },
            Kind::ReadRequest { addr: u64::MAX, key: 7, len: u32::MAX },
            Kind::ReadResponse { offset: 3 << 33, last: true },
            Kind::Ack,
            Kind::Nak(Nak::Rnr(31)),
            Kind::Nak(Nak::InvalidRequest),
            Kind::Nak(Nak::Access),
            Kind::Nak(Nak::Operation),
            Kind::Probe { number: 1 << 40 },
            Kind::ProbeAnswer { number: u64::MAX },
        ];
        for kind in kinds {
            let header = Header::answer(QpNum(0x00ff_ffff), Psn(5), kind);
            assert!(Header::decode(&header.encode()) == Ok(header), "{kind:?}");
        }
    }

    #[test]
    fn payload_is_bounded_and_only_where_it_belongs() {
        let mut header = Header::answer(QpNum(1), Psn(1), Kind::Ack);
        header.payload = 1;
        assert!(Header::decode(&header.encode()).is_err());
        header.kind = Kind::ReadResponse { offset: 0, last: false };
        header.payload = PIECE_BYTES_MAX;
        assert!(Header::decode(&header.encode()).is_ok());
        header.payload += 1;
        assert!(Header::decode(&header.encode()).is_err());
    }

    #[test]
    fn psn_order_wraps() {
        assert_eq!(psn_order(Psn(0), Psn(0x00ff_ffff)), Ordering::Greater);
        assert_eq!(psn_order(Psn(0x00ff_fffe), psn_after(Psn(0x00ff_fffe), 4)), Ordering::Less);
        assert_eq!(psn_order(Psn(9), Psn(9)), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_is_total_and_exact(bytes in any::<[u8; HEADER_BYTES]>(), op in 0u8..9) {
            let mut bytes = bytes;
            bytes[0] = op;
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
