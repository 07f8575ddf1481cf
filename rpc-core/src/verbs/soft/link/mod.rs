//! Links between devices: byte streams in both directions that never block.

mod hello;
mod mem;
mod tcp;

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};

pub(super) use hello::{HELLO_BYTES, Hello};
pub(super) use mem::MemEnd;
pub(super) use tcp::{HalfOpen, TcpEnd, connect, listen};

use super::packet::{Header, Kind};
use super::rx::Rx;
use super::table::Id;
use super::tx::Tx;

/// One end of a link, of whatever kind.
pub(super) enum Stream {
    Mem(MemEnd),
    Tcp(TcpEnd),
}

impl Stream {
    /// Takes bytes from `bufs` in order; WouldBlock when there is no room.
    pub(super) fn write(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Mem(end) => end.write(bufs),
            Self::Tcp(end) => end.write(bufs),
        }
    }

    /// Fills `bufs` in order; WouldBlock when there is nothing, 0 when the peer is gone.
    pub(super) fn read(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Mem(end) => end.read(bufs),
            Self::Tcp(end) => end.read(bufs),
        }
    }
}

/// A link of a device.
pub(super) struct Link {
    /// The device at the other end.
    pub(super) guid: u64,
    pub(super) stream: Stream,
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    /// QPs with something to send, in turn.
    pub(super) active: VecDeque<Id>,
    /// QPs that owe an acknowledgement.
    pub(super) acks: Vec<Id>,
    /// It is in the device's list of links to look after.
    pub(super) dirty: bool,
    /// A probe must go out with what is sent next.
    pub(super) probe: bool,
    /// The last write was cut short: wait until there is room.
    pub(super) blocked: bool,
    /// Bytes that went in and out so far.
    pub(super) moved: u64,
}

impl Link {
    pub(super) fn new(guid: u64, stream: Stream) -> Self {
        Self {
            guid,
            stream,
            rx: Rx::new(),
            tx: Tx::default(),
            active: VecDeque::new(),
            acks: Vec::new(),
            moved: 0,
            dirty: false,
            probe: false,
            blocked: false,
        }
    }

    /// Adds the probe that is wanted, and the answer that is owed.
    pub(super) fn push_probes(&mut self) {
        if std::mem::take(&mut self.probe) {
            self.rx.probes.asked += 1;
            let number = self.rx.probes.asked;
            self.tx.push_header(&Header::of_link(Kind::Probe { number }));
        }
        if let Some(number) = self.rx.probes.owed.take() {
            self.tx.push_header(&Header::of_link(Kind::ProbeAnswer { number }));
        }
    }
}
