//! Tests of the format as a whole: every type comes back as it went, a committed corpus keeps
//! decoding, and bytes that break a rule are refused by name.

mod corpus;
mod hostile;
mod roundtrip;

use bytes::Bytes;

use super::*;

/// The body of a frame, decoded by its type.
#[derive(Debug, PartialEq)]
pub(super) enum Body<'a> {
    Request(RequestFrame<'a>),
    Response(ResponseFrame<'a>),
    Cancel(Cancel),
    Release(Vec<Release>),
    Count(Count),
    Nonce(Nonce),
    Notice(Notice<'a>),
    GoAway(GoAway<'a>),
    Confirm(Confirm),
    Opaque(&'a [u8]),
}

impl<'a> Body<'a> {
    pub(super) fn decode(frame: &Frame<'a>) -> Result<Self, DecodeError> {
        let body = frame.body;
        Ok(match frame.kind {
            FrameType::Request => {
                let request = RequestFrame::decode(body)?;
                metadata::decode(&Bytes::copy_from_slice(request.metadata))?;
                Self::Request(request)
            }
            FrameType::Response => {
                let response = ResponseFrame::decode(body)?;
                metadata::decode(&Bytes::copy_from_slice(response.metadata))?;
                Self::Response(response)
            }
            FrameType::Cancel => Self::Cancel(Cancel::decode(body)?),
            FrameType::Release => Self::Release(Releases::decode(body)?.collect()),
            FrameType::Recall => Self::Count(Count::decode("RECALL", body)?),
            FrameType::Return => Self::Count(Count::decode("RETURN", body)?),
            FrameType::Ping => Self::Nonce(Nonce::decode("PING", body)?),
            FrameType::Pong => Self::Nonce(Nonce::decode("PONG", body)?),
            FrameType::Refused => Self::Notice(Notice::decode("REFUSED", body)?),
            FrameType::Error => Self::Notice(Notice::decode("ERROR", body)?),
            FrameType::GoAway => Self::GoAway(GoAway::decode(body)?),
            FrameType::Confirm => Self::Confirm(Confirm::decode(body)?),
            FrameType::Item
            | FrameType::Credit
            | FrameType::StreamCredit
            | FrameType::Skippable(_) => Self::Opaque(body),
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::Request(request) => request.encode(w),
            Self::Response(response) => response.encode(w),
            Self::Cancel(cancel) => cancel.encode(w),
            Self::Release(list) => Releases::encode(list, w),
            Self::Count(count) => count.encode(w),
            Self::Nonce(nonce) => nonce.encode(w),
            Self::Notice(notice) => notice.encode(w),
            Self::GoAway(goaway) => goaway.encode(w),
            Self::Confirm(confirm) => confirm.encode(w),
            Self::Opaque(bytes) => w.bytes(bytes),
        }
    }
}

pub(super) type Walked<'a> = (SendHeader, Vec<(FrameType, FrameFlags, u64, Body<'a>)>);

/// Decodes a SEND down to the last field, as an engine would.
pub(super) fn walk(send: &[u8]) -> Result<Walked<'_>, DecodeError> {
    let (header, frames) = SendHeader::decode(send)?;
    let mut bodies = Vec::new();
    for frame in frames {
        let frame = frame?;
        bodies.push((frame.kind, frame.flags, frame.call, Body::decode(&frame)?));
    }
    Ok((header, bodies))
}

/// The SEND of what [`walk`] found.
pub(super) fn unwalk((header, frames): &Walked<'_>) -> Vec<u8> {
    let mut buf = vec![0xaa; 65_536];
    let mut send = SendWriter::new(&mut buf).unwrap();
    for (kind, flags, call, body) in frames {
        send.frame(*kind, *flags, *call, |w| body.encode(w)).unwrap();
    }
    let len = send.finish(header).unwrap();
    buf.truncate(len);
    buf
}

/// Makes a cut or stretched SEND consistent again, so that its inside is reached.
pub(super) fn set_total_len(send: &mut [u8]) {
    let len = (send.len() as u32).to_le_bytes();
    if let Some(field) = send.get_mut(8..12) {
        field.copy_from_slice(&len);
    }
}

/// The same for a control message.
pub(super) fn set_control_len(message: &mut [u8]) {
    let len = (message.len() as u32).to_le_bytes();
    if let Some(field) = message.get_mut(12..16) {
        field.copy_from_slice(&len);
    }
}
