//! Messages to bytes and back, with stock prost and without copying large fields.
//!
//! Encoding gives a [`Rope`]: small pieces in one run of bytes, large `Bytes` fields by reference.
//! [`Outbound`] is a rope made ready to travel: what stays in the frame, and pieces that all lie in
//! payload memory. Decoding reads over [`Segments`], which hand a large field out as the very buffer
//! it arrived in.
//!
//! ```text
//! message ──encode──> rope ──place──> inline bytes + pieces ═══wire═══> segments ──decode──> message
//! ```

mod error;
mod outbound;
mod rope;
mod segments;
mod yields;

#[cfg(test)]
mod tests;

pub use error::CodecError;
pub use outbound::{Encoded, OutSegment, Outbound, OutboundLimits};
pub use prost::DecodeError;
pub use rope::{Rope, RopeSegment};
pub use segments::{InSegment, SLICE_MIN, Segments, decode, decode_slice};
