use std::fmt;

use bytes::Bytes;

/// Names and values that travel beside a message.
///
/// Names are ASCII letters (kept in lower case), digits, `-`, `_` and `.`, at most
/// [`NAME_BYTES_MAX`](Self::NAME_BYTES_MAX) long; values are any bytes. A name may have several
/// values. All of it together, as [`encoded_len`](Self::encoded_len) counts it, is at most
/// [`BYTES_MAX`](Self::BYTES_MAX): metadata always travels inside the SEND that begins its call.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    entries: Vec<(Box<str>, Bytes)>,
}

/// A name or value that metadata cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The name is empty, too long, or holds a character other than letters, digits, `-`, `_`, `.`.
    #[error("'{0}' is no metadata name: use 1 to 128 letters, digits, '-', '_' or '.'")]
    Name(String),
    /// Metadata would be larger than fits beside a message.
    #[error("metadata would take {len} bytes, and {max} fit beside a message")]
    TooLarge {
        /// What it would take.
        len: usize,
        /// What fits.
        max: usize,
    },
}

impl Metadata {
    /// Bytes of a name at most.
    pub const NAME_BYTES_MAX: usize = 128;
    /// Bytes of all names and values at most, with [`ENTRY_BYTES`](Self::ENTRY_BYTES) for each: what
    /// leaves half an eager buffer for the message.
    pub const BYTES_MAX: usize = 4096;
    /// What each entry adds to the length of its name and value.
    pub const ENTRY_BYTES: usize = 4;

    /// No metadata.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Adds a value under a name, beside those it has.
    pub fn append(&mut self, name: &str, value: impl Into<Bytes>) -> Result<(), MetadataError> {
        let value = value.into();
        let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > Self::NAME_BYTES_MAX || !name.bytes().all(legal) {
            return Err(MetadataError::Name(name.chars().take(Self::NAME_BYTES_MAX).collect()));
        }
        let len = self.encoded_len() + Self::ENTRY_BYTES + name.len() + value.len();
        if len > Self::BYTES_MAX {
            return Err(MetadataError::TooLarge { len, max: Self::BYTES_MAX });
        }
        self.entries.push((name.to_ascii_lowercase().into_boxed_str(), value));
        Ok(())
    }

    /// Adds what the wire decoder has checked: a legal name in lower case, in a block that is within
    /// [`BYTES_MAX`](Self::BYTES_MAX) as a whole. [`append`](Self::append) would sum all entries
    /// again for each, which a peer could make us pay for.
    pub(crate) fn push_checked(&mut self, name: &str, value: Bytes) {
        self.entries.push((name.into(), value));
    }

    /// Sets the one value of a name.
    pub fn insert(&mut self, name: &str, value: impl Into<Bytes>) -> Result<(), MetadataError> {
        let before = self.entries.clone();
        self.remove(name);
        self.append(name, value).inspect_err(|_| self.entries = before)
    }

    /// Takes every value of a name away; returns how many there were.
    pub fn remove(&mut self, name: &str) -> usize {
        let before = self.entries.len();
        self.entries.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
        before - self.entries.len()
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.entries.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    /// The first value of a name, if it is text.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All names and values, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.entries.iter().map(|(name, value)| (&**name, value))
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes it takes beside a message.
    pub fn encoded_len(&self) -> usize {
        self.entries.iter().map(|(n, v)| Self::ENTRY_BYTES + n.len() + v.len()).sum()
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_may_repeat() {
        let mut metadata = Metadata::new();
        metadata.append("Trace-Id", "a").unwrap();
        metadata.append("trace-id", "b").unwrap();
        assert_eq!(metadata.get_str("TRACE-ID"), Some("a"));
        assert_eq!(metadata.len(), 2);
        metadata.insert("trace-ID", "c").unwrap();
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("trace-id", &Bytes::from("c"))]);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut metadata = Metadata::new();
        metadata.insert("kept", "1").unwrap();
        let before = metadata.clone();
        assert!(matches!(
            metadata.insert("kept", vec![0; 4096]),
            Err(MetadataError::TooLarge { .. })
        ));
        assert!(matches!(metadata.append("bad name", "x"), Err(MetadataError::Name(_))));
        assert!(matches!(metadata.append("", "x"), Err(MetadataError::Name(_))));
        assert_eq!(metadata, before);
    }
}
