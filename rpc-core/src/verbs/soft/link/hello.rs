/// Bytes of a link hello.
pub(in crate::verbs::soft) const HELLO_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"softlnk\x01";

/// The first bytes on a TCP link, from the device that dials: magic with a version in its last
/// byte, the dialler's GUID, the GUID it wants to reach, eight zero bytes. Little-endian.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs::soft) struct Hello {
    /// Who dials.
    pub(in crate::verbs::soft) from: u64,
    /// Whom it wants to reach.
    pub(in crate::verbs::soft) to: u64,
}

impl Hello {
    pub(in crate::verbs::soft) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.from.to_le_bytes());
        out[16..24].copy_from_slice(&self.to.to_le_bytes());
        out
    }

    /// Reads a hello; `None` for anything else.
    pub(in crate::verbs::soft) fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let field = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(field)
        };
        let hello = Self { from: field(8), to: field(16) };
        (hello.encode() == *bytes).then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_bytes_are_a_hello() {
        let bytes = Hello { from: 1, to: u64::MAX }.encode();
        assert!(Hello::decode(&bytes) == Some(Hello { from: 1, to: u64::MAX }));
        for at in (0..8).chain(24..32) {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert!(Hello::decode(&bad).is_none(), "byte {at}");
        }
    }
}
