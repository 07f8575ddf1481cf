//! A connection, and a peer made by hand that may say anything.

use bytes::Bytes;
use proptest::sample::Index;

use super::super::*;
use crate::Time;
use crate::wire::{
    Cancel, CancelReason as WireCancel, Confirm, FrameFlags, FrameType, Full, Nonce, Notice,
    PayloadDescriptor, Release, ReleaseOutcome, Releases, RequestFrame, ResponseFrame, Segment,
    Segments, SendHeader, SendWriter, Writer,
};

pub(super) const NOW: Time = Time::from_nanos(1_000_000);

/// A frame to be sent.
pub(super) struct Out {
    pub(super) kind: FrameType,
    pub(super) call: u64,
    pub(super) body: Vec<u8>,
}

/// A connection and a peer made by hand.
pub(super) struct Raw {
    pub(super) connection: Connection,
    /// The connection's.
    pub(super) role: Role,
    /// What time it is.
    pub(super) now: Time,
    /// The header of the peer's next SEND; its sequence is counted on by itself.
    pub(super) header: SendHeader,
    /// Frames that the connection sent: type, call, body.
    pub(super) got: Vec<(FrameType, u64, Vec<u8>)>,
}

pub(super) fn out(
    kind: FrameType,
    call: u64,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
) -> Out {
    let mut body = vec![0; 9000];
    let mut writer = Writer::new(&mut body);
    write(&mut writer).unwrap();
    let len = writer.len();
    body.truncate(len);
    Out { kind, call, body }
}

pub(super) fn request(call: u64, method: u32, name: Option<&str>) -> Out {
    let frame = RequestFrame { method, name, inline: b"hello", ..RequestFrame::default() };
    out(FrameType::Request, call, |w| frame.encode(w))
}

pub(super) fn large(kind: FrameType, call: u64, lease: u64) -> Out {
    let piece = PayloadDescriptor { addr: 1 << 20, len: 5000, rkey: 3, lease };
    let list = [Segment::Payload(piece)];
    let segments = Segments::new(&list);
    out(kind, call, |w| match kind {
        FrameType::Request => {
            RequestFrame { method: 0, name: Some("a/b"), segments, ..RequestFrame::default() }
                .encode(w)
        }
        _ => ResponseFrame { segments, ..ResponseFrame::default() }.encode(w),
    })
}

pub(super) fn release(lease: u64) -> Out {
    let list = [Release { lease, outcome: ReleaseOutcome::Read }];
    out(FrameType::Release, 0, |w| Releases::encode(&list, w))
}

pub(super) fn cancel(call: u64) -> Out {
    let body = Cancel { reason: WireCancel::Dropped };
    out(FrameType::Cancel, call, |w| body.encode(w))
}

pub(super) fn notice(kind: FrameType, call: u64) -> Out {
    out(kind, call, |w| Notice { code: 7, text: "why" }.encode(w))
}

pub(super) fn ping(nonce: u64) -> Out {
    out(FrameType::Ping, 0, |w| Nonce { nonce }.encode(w))
}

pub(super) fn confirm(mac: [u8; 32]) -> Out {
    out(FrameType::Confirm, 0, |w| Confirm { mac, padding: 64 }.encode(w))
}

impl Raw {
    /// Not confirmed yet.
    pub(super) fn new(role: Role) -> Self {
        Self::pinging(role, crate::Pings::off())
    }

    fn pinging(role: Role, pings: crate::Pings) -> Self {
        let config = ConnectionConfig {
            pings,
            role,
            epoch: 5,
            confirm_own: [1; 32],
            confirm_peer: [2; 32],
            calls_in_max: 8,
            ..ConnectionConfig::default()
        };
        let mut connection = Connection::new(NOW, config, 99);
        connection.on_receives_posted(2);
        let header = SendHeader { epoch: 5, limit: 1, ..SendHeader::default() };
        Self { connection, role, now: NOW, header, got: Vec::new() }
    }

    /// Confirmed, with credits enough both ways.
    pub(super) fn confirmed(role: Role) -> Self {
        Self::confirmed_with(role, crate::Pings::off())
    }

    /// The same, with PINGs.
    pub(super) fn confirmed_with(role: Role, pings: crate::Pings) -> Self {
        let mut raw = Self::pinging(role, pings);
        raw.connection.on_receives_posted(1000);
        raw.header.limit = 10_000;
        raw.drain();
        raw.send(&[confirm([2; 32])]).unwrap();
        raw.drain();
        assert!(matches!(raw.connection.poll_event(), Some(Event::Confirmed)));
        assert!(raw.got.drain(..).any(|(kind, ..)| kind == FrameType::Confirm));
        raw
    }

    pub(super) fn send(&mut self, frames: &[Out]) -> Result<(), Violation> {
        self.send_spoilt(frames, None)
    }

    /// Sends, with one bit of one byte turned over.
    pub(super) fn send_spoilt(
        &mut self,
        frames: &[Out],
        spoil: Option<(Index, u8)>,
    ) -> Result<(), Violation> {
        self.header.sequence += 1;
        let mut buf = vec![0; 9216];
        let mut writer = SendWriter::new(&mut buf).unwrap();
        for frame in frames {
            let write = |w: &mut Writer<'_>| w.bytes(&frame.body);
            writer.frame(frame.kind, FrameFlags::NONE, frame.call, write).unwrap();
        }
        let len = writer.finish(&self.header).unwrap();
        if let Some((at, bit)) = spoil {
            buf[at.index(len)] ^= 1 << bit;
        }
        self.connection.on_message(self.now, &buf[..len])?;
        self.connection.on_receives_posted(1);
        Ok(())
    }

    /// Takes what the connection sends; it is told with the peer's next SEND.
    pub(super) fn drain(&mut self) {
        let mut buf = vec![0; 9216];
        while let Some(sent) = self.connection.poll_transmit(self.now, &mut buf, 16) {
            let (header, frames) = SendHeader::decode(&buf[..sent.len]).unwrap();
            self.header.received = header.sequence;
            for frame in frames {
                let frame = frame.unwrap();
                self.got.push((frame.kind, frame.call, frame.body.to_vec()));
            }
        }
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.connection.poll_event()).collect()
    }

    pub(super) fn kinds(&mut self) -> Vec<FrameType> {
        self.drain();
        self.got.drain(..).map(|(kind, ..)| kind).collect()
    }

    /// Begins a call of the connection.
    #[expect(clippy::result_large_err, reason = "as the connection gives it")]
    pub(super) fn begin(&mut self, body: OutBody) -> Result<CallId, (OutCall, CallRefused)> {
        let call =
            OutCall { method: "a/b", deadline: None, metadata: Bytes::new(), priority: 0, body };
        self.connection.start_call(self.now, 42, call)
    }

    /// Begins a call of the connection and takes its REQUEST.
    pub(super) fn posted(&mut self, body: OutBody) -> CallId {
        let id = self.begin(body).unwrap();
        self.drain();
        assert_eq!(self.got.pop().unwrap().0, FrameType::Request);
        id
    }

    /// A message of the connection under a lease.
    pub(super) fn leased(&mut self, expires: Time) -> Option<OutBody> {
        let lease = self.connection.reserve_lease(self.now, 1, 100, expires).ok()?;
        let piece = PayloadDescriptor { addr: 1, len: 100, rkey: 1, lease: lease.as_u64() };
        let segments = vec![Segment::Payload(piece)];
        Some(OutBody { inline: Bytes::new(), segments, lease: Some(lease) })
    }
}
