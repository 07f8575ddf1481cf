//! A range of the sender's memory.

use std::fmt;

use super::{DecodeError, Full, Reader, Writer};

/// A range of the sender's memory that the receiver is to READ: part of a message by rendezvous.
///
/// One that was decoded is not empty and does not wrap. It is never printed: whoever knows the
/// address and the R_Key can read the memory.
// docs/wire-format.md section 8
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PayloadDescriptor {
    /// Where it begins in the sender's address space.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u32,
    /// The key of the window over it.
    pub rkey: u32,
    /// The lease that it is part of; the same for all of one message.
    pub lease: u64,
}

impl PayloadDescriptor {
    /// Bytes of a descriptor.
    pub const BYTES: usize = 24;

    /// What every descriptor keeps to.
    pub fn check(&self) -> Result<(), DecodeError> {
        let field = "payload descriptor";
        if self.len == 0 {
            return Err(DecodeError::Invalid { field, rule: "names no bytes" });
        }
        if self.addr.checked_add(u64::from(self.len)).is_none() {
            return Err(DecodeError::Invalid { field, rule: "wraps around the address space" });
        }
        Ok(())
    }

    /// Reads one and checks it.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let field = "payload descriptor";
        let descriptor = Self {
            addr: reader.u64(field)?,
            len: reader.u32(field)?,
            rkey: reader.u32(field)?,
            lease: reader.u64(field)?,
        };
        descriptor.check()?;
        Ok(descriptor)
    }

    /// Writes it.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u64(self.addr)?;
        w.u32(self.len)?;
        w.u32(self.rkey)?;
        w.u64(self.lease)
    }
}

impl fmt::Debug for PayloadDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PayloadDescriptor({} bytes, rest hidden)", self.len)
    }
}
