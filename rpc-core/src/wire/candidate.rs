//! Ways to a server: what it offers in its hello for the queue pair.

use super::error::{at_least, at_most};
use super::{DecodeError, DeviceKind, Full, GidType, LinkLayer, Reader, Writer};

/// Candidates of a hello at most: a host has a handful of devices.
pub const CANDIDATES_MAX: usize = 8;

/// Bytes of one, a multiple of eight.
pub(super) const CANDIDATE_BYTES: usize = 24;

/// One device that a server can make a queue pair on.
// docs/wire-format.md section 3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What the client's blob calls it, from 1.
    pub number: u8,
    /// What the device is.
    pub kind: DeviceKind,
    /// What lies under its port.
    pub link_layer: LinkLayer,
    /// What its GID is.
    pub gid_type: GidType,
    /// Its GID; zeros if there is none.
    pub gid: [u8; 16],
}

impl Candidate {
    /// A server's software device.
    pub const fn soft(number: u8) -> Self {
        Self {
            number,
            kind: DeviceKind::Soft,
            link_layer: LinkLayer::Unspecified,
            gid_type: GidType::None,
            gid: [0; 16],
        }
    }

    /// Reads a hello's candidates, which the server has put in the order that it prefers. Those of kinds
    /// that this version does not know are left out.
    pub(super) fn decode_all(value: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut reader = Reader::new(value);
        let mut candidates = Vec::new();
        let mut count = 0;
        while !reader.is_empty() {
            count += 1;
            at_most("hello candidates", count, CANDIDATES_MAX as u64)?;
            candidates.extend(Self::decode(&mut reader)?);
        }
        Ok(candidates)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        let number = reader.u8("candidate number")?;
        at_least("candidate number", u64::from(number), 1)?;
        let kind = reader.u8("candidate device kind")?;
        let link_layer = reader.u8("candidate link layer")?;
        let gid_type = reader.u8("candidate GID type")?;
        reader.reserved::<4>("candidate")?;
        let gid = reader.array("candidate GID")?;
        let known = || {
            Some(Self {
                number,
                kind: DeviceKind::from_u8("", kind).ok()?,
                link_layer: LinkLayer::from_u8("", link_layer).ok()?,
                gid_type: GidType::from_u8("", gid_type).ok()?,
                gid,
            })
        };
        Ok(known())
    }

    pub(super) fn encode_all(candidates: &[Self], w: &mut Writer<'_>) -> Result<(), Full> {
        for candidate in candidates {
            w.u8(candidate.number)?;
            w.u8(candidate.kind.to_u8())?;
            w.u8(candidate.link_layer.to_u8())?;
            w.u8(candidate.gid_type.to_u8())?;
            w.zeros(4)?;
            w.bytes(&candidate.gid)?;
        }
        Ok(())
    }
}
