use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rpc_core::Status;
use rpc_core::bytes::Bytes;

use crate::failure::{is_refusal_of_read, sentence};
use crate::files::{self, Stamp};
use crate::limits::REPEATS_MAX;
use crate::proto::{GetRequest, GetResponse};
use crate::transfer::entry::{Entry, Fate};
use crate::transfer::journal::Journal;
use crate::transfer::meter::Meter;
use crate::transfer::parts::Part;
use crate::transfer::{GONE, SILENT, Session, ended, is_gone, part_done};

/// How much of a file is in memory at a time while it is compared.
const COMPARE_BYTES: usize = 256 << 10;

/// Reads the files of these numbers back, many at a time, and compares every byte with the file as it
/// is now; each that was `Loaded` ends as `Verified` or as something worse.
pub(crate) async fn verify(
    session: &Session<'_>,
    entries: &mut [Entry],
    which: &[usize],
    meter: &mut Meter,
    journal: &mut Option<Journal>,
) {
    let loaded = begin(entries, which);
    let mut window = session.window;
    let mut parts = Parts { which: loaded.iter(), now: None };
    let mut buffer = vec![0; COMPARE_BYTES];
    let mut again = VecDeque::new();
    let mut flight = FuturesUnordered::new();
    loop {
        let next = again.front().copied().or_else(|| parts.peek(entries));
        let done = match next {
            Some(next) if window.fits(next.part.len) => {
                if again.pop_front().is_none() {
                    parts.advance();
                }
                window.start(next.part.len);
                let key = next.part.key(&entries[next.entry].name);
                flight.push(get(session, next, key));
                // Polling starts the call now, not after the next answer has been compared.
                flight.next().now_or_never().flatten()
            }
            _ => match flight.next().await {
                Some(done) => Some(done),
                None => break,
            },
        };
        if let Some(Done { mut wanted, took, result }) = done {
            let refused = result.as_ref().is_err_and(is_refusal_of_read);
            window.end(wanted.part.len, ended(&result, refused));
            let entry = &mut entries[wanted.entry];
            match result {
                Ok(answer) => {
                    meter.call(answer.value.len(), took, wanted.repeats);
                    match check(session, entry, wanted.part, &answer, &mut buffer) {
                        Ok(()) => part_done(entry, Fate::Verified, answer.version, journal),
                        Err(fate) => entry.end(fate),
                    }
                }
                Err(_) if refused && wanted.repeats < REPEATS_MAX => {
                    wanted.repeats += 1;
                    again.push_back(wanted);
                }
                Err(status) if is_gone(&status) => {
                    entry.end(Fate::Cut(sentence(&status)));
                    // The other files would fail one by one.
                    parts = Parts { which: [].iter(), now: None };
                    again.clear();
                }
                Err(status) => entry.end(Fate::Failed(sentence(&status))),
            }
        }
    }
    let left = if window.is_shut() { SILENT } else { GONE };
    for index in loaded {
        let entry = &mut entries[index];
        if entry.fate == Fate::Loaded {
            entry.end(Fate::NotSent(left));
        }
        meter.file(entry.fate == Fate::Verified);
    }
}

/// Those of some files that are stored, ready to be compared from their first part on.
fn begin(entries: &mut [Entry], which: &[usize]) -> Vec<usize> {
    let loaded = which.iter().copied().filter(|index| entries[*index].fate == Fate::Loaded);
    let loaded: Vec<usize> = loaded.collect();
    for index in &loaded {
        let entry = &mut entries[*index];
        if let Some(stamp) = entry.stamp {
            entry.begin(stamp);
        }
    }
    loaded
}

/// A part to read back, and how often it was refused for want of memory.
#[derive(Clone, Copy)]
struct Wanted {
    entry: usize,
    part: Part,
    repeats: u32,
}

struct Done {
    wanted: Wanted,
    took: Duration,
    result: Result<GetResponse, Status>,
}

async fn get(session: &Session<'_>, wanted: Wanted, key: Bytes) -> Done {
    let start = Instant::now();
    let result = session.client.get(GetRequest { key }).await.map(|answer| answer.into_inner());
    Done { wanted, took: start.elapsed(), result }
}

/// The parts of some files in turn.
struct Parts<'a> {
    which: std::slice::Iter<'a, usize>,
    /// A file and the number of its next part.
    now: Option<(usize, u64)>,
}

impl Parts<'_> {
    fn peek(&mut self, entries: &[Entry]) -> Option<Wanted> {
        loop {
            let (index, part) = match self.now {
                Some(now) => now,
                None => (*self.which.next()?, 0),
            };
            self.now = Some((index, part));
            match Part::of(entries[index].len, part) {
                Some(part) => return Some(Wanted { entry: index, part, repeats: 0 }),
                None => self.now = None,
            }
        }
    }

    fn advance(&mut self) {
        if let Some((_, part)) = &mut self.now {
            *part += 1;
        }
    }
}

/// Compares an answer with the file; where they differ, decides which of the two is at fault.
fn check(
    session: &Session<'_>,
    entry: &Entry,
    part: Part,
    answer: &GetResponse,
    buffer: &mut [u8],
) -> Result<(), Fate> {
    let value = &answer.value;
    if !answer.found {
        return Err(Fate::Differs("the key is not there".into()));
    }
    let path = session.root.join(OsStr::from_bytes(&entry.name));
    let opened = files::open_regular(&path);
    let at = match &opened {
        _ if value.len() != part.len => None,
        Ok((file, _)) => match difference(file, part.offset, value, buffer) {
            None => return Ok(()),
            at => at.map(|at| part.offset + at as u64),
        },
        Err(_) => Some(part.offset), // gone, or no longer a file
    };
    let sum = entry.sums.get(part.index as usize);
    let as_stored = sum.map(|sum| *sum == session.sums.of(value));
    let stamp = opened.map(|(_, stamp)| stamp);
    Err(at_fault(entry, part, value.len(), at, as_stored, stamp))
}

/// Which of the two is at fault where a value of `came` bytes and a file differ, at a byte of the file or
/// in length. `as_stored` is whether the value is what was stored, if that is known; `now` is what the file
/// is now.
fn at_fault(
    entry: &Entry,
    part: Part,
    came: usize,
    at: Option<u64>,
    as_stored: Option<bool>,
    now: io::Result<Stamp>,
) -> Fate {
    let stored = part.len;
    match (as_stored, now) {
        // It was loaded here, so it is known what was stored.
        (Some(true), _) => Fate::Changed,
        (Some(false), _) => Fate::Differs(match at {
            None => format!("{stored} bytes were stored and {came} came back"),
            Some(at) => format!("at byte {at}, what came back is not what was stored"),
        }),
        // It was loaded by somebody else: all that is known is what the file was when this began.
        (None, Err(error)) => Fate::Unreadable(error.to_string()),
        (None, Ok(stamp)) if Some(stamp) != entry.stamp => Fate::Changed,
        (None, Ok(_)) => Fate::Differs(match at {
            None if part.of_many => {
                format!("part {} of the file has {stored} bytes and {came} are stored", part.index)
            }
            None => format!("the file has {stored} bytes and {came} are stored"),
            Some(at) => format!("at byte {at}, what is stored is not what the file has"),
        }),
    }
}

/// Where a value and a range of a file differ first; a file that ends early or cannot be read differs.
fn difference(file: &File, offset: u64, value: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    for piece in value.chunks(buffer.len()) {
        let same = &mut buffer[..piece.len()];
        if file.read_exact_at(same, offset + at as u64).is_err() {
            return Some(at);
        }
        if same != piece {
            let first = same.iter().zip(piece).position(|(file, value)| file != value);
            return Some(at + first.unwrap_or(0));
        }
        at += piece.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_differs_is_found_across_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut value: Vec<u8> = (0..100).collect();
        std::fs::write(&path, [&[9; 3][..], &value].concat()).unwrap();
        let file = File::open(&path).unwrap();
        let mut buffer = [0; 32];
        assert_eq!(difference(&file, 3, &value, &mut buffer), None);
        value[70] ^= 1;
        assert_eq!(difference(&file, 3, &value, &mut buffer), Some(70));
        value[70] ^= 1;
        value.push(0);
        assert_eq!(difference(&file, 3, &value, &mut buffer), Some(96));
    }

    #[test]
    fn who_did_not_load_a_file_is_told_what_it_has_and_what_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let before = Stamp::at(&path).unwrap();
        let mut entry = Entry::new(b"file".to_vec());
        entry.begin(before);
        let part = Part::of(10, 0).unwrap();
        let fate = |came, at, as_stored, now| at_fault(&entry, part, came, at, as_stored, now);
        let differs = |how: &str| Fate::Differs(how.into());
        let stored = "the file has 10 bytes and 7 are stored";
        assert_eq!(fate(7, None, None, Ok(before)), differs(stored));
        let at = "at byte 3, what is stored is not what the file has";
        assert_eq!(fate(10, Some(3), None, Ok(before)), differs(at));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            fate(10, Some(0), None, Err(denied)),
            Fate::Unreadable("permission denied".into())
        );
        std::fs::write(&path, b"0123456789a").unwrap();
        assert_eq!(fate(10, Some(3), None, Stamp::at(&path)), Fate::Changed);
        let loaded = "10 bytes were stored and 7 came back";
        assert_eq!(fate(7, None, Some(false), Ok(before)), differs(loaded));
        assert_eq!(fate(7, None, Some(true), Ok(before)), Fate::Changed);
    }

    #[test]
    fn all_parts_of_all_files_are_visited_once() {
        let most = crate::limits::VALUE_BYTES_MAX as u64;
        let lens = [0, 2 * most + 1, 5];
        let entries = lens.map(|len| {
            let mut entry = Entry::new(Vec::new());
            entry.len = len;
            entry
        });
        let mut parts = Parts { which: [0, 1, 2].iter(), now: None };
        let mut seen = Vec::new();
        while let Some(wanted) = parts.peek(&entries) {
            seen.push((wanted.entry, wanted.part.index));
            parts.advance();
        }
        assert_eq!(seen, [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]);
    }
}
