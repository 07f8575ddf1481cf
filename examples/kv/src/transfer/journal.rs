use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::files::Stamp;
use crate::text::{hex, unhex};

/// The longest journal that is read: some 300 bytes for each of a million files.
const JOURNAL_BYTES_MAX: u64 = 512 << 20;

/// What was done, file by file, so that the same command goes on where it ended.
///
/// A line is written once the server has acknowledged all of a file, or all of it has been compared.
/// It has the file's stamp, so that a file that has changed since is done again, and a digest, so that
/// a line that was cut off counts for nothing. The first line says for what the journal is: which
/// command, which folder, which store. A server in memory that was started again is another store. Each
/// line also has the version that the file had in the store: a store that has not come so far was put back
/// from an older copy, and is another store too. One that has come as far again is not told from it.
pub(crate) struct Journal {
    file: File,
    done: HashMap<Vec<u8>, String>,
    /// The newest version in it.
    version: u64,
    failed: Option<io::Error>,
}

/// What a journal is told of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreNow<'a> {
    /// Its id.
    pub(crate) id: &'a [u8],
    /// The last version it gave.
    pub(crate) version: u64,
}

impl Journal {
    /// Opens or makes the journal of a command over a folder and a store.
    pub(crate) fn open(
        path: &Path,
        command: &str,
        root: &Path,
        store: StoreNow<'_>,
    ) -> Result<Self, Failure> {
        let named = |error| {
            Failure::because(format!("the journal {} cannot be used", path.display()), error)
        };
        let mut options = OpenOptions::new();
        // Opening a FIFO is not waited for: it is refused below, as are devices without an end.
        options.read(true).write(true).create(true).truncate(false);
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let mut file = options.open(path).map_err(named)?;
        if !file.metadata().map_err(named)?.is_file() {
            return Err(not_a_journal(path));
        }
        let mut text = Vec::new();
        (&file).take(JOURNAL_BYTES_MAX).read_to_end(&mut text).map_err(named)?;
        let work = format!("kv {command} {}", hex(root.as_os_str().as_bytes()));
        let head = format!("{work} {}", hex(store.id));
        let mut journal = Self { file, done: HashMap::new(), version: 0, failed: None };
        let mut lines = text.split_inclusive(|byte| *byte == b'\n').map(intact);
        let kept = match lines.next().flatten() {
            // It was made, and cut off before its first line was whole.
            None if line(&head).as_bytes().starts_with(&text) => 0,
            None => return Err(not_a_journal(path)),
            Some(first) if first == head => {
                let read = journal.read(lines);
                if journal.version > store.version {
                    tracing::warn!(
                        "the store has been put back from a copy older than the journal: it begins anew"
                    );
                    journal.done.clear();
                    0
                } else {
                    line(&head).len() + read
                }
            }
            Some(first) if first.starts_with(&format!("{work} ")) => {
                tracing::warn!("the store is not the one that the journal is of: it begins anew");
                0
            }
            Some(_) => {
                return Err(Failure::new(format!(
                    "{} is the journal of another command or another folder; name another file",
                    path.display(),
                )));
            }
        };
        file = journal.file.try_clone().map_err(named)?;
        file.set_len(kept as u64).map_err(named)?;
        file.seek(SeekFrom::Start(kept as u64)).map_err(named)?;
        if kept == 0 {
            file.write_all(line(&head).as_bytes()).map_err(named)?;
        }
        Ok(journal)
    }

    /// Takes what intact lines tell; how many bytes they have together. What follows a line that is not
    /// intact counts for nothing.
    fn read<'a>(&mut self, lines: impl Iterator<Item = Option<&'a str>>) -> usize {
        let mut kept = 0;
        for text in lines.map_while(|line| line) {
            let Some((name, rest)) = text.split_once(' ') else { break };
            let Some((version, stamp)) = rest.split_once(' ') else { break };
            let (Some(name), Some(version)) = (unhex(name), version_of(version)) else { break };
            self.version = self.version.max(version);
            self.done.insert(name, stamp.to_owned());
            kept += line(text).len();
        }
        kept
    }

    /// Whether a file was done, and is as it was then.
    pub(crate) fn has(&self, name: &[u8], stamp: &Stamp) -> bool {
        self.done.get(name).is_some_and(|then| *then == stamp.to_string())
    }

    /// Notes that a file was done, and with which version. What fails is told by [`close`](Self::close).
    pub(crate) fn note(&mut self, name: &[u8], stamp: &Stamp, version: u64) {
        let text = line(&format!("{} v{version} {stamp}", hex(name)));
        if self.failed.is_none() {
            self.failed = self.file.write_all(text.as_bytes()).err();
        }
    }

    /// Empties it: what it says is not so.
    pub(crate) fn discard(self) -> Result<(), Failure> {
        self.file.set_len(0).map_err(|error| {
            Failure::because("the journal could not be emptied, and must not be used again", error)
        })
    }

    /// Ends it; an error if something could not be noted.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self.failed {
            None => Ok(()),
            Some(error) => Err(Failure::because(
                "the journal could not be written to the end, so the next run does some files again",
                error,
            )),
        }
    }
}

/// A line with its digest and its end.
fn line(text: &str) -> String {
    format!("{} {text}\n", digest(text))
}

/// The version in a line.
fn version_of(text: &str) -> Option<u64> {
    text.strip_prefix('v')?.parse().ok()
}

/// The text of a line, if all of it is there.
fn intact(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, text) = line.split_once(' ')?;
    (sum == digest(text)).then_some(text)
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text)[..8])
}

fn not_a_journal(path: &Path) -> Failure {
    Failure::new(format!("{} is no journal of kv; name another file", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files;

    fn stamp(dir: &Path, text: &[u8]) -> Stamp {
        let path = dir.join("file");
        fs::write(&path, text).unwrap();
        files::open_regular(&path).unwrap().1
    }

    fn at_version(dir: &Path, id: &[u8], version: u64) -> Journal {
        let store = StoreNow { id, version };
        Journal::open(&dir.join("journal"), "load", dir, store).unwrap()
    }

    fn open(dir: &Path, store: &[u8]) -> Journal {
        at_version(dir, store, 1)
    }

    #[test]
    fn what_was_noted_is_known_until_the_file_or_the_store_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let first = stamp(dir.path(), b"one");
        let mut journal = open(dir.path(), b"store");
        assert!(!journal.has(b"\xff\n", &first));
        journal.note(b"\xff\n", &first, 1);
        journal.note(b"", &first, 1);
        journal.close().unwrap();
        let journal = open(dir.path(), b"store");
        assert!(journal.has(b"\xff\n", &first) && journal.has(b"", &first));
        assert!(!journal.has(b"\xff", &first));
        let second = stamp(dir.path(), b"three");
        assert!(!journal.has(b"", &second));
        assert!(!open(dir.path(), b"other").has(b"", &first));
        assert!(!open(dir.path(), b"store").has(b"", &first));
    }

    #[test]
    fn a_store_put_back_from_an_older_copy_is_another_store() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = stamp(dir.path(), b"one");
        let mut journal = at_version(dir.path(), b"s", 0);
        journal.note(b"a", &stamp, 8);
        journal.note(b"b", &stamp, 7);
        journal.close().unwrap();
        assert!(at_version(dir.path(), b"s", 8).has(b"b", &stamp));
        let older = at_version(dir.path(), b"s", 7);
        assert!(!older.has(b"a", &stamp) && !older.has(b"b", &stamp));
        drop(older);
        // It has begun anew, and its lines count from there on.
        assert!(!at_version(dir.path(), b"s", 9).has(b"b", &stamp));
    }

    #[test]
    fn a_journal_cut_off_anywhere_keeps_what_is_whole_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = stamp(dir.path(), b"one");
        let mut journal = open(dir.path(), b"s");
        journal.note(b"a", &stamp, 1);
        journal.note(b"b", &stamp, 1);
        journal.close().unwrap();
        let path = dir.path().join("journal");
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> = (1..=whole.len()).filter(|end| whole[end - 1] == b'\n').collect();
        for cut in 0..ends[0] {
            fs::write(&path, &whole[..cut]).unwrap();
            let journal = open(dir.path(), b"s");
            assert!(!journal.has(b"a", &stamp), "{cut}");
        }
        for cut in ends[0]..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let mut journal = open(dir.path(), b"s");
            assert_eq!(journal.has(b"a", &stamp), cut >= ends[1], "{cut}");
            assert!(!journal.has(b"b", &stamp));
            journal.note(b"c", &stamp, 1);
            journal.close().unwrap();
            let journal = open(dir.path(), b"s");
            assert!(journal.has(b"c", &stamp), "{cut}");
            assert_eq!(journal.has(b"a", &stamp), cut >= ends[1], "{cut}");
        }
    }

    #[test]
    fn a_file_that_is_no_journal_or_of_other_work_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        fs::write(&path, b"precious").unwrap();
        let store = StoreNow { id: b"s", version: 1 };
        let refused = Journal::open(&path, "load", dir.path(), store).err().unwrap();
        assert!(refused.to_string().contains("no journal"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        for endless in ["/dev/zero", "/dev/full", "/dev/null"] {
            let refused = Journal::open(Path::new(endless), "load", dir.path(), store);
            assert!(refused.err().unwrap().to_string().contains("no journal"), "{endless}");
        }
        fs::remove_file(&path).unwrap();
        open(dir.path(), b"s").close().unwrap();
        let refused = Journal::open(&path, "verify", dir.path(), store).err().unwrap();
        assert!(refused.to_string().contains("another command"), "{refused}");
    }
}
