//! The bodies of frames.

use std::time::Duration;

use bytes::Bytes;
use rpc_core::wire::{
    Cancel, CancelReason, Confirm, Count, DecodeError, FrameType, Full, GoAway, Nonce, Notice,
    Release, ReleaseOutcome, Releases, RequestFrame, ResponseFrame, Segments, StatusBlock,
    TraceContext, Writer, control, metadata, request, response,
};

use super::make::{self, says_what};
use crate::heap;
use crate::recipe::Recipe;

/// A body, decoded by its frame's type.
#[derive(Debug, PartialEq)]
pub(crate) enum Body<'a> {
    Request(RequestFrame<'a>),
    Response(ResponseFrame<'a>),
    Cancel(Cancel),
    Releases(&'a [u8], usize),
    Count(Count),
    Nonce(Nonce),
    Notice(Notice<'a>),
    GoAway(GoAway<'a>),
    Confirm(Confirm),
    Opaque(&'a [u8]),
}

impl<'a> Body<'a> {
    fn decode(kind: FrameType, body: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            FrameType::Request => Self::Request(RequestFrame::decode(body)?),
            FrameType::Response => Self::Response(ResponseFrame::decode(body)?),
            FrameType::Cancel => Self::Cancel(Cancel::decode(body)?),
            FrameType::Release => Self::Releases(body, Releases::decode(body)?.count()),
            FrameType::Recall => Self::Count(Count::decode("RECALL", body)?),
            FrameType::Return => Self::Count(Count::decode("RETURN", body)?),
            FrameType::Ping => Self::Nonce(Nonce::decode("PING", body)?),
            FrameType::Pong => Self::Nonce(Nonce::decode("PONG", body)?),
            FrameType::Refused => Self::Notice(Notice::decode("REFUSED", body)?),
            FrameType::Error => Self::Notice(Notice::decode("ERROR", body)?),
            FrameType::GoAway => Self::GoAway(GoAway::decode(body)?),
            FrameType::Confirm => Self::Confirm(Confirm::decode(body)?),
            _ => Self::Opaque(body),
        })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::Request(request) => request.encode(w),
            Self::Response(response) => response.encode(w),
            Self::Cancel(cancel) => cancel.encode(w),
            Self::Releases(body, _) => {
                let list: Vec<Release> = Releases::decode(body).map_err(|_| Full)?.collect();
                Releases::encode(&list, w)
            }
            Self::Count(count) => count.encode(w),
            Self::Nonce(nonce) => nonce.encode(w),
            Self::Notice(notice) => notice.encode(w),
            Self::GoAway(goaway) => goaway.encode(w),
            Self::Confirm(confirm) => confirm.encode(w),
            Self::Opaque(bytes) => w.bytes(bytes),
        }
    }
}

pub(crate) fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let kind = FrameType::KNOWN[usize::from(*first) % FrameType::KNOWN.len()];
    check(kind, rest);
    let mut r = Recipe::new(rest);
    if let Some(mut bytes) = make(&mut r, kind) {
        assert!(check(kind, &bytes).is_some(), "what was encoded is refused");
        r.spoil(&mut bytes);
        check(kind, &bytes);
    }
}

/// Decodes a body without allocating, encodes what came out, and decodes that to the same.
pub(crate) fn check(kind: FrameType, bytes: &[u8]) -> Option<Body<'_>> {
    let body = match heap::nothing("decoding a body", || Body::decode(kind, bytes)) {
        Ok(body) => body,
        Err(error) => {
            says_what(&error);
            return None;
        }
    };
    let mut buf = vec![0; bytes.len()];
    let mut w = Writer::new(&mut buf);
    body.encode(&mut w).expect("what was decoded can be encoded, and is no longer then");
    let len = w.len();
    let again = Body::decode(kind, &buf[..len]).expect("what was encoded can be decoded");
    match (&body, &again) {
        // The canonical form, entry by entry.
        (Body::Releases(before, count), Body::Releases(after, again)) => {
            assert_eq!(count, again);
            let all = |body| Releases::decode(body).expect("decoded before").collect::<Vec<_>>();
            assert_eq!(all(before), all(after));
            assert!((1..=control::RELEASES_MAX).contains(count));
        }
        _ => assert_eq!(again, body),
    }
    bounds(&body, len);
    Some(body)
}

/// What decoded bodies keep to, and what can be said of them.
fn bounds(body: &Body<'_>, len: usize) {
    match body {
        Body::Request(request) => {
            assert_eq!(request.check(), Ok(()));
            assert_eq!(request.encoded_len(), len);
            assert!(len - request.inline.len() <= request::HEAD_BYTES_MAX);
            assert!(request.name.is_none_or(|name| !name.is_empty()));
            // Not without allocating, but for no more than its own size.
            super::blocks::metadata_block(&Bytes::copy_from_slice(request.metadata));
        }
        Body::Response(response) => {
            assert_eq!(response.check(), Ok(()));
            assert_eq!(response.encoded_len(), len);
            assert!(len - response.inline.len() <= response::HEAD_BYTES_MAX);
            super::blocks::metadata_block(&Bytes::copy_from_slice(response.metadata));
        }
        Body::Notice(notice) | Body::GoAway(GoAway { notice, .. }) => {
            assert!(notice.text.len() <= control::TEXT_BYTES_MAX);
        }
        Body::Confirm(confirm) => assert!(confirm.padding <= control::CONFIRM_PADDING_MAX),
        _ => {}
    }
    assert!(!format!("{body:?}").is_empty());
}

/// The body of a frame of this type from a recipe; `None` for types without a layout.
pub(crate) fn make(r: &mut Recipe<'_>, kind: FrameType) -> Option<Vec<u8>> {
    Some(match kind {
        FrameType::Request => make_request(r),
        FrameType::Response => make_response(r),
        FrameType::Cancel => {
            let reason = match r.below(3) {
                0 => CancelReason::Dropped,
                1 => CancelReason::Deadline,
                _ => CancelReason::Other(r.number32().max(3)),
            };
            encoded(|w| Cancel { reason }.encode(w))
        }
        FrameType::Release => {
            let outcomes = [ReleaseOutcome::Read, ReleaseOutcome::Skipped, ReleaseOutcome::Failed];
            let most = if r.one_in(8) { control::RELEASES_MAX } else { 4 };
            let count = 1 + r.below(most);
            let list: Vec<Release> = (0..count)
                .map(|_| Release { lease: r.number(), outcome: outcomes[r.below(3)] })
                .collect();
            encoded(|w| Releases::encode(&list, w))
        }
        FrameType::Recall | FrameType::Return => {
            encoded(|w| Count { count: r.number32() }.encode(w))
        }
        FrameType::Ping | FrameType::Pong => encoded(|w| Nonce { nonce: r.number() }.encode(w)),
        FrameType::Refused | FrameType::Error => {
            encoded(|w| Notice { code: r.number32(), text: r.text(300) }.encode(w))
        }
        FrameType::GoAway => {
            let notice = Notice { code: r.number32(), text: r.text(300) };
            encoded(|w| GoAway { last_id: r.number(), notice }.encode(w))
        }
        FrameType::Confirm => {
            let padding = r.number32().min(control::CONFIRM_PADDING_MAX);
            encoded(|w| Confirm { mac: r.array(), padding }.encode(w))
        }
        _ => return None,
    })
}

fn make_request(r: &mut Recipe<'_>) -> Vec<u8> {
    let (segments, inline) = make::parts(r);
    let name = r.text(255);
    let request = RequestFrame {
        method: r.number32(),
        name: (!name.is_empty()).then_some(name),
        timeout: r.flag().then(|| Duration::from_nanos(r.number().max(1))),
        priority: r.u8(),
        trace: r.flag().then(|| TraceContext {
            trace_id: r.array(),
            span_id: r.array(),
            flags: r.u8(),
        }),
        token: r.flag().then(|| u128::from(r.number())),
        metadata: r.some_bytes(metadata::BLOCK_BYTES_MAX),
        segments: Segments::new(&segments),
        inline,
    };
    assert_eq!(request.check(), Ok(()));
    encoded(|w| request.encode(w))
}

fn make_response(r: &mut Recipe<'_>) -> Vec<u8> {
    let (segments, inline) = make::parts(r);
    let status = r.flag().then(|| StatusBlock {
        code: r.number32(),
        message: r.text(1024),
        details: r.some_bytes(2048),
    });
    let response = ResponseFrame {
        status,
        metadata: r.some_bytes(metadata::BLOCK_BYTES_MAX),
        segments: Segments::new(&segments),
        inline,
    };
    assert_eq!(response.check(), Ok(()));
    encoded(|w| response.encode(w))
}

fn encoded(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
    let mut buf = vec![0xaa; 16 << 10];
    let mut w = Writer::new(&mut buf);
    write(&mut w).expect("a body within its bounds fits");
    let len = w.len();
    buf.truncate(len);
    buf
}
