use std::io::{self, IoSliceMut};

use super::core::Core;
use super::link::Stream;
use super::packet::{HEADER_BYTES, Header, Kind};
use super::table::Id;

/// A payload's rest from here on is read from the link straight into its destination.
const DIRECT_BYTES_MIN: usize = 2 << 10;

/// What such a read takes beside, so that the next header comes with it. What lands there is
/// copied, so it is small.
const SIDE_BYTES: usize = 2 << 10;

/// Where a packet's payload goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// Nowhere: it was refused, or its QP is gone.
    Nowhere,
    /// The receive of the arriving message.
    Recv,
    /// The READ with this number in its send queue.
    Read(u64),
}

/// A packet whose payload is arriving.
#[derive(Clone, Copy)]
pub(super) struct Body {
    pub(super) header: Header,
    pub(super) qp: Id,
    pub(super) target: Target,
    /// Bytes to come.
    pub(super) left: u32,
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The peer closed it.
    Closed,
    /// The system did.
    Failed(io::ErrorKind),
    /// What came is not the protocol.
    Garbage,
}

/// Probes of a link: whether the peer device is being polled at all.
#[derive(Clone, Copy, Default)]
pub(super) struct Probes {
    /// The last one sent.
    pub(super) asked: u64,
    /// The last one the peer answered.
    pub(super) answered: u64,
    /// The peer's that is to be answered.
    pub(super) owed: Option<u64>,
}

/// The reading end of a link: finds packets in the stream and brings payloads to their place.
pub(super) struct Rx {
    header: [u8; HEADER_BYTES],
    have: usize,
    body: Option<Body>,
    pub(super) probes: Probes,
}

impl Rx {
    pub(super) const fn new() -> Self {
        let probes = Probes { asked: 0, answered: 0, owed: None };
        Self { header: [0; HEADER_BYTES], have: 0, body: None, probes }
    }

    /// Reads once. Returns how many bytes came, and whether more may wait.
    pub(super) fn read(
        &mut self,
        stream: &mut Stream,
        core: &mut Core,
        guid: u64,
        stage: &mut [u8],
    ) -> Result<(usize, bool), Ended> {
        let place = self.body.as_mut().and_then(|body| core.place_of(body));
        let place = place.filter(|place| place.len() >= DIRECT_BYTES_MIN);
        let (lent, staged) = match place {
            Some(place) => (place.len(), SIDE_BYTES.min(stage.len())),
            None => (0, stage.len()),
        };
        let side = stage.get_mut(..staged).unwrap_or_default();
        let read = match place {
            Some(place) => place.with_slice_mut(|bytes| {
                stream.read(&mut [IoSliceMut::new(bytes), IoSliceMut::new(side)])
            }),
            None => stream.read(&mut [IoSliceMut::new(side)]),
        };
        let count = match read {
            Ok(0) => return Err(Ended::Closed),
            Ok(count) => count,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok((0, false)),
                io::ErrorKind::Interrupted => return Ok((0, true)),
                kind => return Err(Ended::Failed(kind)),
            },
        };
        let direct = count.min(lent);
        self.moved(core, direct as u32);
        if let Some(rest) = stage.get(..count - direct) {
            self.consume(core, guid, rest)?;
        }
        Ok((count, count == lent + staged))
    }

    /// `count` bytes of the body are in their place.
    fn moved(&mut self, core: &mut Core, count: u32) {
        let Some(body) = &mut self.body else { return };
        if count > 0 {
            core.placed(body, count);
            body.left -= count;
        }
        if body.left == 0 {
            core.finish_packet(body);
            self.body = None;
        }
    }

    fn consume(&mut self, core: &mut Core, guid: u64, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            if let Some(body) = &mut self.body {
                let part = &bytes[..bytes.len().min(body.left as usize)];
                let count = match core.place_of(body) {
                    Some(place) => place.fill_from(part),
                    None => part.len(),
                };
                bytes = &bytes[count..];
                self.moved(core, count as u32);
                continue;
            }
            let step = bytes.len().min(HEADER_BYTES - self.have);
            self.header[self.have..self.have + step].copy_from_slice(&bytes[..step]);
            self.have += step;
            bytes = &bytes[step..];
            if self.have == HEADER_BYTES {
                self.have = 0;
                let header = Header::decode(&self.header).map_err(|_| Ended::Garbage)?;
                match header.kind {
                    Kind::Probe { number } => self.probes.owed = Some(number),
                    // Never believed beyond what was asked.
                    Kind::ProbeAnswer { number } if number <= self.probes.asked => {
                        self.probes.answered = self.probes.answered.max(number);
                    }
                    _ => {
                        self.body = Some(core.begin_packet(guid, header));
                        self.moved(core, 0);
                    }
                }
            }
        }
        Ok(())
    }
}
