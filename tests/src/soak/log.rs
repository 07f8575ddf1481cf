use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Which calls servers have carried out: a file that outlives them.
///
/// An entry is written, by one call to the system, before its call is answered; it is in the file however its
/// writer ends.
#[derive(Debug)]
pub(super) struct Log(File);

/// Bytes of an entry: seed and index.
const ENTRY: usize = 16;

impl Log {
    /// Opens it to write at its end.
    pub(super) fn append(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// A call is being carried out.
    pub(super) fn note(&self, seed: u64, index: u64) -> io::Result<()> {
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&seed.to_le_bytes());
        entry[8..].copy_from_slice(&index.to_le_bytes());
        (&self.0).write_all(&entry)
    }

    /// All that is in it.
    ///
    /// # Errors
    /// If it cannot be read, or a call was carried out twice.
    pub(super) fn read(path: &Path) -> Result<HashSet<(u64, u64)>, String> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut seen = HashSet::new();
        for entry in bytes.chunks_exact(ENTRY) {
            let number =
                |at: usize| entry[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if !seen.insert((number(0), number(8))) {
                return Err(format!(
                    "call {} of seed {} was carried out twice",
                    number(8),
                    number(0)
                ));
            }
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_carried_out_twice_is_found() {
        let path = std::env::temp_dir().join(format!("soak-log-{}", std::process::id()));
        let log = Log::append(&path).expect("a file");
        log.note(1, 2).expect("written");
        log.note(2, 2).expect("written");
        assert_eq!(Log::read(&path), Ok(HashSet::from([(1, 2), (2, 2)])));
        log.note(1, 2).expect("written");
        assert!(Log::read(&path).expect_err("twice").contains("call 2 of seed 1"));
        fs::remove_file(path).expect("removed");
    }
}
