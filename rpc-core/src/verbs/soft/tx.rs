use std::io::{self, IoSlice};

use super::dma::Span;
use super::link::Stream;
use super::packet::Header;
use super::table::Id;

/// Bytes that wait at most for a link to take them, before QPs have to wait instead. One piece may
/// go beyond.
pub(super) const TX_BYTES_MAX: usize = 256 << 10;

/// Payloads from here on are lent to the link as they lie in registered memory; below, the copy is
/// cheaper than another vector entry.
const LEND_BYTES_MIN: usize = 4 << 10;

/// Memory that an idle link keeps for its next packets.
const KEPT_BYTES: usize = 16 << 10;

#[derive(Default)]
struct Bytes {
    data: Vec<u8>,
    taken: usize,
}

impl Bytes {
    fn rest(&self) -> &[u8] {
        self.data.get(self.taken..).unwrap_or_default()
    }

    fn take(&mut self, count: usize) -> usize {
        let count = count.min(self.data.len() - self.taken);
        self.taken += count;
        if self.taken == self.data.len() {
            self.taken = 0;
            self.data.clear();
            self.data.shrink_to(KEPT_BYTES);
        }
        count
    }
}

/// A piece of registered memory that is lent to the link.
struct Lent {
    span: Span,
    lender: Lender,
}

/// What is on its way into a link: bytes, then at most one piece of registered memory as it lies,
/// then bytes.
#[derive(Default)]
pub(super) struct Tx {
    before: Bytes,
    lent: Option<Lent>,
    after: Bytes,
}

/// Who lends a piece, and under which key a peer reads it.
#[derive(Clone, Copy)]
pub(super) struct Lender {
    pub(super) qp: Id,
    pub(super) key: u32,
}

impl Tx {
    /// Whether another packet may be added.
    pub(super) fn has_room(&self) -> bool {
        self.lent.is_none() && self.before.rest().len() < TX_BYTES_MAX
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.buffered() == 0
    }

    /// Bytes that wait.
    pub(super) fn buffered(&self) -> usize {
        let lent = self.lent.as_ref().map_or(0, |lent| lent.span.len());
        self.before.rest().len() + lent + self.after.rest().len()
    }

    /// Bytes of this device's own memory that wait.
    #[cfg(test)]
    pub(super) fn copied(&self) -> usize {
        self.before.data.capacity() + self.after.data.capacity()
    }

    fn tail(&mut self) -> &mut Vec<u8> {
        if self.lent.is_some() { &mut self.after.data } else { &mut self.before.data }
    }

    pub(super) fn push_header(&mut self, header: &Header) {
        self.tail().extend_from_slice(&header.encode());
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.tail().extend_from_slice(bytes);
    }

    /// Adds a copy of registered memory. A SEND is always copied: the peer's word that it arrived
    /// ends the request, and a peer may give its word before the link took the bytes.
    pub(super) fn push_copy(&mut self, span: Span) {
        span.append_to(self.tail());
    }

    /// Adds what a peer READs: copied if small, lent if large and nothing is lent yet.
    pub(super) fn push_span(&mut self, span: Span, lender: Lender) {
        if self.lent.is_none() && span.len() >= LEND_BYTES_MIN {
            self.lent = Some(Lent { span, lender });
        } else {
            span.append_to(self.tail());
        }
    }

    /// Ends lending of what `gone` says: its bytes are copied while they are still what the peer
    /// was promised, and the memory is its owner's again.
    pub(super) fn settle(&mut self, gone: impl FnOnce(Lender) -> bool) {
        let Some(lent) = &self.lent else { return };
        if gone(lent.lender) {
            lent.span.append_to(&mut self.before.data);
            self.before.data.extend_from_slice(self.after.rest());
            self.after = Bytes::default();
            self.lent = None;
        }
    }

    /// Hands over what the link takes. True: everything.
    pub(super) fn write(&mut self, stream: &mut Stream) -> io::Result<bool> {
        while self.buffered() > 0 {
            let (before, after) = (self.before.rest(), self.after.rest());
            let sent = match &self.lent {
                None => stream.write(&[IoSlice::new(before)]),
                Some(lent) => lent.span.with_slice(|bytes| {
                    stream.write(&[IoSlice::new(before), IoSlice::new(bytes), IoSlice::new(after)])
                }),
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn advance(&mut self, count: usize) {
        let mut left = count - self.before.take(count);
        if let Some(lent) = &mut self.lent {
            let step = lent.span.len().min(left);
            lent.span = lent.span.skip(step);
            left -= step;
            if lent.span.len() == 0 {
                self.lent = None;
            }
        }
        self.after.take(left);
        if self.lent.is_none() && self.before.rest().is_empty() {
            std::mem::swap(&mut self.before, &mut self.after);
        }
    }
}
