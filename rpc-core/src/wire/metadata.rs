//! [`Metadata`] as a block of bytes.

use bytes::Bytes;

use super::error::at_most;
use super::reader::text;
use super::{DecodeError, Full, Reader, Writer};
use crate::Metadata;

/// Bytes of a metadata block at most.
pub const BLOCK_BYTES_MAX: usize = Metadata::BYTES_MAX;

/// Writes a block, [`Metadata::encoded_len`] bytes long, without padding.
// docs/wire-format.md section 11
pub fn encode(metadata: &Metadata, w: &mut Writer<'_>) -> Result<(), Full> {
    w.all_or_nothing(|w| {
        for (name, value) in metadata.iter() {
            w.len_u16(name.len())?;
            w.len_u16(value.len())?;
            w.bytes(name.as_bytes())?;
            w.bytes(value)?;
        }
        Ok(())
    })
}

/// The block of `metadata`; nothing is allocated for none.
pub fn to_bytes(metadata: &Metadata) -> Bytes {
    let mut block = vec![0; metadata.encoded_len()];
    // It is exactly as long as it says.
    match encode(metadata, &mut Writer::new(&mut block)) {
        Ok(()) => Bytes::from(block),
        Err(Full) => Bytes::new(),
    }
}

/// Reads a block. The values share `block`'s memory.
pub fn decode(block: &Bytes) -> Result<Metadata, DecodeError> {
    check_len(block.len())?;
    let mut metadata = Metadata::new();
    let mut reader = Reader::new(block);
    while !reader.is_empty() {
        let (name, value) = entry(&mut reader)?;
        metadata.push_checked(name, block.slice_ref(value));
    }
    Ok(metadata)
}

/// The rule of a block's length.
pub(super) fn check_len(len: usize) -> Result<(), DecodeError> {
    at_most("metadata length", len as u64, BLOCK_BYTES_MAX as u64)
}

fn entry<'a>(reader: &mut Reader<'a>) -> Result<(&'a str, &'a [u8]), DecodeError> {
    let name_len = usize::from(reader.u16("metadata name length")?);
    let value_len = usize::from(reader.u16("metadata value length")?);
    at_most("metadata name length", name_len as u64, Metadata::NAME_BYTES_MAX as u64)?;
    let name = text("metadata name", reader.take("metadata name", name_len)?)?;
    let legal =
        |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(legal) {
        let rule = "is empty or holds other than lower-case letters, digits, '-', '_', '.'";
        return Err(DecodeError::Invalid { field: "metadata name", rule });
    }
    Ok((name, reader.take("metadata value", value_len)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(parts: &[(&[u8], &[u8])]) -> Bytes {
        let mut block = Vec::new();
        for (name, value) in parts {
            block.extend((name.len() as u16).to_le_bytes());
            block.extend((value.len() as u16).to_le_bytes());
            block.extend(*name);
            block.extend(*value);
        }
        Bytes::from(block)
    }

    proptest! {
        #[test]
        fn metadata_comes_back_as_it_went(
            entries in proptest::collection::vec(
                ("[a-z0-9._-]{1,40}", proptest::collection::vec(any::<u8>(), 0..60)), 0..30)
        ) {
            let mut metadata = Metadata::new();
            for (name, value) in entries {
                metadata.append(&name, value).unwrap();
            }
            let block = to_bytes(&metadata);
            prop_assert_eq!(block.len(), metadata.encoded_len());
            prop_assert_eq!(decode(&block).unwrap(), metadata);
        }

        #[test]
        fn no_block_makes_the_decoder_panic(bytes: Vec<u8>) {
            if let Ok(metadata) = decode(&Bytes::from(bytes.clone())) {
                prop_assert_eq!(to_bytes(&metadata), bytes);
            }
        }
    }

    #[test]
    fn names_that_metadata_cannot_hold_are_refused() {
        for name in [&b""[..], b"Upper", b"sp ace", b"nul\0", "ü".as_bytes()] {
            let found = decode(&block(&[(name, b"v")]));
            assert!(matches!(found, Err(DecodeError::Invalid { .. })), "{name:?}: {found:?}");
        }
        assert!(matches!(decode(&block(&[(&[0xff], b"")])), Err(DecodeError::NotUtf8 { .. })));
        let long = [b'a'; Metadata::NAME_BYTES_MAX + 1];
        assert!(matches!(decode(&block(&[(&long, b"")])), Err(DecodeError::TooLarge { .. })));
    }

    #[test]
    fn a_block_over_its_bound_is_refused_before_it_is_read() {
        let bytes = Bytes::from(vec![0xff; BLOCK_BYTES_MAX + 1]);
        let max = BLOCK_BYTES_MAX as u64;
        let error = DecodeError::TooLarge { field: "metadata length", value: max + 1, max };
        assert_eq!(decode(&bytes), Err(error));
    }
}
