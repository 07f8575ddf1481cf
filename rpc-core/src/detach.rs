use bytes::Bytes;

/// A copy of `bytes` in heap memory of exactly their length.
///
/// Large `bytes` fields of received messages lie in payload memory, and keep it in use until their
/// last clone is dropped. What is kept for long is copied out, so that the budget stays with messages
/// on their way. The copy is made in one go: some 100 µs for each MiB, in which a core does nothing
/// else; copy longer values in slices, with other work between.
#[must_use = "the copy is what no longer holds payload memory"]
pub fn detach(bytes: Bytes) -> Bytes {
    Bytes::copy_from_slice(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_copy_shares_no_memory_with_its_original() {
        let original = Bytes::from(vec![7; 100]);
        let copy = detach(original.slice(10..20));
        assert_eq!(copy, original.slice(10..20));
        assert!(!original.as_ptr_range().contains(&copy.as_ptr()));
    }
}
