use std::hash::{BuildHasher, Hasher, RandomState};

use crate::files::Stamp;
use crate::transfer::parts::Part;

/// A file and what became of it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its path below the folder, any bytes.
    pub(crate) name: Vec<u8>,
    /// Its length when it was loaded.
    pub(crate) len: u64,
    /// What it was when it was loaded, or when comparing it began.
    pub(crate) stamp: Option<Stamp>,
    /// How many of its parts have gone well.
    done: u64,
    /// The newest version among them.
    pub(crate) version: u64,
    /// A hash of each part as it was stored, if it was loaded here.
    pub(crate) sums: Vec<u64>,
    /// How it went.
    pub(crate) fate: Fate,
}

/// How it went with a file. Every file ends as one of the last seven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing has gone wrong yet.
    Waiting,
    /// All its parts are stored.
    Loaded,
    /// All its parts came back, each byte the same.
    Verified,
    /// It changed while it was read, or between loading and reading back.
    Changed,
    /// It could not be read, and why.
    Unreadable(String),
    /// A call failed, and how.
    Failed(String),
    /// A call of it was on its way when the server was lost, and how.
    Cut(String),
    /// It was left when there was no use in going on, and why.
    NotSent(&'static str),
    /// What came back is not what was stored, and where.
    Differs(String),
}

impl Entry {
    /// A file not looked at yet.
    pub(crate) fn new(name: Vec<u8>) -> Self {
        Self {
            name,
            len: 0,
            stamp: None,
            done: 0,
            version: 0,
            sums: Vec::new(),
            fate: Fate::Waiting,
        }
    }

    /// Begins with its first part.
    pub(crate) fn begin(&mut self, stamp: Stamp) {
        self.len = stamp.len();
        self.stamp = Some(stamp);
        self.done = 0;
        self.version = 0;
    }

    /// One of its parts went well, which has this version. True if that was the last one and nothing else
    /// went wrong.
    pub(crate) fn part_done(&mut self, version: u64) -> bool {
        self.done += 1;
        self.version = self.version.max(version);
        self.done == Part::count(self.len) && matches!(self.fate, Fate::Waiting | Fate::Loaded)
    }

    /// Sets its fate, unless a worse one is set: what came first is the cause of the rest.
    pub(crate) fn end(&mut self, fate: Fate) {
        if matches!(self.fate, Fate::Waiting | Fate::Loaded) {
            self.fate = fate;
        }
    }
}

/// Hashes of values, to tell a wrong answer from a file that has changed since.
///
/// What is read back is compared with the file itself, byte by byte. Only where they differ does the
/// hash of what was stored decide which of the two is at fault. So 64 bits and std's hasher, keyed at
/// random, are enough, and no hash crate is needed.
#[derive(Clone, Default)]
pub(crate) struct Sums(RandomState);

impl Sums {
    /// The hash of a value.
    pub(crate) fn of(&self, value: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(value);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_fate_stays() {
        let mut entry = Entry::new(b"a".to_vec());
        entry.end(Fate::Loaded);
        entry.end(Fate::Changed);
        entry.end(Fate::Verified);
        assert_eq!(entry.fate, Fate::Changed);
    }
}
