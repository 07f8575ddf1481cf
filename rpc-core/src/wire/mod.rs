//! Byte layouts: what two peers of different age agree on.
//!
//! `docs/wire-format.md` is the reference, section by section; this is the code that does it. Two
//! places carry these bytes:
//!
//! - the TCP control connection: [`hello`] (versions, features, limits), [`blob`] (the device's
//!   address) and refusals, each a [`ControlMessage`] behind one 16-byte prefix;
//! - the QP: each SEND is a [`SendHeader`] and then frames, read by [`Frames`] and written by
//!   [`SendWriter`].
//!
//! Everything is little-endian and starts on a multiple of eight bytes. Decoders borrow from what
//! they read, never panic, and allocate nothing on the word of a peer; their errors name the field.
//! Encoders write into memory they are given, and what does not fit is [`Full`] and leaves nothing
//! behind. What a decoder returns has been checked: sums, counts, bounds, text. Whether it makes
//! sense *now* (a call that exists, a lease that is ours, a credit to spend) is `protocol`'s to say.

#![forbid(unsafe_code)]

pub mod blob;
pub mod candidate;
pub mod control;
pub mod descriptor;
mod error;
pub mod frame;
pub mod handshake;
pub mod hello;
pub mod metadata;
mod reader;
pub mod request;
pub mod response;
pub mod segment;
pub mod send;
pub mod status;
mod writer;

#[cfg(test)]
mod tests;

pub use blob::{AddressBlob, DeviceKind, GidType, LinkLayer, SoftLink, WindowType};
pub use candidate::Candidate;
pub use control::{Cancel, CancelReason, Confirm, Count, GoAway, Nonce, Notice};
pub use control::{Release, ReleaseOutcome, Releases};
pub use descriptor::PayloadDescriptor;
pub use error::DecodeError;
pub use frame::{CALL_FROM_ACCEPTING, FRAME_HEADER_BYTES, Frame, FrameFlags, FrameType, Frames};
pub use handshake::{CONTROL_BYTES_MAX, ControlKind, ControlMessage, REFUSED_FOR_DEVICE, Refusal};
pub use hello::{Agreed, Features, Hello, HelloError, Role};
pub use reader::Reader;
pub use request::{RequestFrame, TraceContext};
pub use response::ResponseFrame;
pub use segment::{PIECES_MAX, SEGMENTS_MAX, Segment, Segments};
pub use send::{SEND_HEADER_BYTES, SendFlags, SendHeader, SendWriter};
pub use status::{StatusBlock, WireStatus};
pub use writer::{Full, Writer};

/// The oldest version of the protocol that this code speaks.
pub const VERSION_MIN: u16 = 1;
/// The newest version of the protocol that this code speaks.
pub const VERSION_MAX: u16 = 1;

/// Everything starts on a multiple of this many bytes.
pub const ALIGN: usize = 8;

/// Bytes of a method's full proto name at most: what protobuf's own tools stay far below.
pub const NAME_BYTES_MAX: usize = 255;

/// A SEND that carries one message of any kind and no inline bytes of it is at most this long, so an
/// eager buffer of [`hello::EAGER_BYTES_MIN`] can begin any call and any answer.
pub const HEADS_BYTES_MAX: usize = SEND_HEADER_BYTES
    + FRAME_HEADER_BYTES
    + if request::HEAD_BYTES_MAX > response::HEAD_BYTES_MAX {
        request::HEAD_BYTES_MAX
    } else {
        response::HEAD_BYTES_MAX
    };

const _: () = assert!(HEADS_BYTES_MAX <= hello::EAGER_BYTES_MIN as usize);

/// `len` with the padding that follows it. Saturates, and then fits nowhere.
pub(crate) const fn padded(len: usize) -> usize {
    match len.checked_next_multiple_of(ALIGN) {
        Some(padded) => padded,
        None => usize::MAX,
    }
}
