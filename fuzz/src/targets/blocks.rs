//! What stands inside of bodies: segments, metadata, status.

use bytes::Bytes;
use rpc_core::wire::{
    DecodeError, PIECES_MAX, PayloadDescriptor, Reader, SEGMENTS_MAX, Segment, Segments,
    StatusBlock, Writer, metadata, status,
};
use rpc_core::{Code, Execution, Metadata};

use super::make::{self, says_what};
use crate::heap;
use crate::recipe::Recipe;

/// A list of segments, told how many there are and how many inline bytes they must sum to.
pub(crate) fn segments(input: &[u8]) {
    let mut r = Recipe::new(input);
    let (count, inline_len) = (usize::from(r.u8()), r.number() as usize);
    check_segments(input.get(2..).unwrap_or_default(), count, inline_len);
    let (list, inline) = make::parts(&mut r);
    let made = Segments::new(&list);
    assert_eq!(made.check(inline.len()), Ok(()));
    let mut bytes = vec![0; made.encoded_len()];
    made.encode(&mut Writer::new(&mut bytes)).expect("segments are as long as they say");
    assert_eq!(check_segments(&bytes, list.len(), inline.len()), Some(list.clone()));
    r.spoil(&mut bytes);
    check_segments(&bytes, list.len(), inline.len());
}

fn check_segments(bytes: &[u8], count: usize, inline_len: usize) -> Option<Vec<Segment>> {
    let mut reader = Reader::new(bytes);
    let decoded =
        heap::nothing("decoding segments", || Segments::decode(&mut reader, count, inline_len));
    let segments = match decoded {
        Ok(segments) => segments,
        Err(error) => {
            says_what(&error);
            hides_keys(bytes, inline_len as u64, &error);
            return None;
        }
    };
    let list: Vec<Segment> = segments.iter().collect();
    assert!(list.len() == count && count <= SEGMENTS_MAX);
    assert_eq!(segments.check(inline_len), Ok(()));
    assert_eq!(segments.encoded_len(), bytes.len() - reader.remaining());
    let pieces: Vec<PayloadDescriptor> = segments.payloads().collect();
    assert!(pieces.len() <= PIECES_MAX);
    for piece in &pieces {
        assert!(piece.len > 0 && piece.addr.checked_add(u64::from(piece.len)).is_some());
        assert_eq!(Some(piece.lease), segments.lease());
        let text = format!("{piece:?} {segments:?}");
        assert!(piece.addr < 1 << 40 || !text.contains(&piece.addr.to_string()), "{text}");
    }
    assert_eq!(segments.payload_bytes(), pieces.iter().map(|piece| u64::from(piece.len)).sum());
    let mut buf = vec![0; segments.encoded_len()];
    segments.encode(&mut Writer::new(&mut buf)).expect("segments are as long as they say");
    let again = Segments::decode(&mut Reader::new(&buf), count, inline_len);
    assert_eq!(again, Ok(segments));
    Some(list)
}

/// No number of a descriptor is in an error's text.
fn hides_keys(bytes: &[u8], inline_len: u64, error: &DecodeError) {
    let text = error.to_string();
    for chunk in bytes.windows(8).step_by(8) {
        let number = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        // Shorter ones may be counts, and how many inline bytes there are is no secret.
        let may = number < 1 << 40 || number == inline_len;
        assert!(may || !text.contains(&number.to_string()), "{text}");
    }
}

/// A block of metadata: it is exactly what its decoded form encodes to.
pub(crate) fn metadata(input: &[u8]) {
    metadata_block(&Bytes::copy_from_slice(input));
    let mut r = Recipe::new(input);
    let mut made = Metadata::new();
    for _ in 0..r.below(12) {
        const LETTERS: &[u8; 39] = b"abcdefghijklmnopqrstuvwxyz0123456789-_.";
        let name: String =
            r.some_bytes(130).iter().map(|b| LETTERS[usize::from(*b) % 39] as char).collect();
        let refused = made.append(&name, r.some_bytes(300).to_vec()).is_err();
        assert!(!refused || name.is_empty() || name.len() > 128 || made.encoded_len() > 3000);
    }
    let block = metadata::to_bytes(&made);
    assert_eq!(block.len(), made.encoded_len());
    assert_eq!(metadata_block(&block), Some(made));
    let mut bytes = block.to_vec();
    r.spoil(&mut bytes);
    metadata_block(&bytes.into());
}

/// What a block of so many bytes may take: a vector that grows by doubling, of entries that are at
/// least five bytes on the wire, and the names.
fn metadata_heap_max(block: usize) -> u64 {
    const ENTRY: usize = size_of::<(Box<str>, Bytes)>();
    // Old and new vector exist together while it grows, and the smallest has four entries.
    (block + 3 * ENTRY * (block / 5 + 4)) as u64
}

pub(crate) fn metadata_block(block: &Bytes) -> Option<Metadata> {
    let heap_max = metadata_heap_max(block.len().min(metadata::BLOCK_BYTES_MAX));
    let decoded = heap::at_most("decoding metadata", heap_max, || metadata::decode(block));
    match decoded {
        Ok(decoded) => {
            assert_eq!(metadata::to_bytes(&decoded), block);
            assert!(decoded.encoded_len() <= Metadata::BYTES_MAX);
            Some(decoded)
        }
        Err(error) => {
            says_what(&error);
            None
        }
    }
}

/// A failed call's status.
pub(crate) fn status(input: &[u8]) {
    check_status(input);
    let mut r = Recipe::new(input);
    let made = StatusBlock {
        code: r.number32(),
        message: r.text(1200),
        details: r.some_bytes(status::DETAILS_BYTES_MAX),
    };
    let mut bytes = vec![0; made.encoded_len()];
    made.encode(&mut Writer::new(&mut bytes)).expect("a status is as long as it says");
    check_status(&bytes);
    let decoded = StatusBlock::decode(&mut Reader::new(&bytes)).expect("it was encoded");
    assert!(made.message.starts_with(decoded.message));
    assert_eq!((decoded.code, decoded.details), (made.code, made.details));
    r.spoil(&mut bytes);
    check_status(&bytes);
}

fn check_status(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let decoded = heap::nothing("decoding a status", || StatusBlock::decode(&mut reader));
    let block = match decoded {
        Ok(block) => block,
        Err(error) => return says_what(&error),
    };
    assert_eq!(block.check(), Ok(()));
    assert!(block.message.len() <= status::MESSAGE_BYTES_MAX);
    assert_eq!(block.encoded_len(), bytes.len() - reader.remaining());
    let mut buf = vec![0; block.encoded_len()];
    block.encode(&mut Writer::new(&mut buf)).expect("a status is as long as it says");
    assert_eq!(StatusBlock::decode(&mut Reader::new(&buf)), Ok(block));
    let seen = block.to_wire_status().into_status(Execution::Executed);
    assert_eq!((seen.message(), seen.details()), (block.message, &block.details.to_vec().into()));
    assert_eq!(seen.code(), Code::from_u32(block.code));
}
