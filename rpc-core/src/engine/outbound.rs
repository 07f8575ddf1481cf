//! What shapes the messages of a connection.

use bytes::Bytes;

use super::capacity::EAGER_OVERHEAD_BYTES;
use crate::codec::{OutSegment, Outbound, OutboundLimits};
use crate::{Metadata, wire};

/// How a message for a peer is laid out: what fits into one SEND beside its metadata, what travels
/// by READ, and how long it may be.
pub(crate) fn limits(
    eager_bytes: u32,
    metadata_bytes: usize,
    message_bytes_max: u64,
) -> OutboundLimits {
    let overhead = EAGER_OVERHEAD_BYTES as usize + metadata_bytes.next_multiple_of(8);
    OutboundLimits {
        eager_space: (eager_bytes as usize).saturating_sub(overhead),
        pieces_max: wire::PIECES_MAX,
        message_bytes_max,
        ..OutboundLimits::default()
    }
}

/// Whether a message has parts that the peer must READ.
pub(super) fn has_pieces(outbound: &Outbound) -> bool {
    outbound.segments.iter().any(|segment| matches!(segment, OutSegment::Piece(_)))
}

/// Metadata as it travels; empty for none.
pub(crate) fn encode_metadata(metadata: &Metadata) -> Bytes {
    if metadata.is_empty() { Bytes::new() } else { wire::metadata::to_bytes(metadata) }
}

/// Metadata that came.
///
/// # Errors
/// It is damaged; the error's text says how.
pub(crate) fn decode_metadata(block: &Bytes) -> Result<Metadata, wire::DecodeError> {
    if block.is_empty() { Ok(Metadata::new()) } else { wire::metadata::decode(block) }
}
