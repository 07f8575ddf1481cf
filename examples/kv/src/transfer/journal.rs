use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
/// command, which folder, which store. A server in memory that was started again is another store.
pub(crate) struct Journal {
    file: File,
    done: HashMap<Vec<u8>, String>,
    failed: Option<io::Error>,
}

impl Journal {
    /// Opens or makes the journal of a command over a folder and a store.
    pub(crate) fn open(
        path: &Path,
        command: &str,
        root: &Path,
        store: &[u8],
    ) -> Result<Self, Failure> {
        let named = |error| {
            Failure::because(format!("the journal {} cannot be used", path.display()), error)
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(named)?;
        let mut text = Vec::new();
        (&file).take(JOURNAL_BYTES_MAX).read_to_end(&mut text).map_err(named)?;
        let work = format!("kv {command} {}", hex(root.as_os_str().as_bytes()));
        let head = format!("{work} {}", hex(store));
        let mut journal = Self { file, done: HashMap::new(), failed: None };
        let mut lines = text.split_inclusive(|byte| *byte == b'\n').map(intact);
        let kept = match lines.next().flatten() {
            None if text.is_empty() => 0,
            None => return Err(not_a_journal(path)),
            Some(first) if first == head => {
                let read = journal.read(lines);
                line(&head).len() + read
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
            let Some((name, stamp)) = text.split_once(' ') else { break };
            let Some(name) = unhex(name) else { break };
            self.done.insert(name, stamp.to_owned());
            kept += line(text).len();
        }
        kept
    }

    /// Whether a file was done, and is as it was then.
    pub(crate) fn has(&self, name: &[u8], stamp: &Stamp) -> bool {
        self.done.get(name).is_some_and(|then| *then == stamp.to_string())
    }

    /// Notes that a file was done. What fails is told by [`close`](Self::close).
    pub(crate) fn note(&mut self, name: &[u8], stamp: &Stamp) {
        let text = line(&format!("{} {stamp}", hex(name)));
        if self.failed.is_none() {
            self.failed = self.file.write_all(text.as_bytes()).err();
        }
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

    fn open(dir: &Path, store: &[u8]) -> Journal {
        Journal::open(&dir.join("journal"), "load", dir, store).unwrap()
    }

    #[test]
    fn what_was_noted_is_known_until_the_file_or_the_store_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let first = stamp(dir.path(), b"one");
        let mut journal = open(dir.path(), b"store");
        assert!(!journal.has(b"\xff\n", &first));
        journal.note(b"\xff\n", &first);
        journal.note(b"", &first);
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
    fn a_journal_cut_off_anywhere_keeps_what_is_whole_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = stamp(dir.path(), b"one");
        let mut journal = open(dir.path(), b"s");
        journal.note(b"a", &stamp);
        journal.note(b"b", &stamp);
        journal.close().unwrap();
        let path = dir.path().join("journal");
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> = (1..=whole.len()).filter(|end| whole[end - 1] == b'\n').collect();
        for cut in ends[0]..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let mut journal = open(dir.path(), b"s");
            assert_eq!(journal.has(b"a", &stamp), cut >= ends[1], "{cut}");
            assert!(!journal.has(b"b", &stamp));
            journal.note(b"c", &stamp);
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
        let refused = Journal::open(&path, "load", dir.path(), b"s").err().unwrap();
        assert!(refused.to_string().contains("no journal"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        open(dir.path(), b"s").close().unwrap();
        let refused = Journal::open(&path, "verify", dir.path(), b"s").err().unwrap();
        assert!(refused.to_string().contains("another command"), "{refused}");
    }
}
