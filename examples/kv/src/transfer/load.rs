use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rpc_core::Status;
use rpc_core::bytes::Bytes;

use crate::failure::{is_refusal, sentence};
use crate::files::{self, ReadError, Stamp};
use crate::limits::REPEATS_MAX;
use crate::proto::PutRequest;
use crate::transfer::entry::{Entry, Fate};
use crate::transfer::journal::Journal;
use crate::transfer::meter::Meter;
use crate::transfer::parts::Part;
use crate::transfer::window::Window;
use crate::transfer::{GONE, SILENT, Session, ended, is_gone, part_done};

/// Stores the files of these numbers, many at a time; each ends as `Loaded` or as something worse.
pub(crate) async fn load(
    session: &Session<'_>,
    entries: &mut [Entry],
    which: &[usize],
    meter: &mut Meter,
    journal: &mut Option<Journal>,
) {
    let mut window = session.window;
    let mut reader = Reader { which: which.iter(), open: None };
    let mut again = VecDeque::new();
    let mut flight = FuturesUnordered::new();
    loop {
        let step = match again.front().map(Value::len) {
            Some(len) if !window.fits(len) => Step::NoRoom,
            Some(_) => again.pop_front().map_or(Step::End, Step::Value),
            None => reader.next(session, entries, &window),
        };
        let more = match step {
            Step::Value(value) => {
                window.start(value.len());
                flight.push(put(session, value));
                // Polling starts the call now, not after the next file has been read.
                flight.next().now_or_never().flatten()
            }
            Step::NoMemory(status) if window.is_empty() => {
                reader.give_up(entries, &status);
                continue;
            }
            // Calls that end give back their room and their memory.
            Step::NoRoom | Step::NoMemory(_) | Step::End => match flight.next().await {
                Some(done) => Some(done),
                None => break,
            },
        };
        if let Some(done) = more {
            let Done { mut value, took, result } = done;
            let len = value.len();
            let refused = result.as_ref().is_err_and(is_refusal);
            window.end(len, ended(&result, refused));
            match result {
                Ok(version) => {
                    meter.call(len, took, value.repeats);
                    part_done(&mut entries[value.entry], Fate::Loaded, version, journal);
                }
                Err(_) if refused && value.repeats < REPEATS_MAX => {
                    value.repeats += 1;
                    again.push_back(value);
                }
                Err(status) if is_gone(&status) => {
                    entries[value.entry].end(Fate::Cut(sentence(&status)));
                    // The other files would fail one by one.
                    reader = Reader { which: [].iter(), open: None };
                    again.clear();
                }
                Err(status) => entries[value.entry].end(Fate::Failed(sentence(&status))),
            }
        }
    }
    let left = if window.is_shut() { SILENT } else { GONE };
    for index in which {
        let entry = &mut entries[*index];
        if entry.fate == Fate::Waiting {
            entry.end(Fate::NotSent(left));
        }
        meter.file(entry.fate == Fate::Loaded);
    }
}

/// A value to store, and how often it was refused for want of memory.
struct Value {
    entry: usize,
    request: PutRequest,
    repeats: u32,
}

impl Value {
    fn len(&self) -> usize {
        self.request.value.len()
    }
}

struct Done {
    value: Value,
    took: Duration,
    /// The version that the value has.
    result: Result<u64, Status>,
}

async fn put(session: &Session<'_>, value: Value) -> Done {
    let start = Instant::now();
    let result = session.client.put(value.request.clone()).await;
    let result = result.map(|answer| answer.into_inner().version);
    Done { value, took: start.elapsed(), result }
}

/// Reads files in turn, part by part, as the window has room.
struct Reader<'a> {
    which: std::slice::Iter<'a, usize>,
    open: Option<Open>,
}

struct Open {
    entry: usize,
    file: File,
    stamp: Stamp,
    part: Part,
}

enum Step {
    /// A value to store.
    Value(Value),
    /// The next value has no room in the window.
    NoRoom,
    /// The next value has no payload memory.
    NoMemory(Status),
    /// All files have been read.
    End,
}

impl Reader<'_> {
    fn next(&mut self, session: &Session<'_>, entries: &mut [Entry], window: &Window) -> Step {
        loop {
            let Some(open) = &self.open else {
                match self.which.next() {
                    Some(entry) => self.open = open(session.root, *entry, &mut entries[*entry]),
                    None => return Step::End,
                }
                continue;
            };
            if !window.fits(open.part.len) {
                return Step::NoRoom;
            }
            let (index, part) = (open.entry, open.part);
            let entry = &mut entries[index];
            match open.read(session) {
                Ok(value) => {
                    entry.sums.push(session.sums.of(&value));
                    self.advance();
                    let request =
                        PutRequest { key: part.key(&entry.name), value, expected_version: None };
                    return Step::Value(Value { entry: index, request, repeats: 0 });
                }
                Err(NoValue::Memory(status)) => return Step::NoMemory(status),
                Err(NoValue::End(fate)) => {
                    entry.end(fate);
                    self.open = None;
                }
            }
        }
    }

    /// Goes on to the open file's next part, or to the next file.
    fn advance(&mut self) {
        self.open = self.open.take().and_then(|open| {
            let part = Part::of(open.stamp.len(), open.part.index + 1)?;
            Some(Open { part, ..open })
        });
    }

    /// Leaves the open file, for which there is no memory though nothing else uses any.
    fn give_up(&mut self, entries: &mut [Entry], status: &Status) {
        if let Some(open) = self.open.take() {
            entries[open.entry].end(Fate::Failed(sentence(status)));
        }
    }
}

/// Why there is no value to store.
enum NoValue {
    Memory(Status),
    End(Fate),
}

fn open(root: &Path, index: usize, entry: &mut Entry) -> Option<Open> {
    entry.sums.clear();
    match files::open_regular(&root.join(OsStr::from_bytes(&entry.name))) {
        Ok((file, stamp)) => {
            entry.begin(stamp);
            let part = Part::of(stamp.len(), 0)?;
            Some(Open { entry: index, file, stamp, part })
        }
        Err(error) => {
            entry.end(Fate::Unreadable(error.to_string()));
            None
        }
    }
}

impl Open {
    /// The part's bytes, if the file is unchanged after they were read.
    fn read(&self, session: &Session<'_>) -> Result<Bytes, NoValue> {
        let part = &self.part;
        let value = files::read_value(&session.channel, &self.file, part.offset, part.len)
            .map_err(|error| match error {
                ReadError::Memory(status) => NoValue::Memory(status),
                ReadError::Short => NoValue::End(Fate::Changed),
                ReadError::Io(error) => NoValue::End(Fate::Unreadable(error.to_string())),
            })?;
        match Stamp::of(&self.file) {
            Ok(stamp) if stamp == self.stamp => Ok(value),
            Ok(_) => Err(NoValue::End(Fate::Changed)),
            Err(error) => Err(NoValue::End(Fate::Unreadable(error.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_opened_ends_unreadable_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut entry = Entry::new(b"gone".to_vec());
        assert!(open(dir.path(), 0, &mut entry).is_none());
        assert!(matches!(&entry.fate, Fate::Unreadable(why) if why.contains("No such file")));
    }

    #[test]
    fn a_file_opened_again_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"abc").unwrap();
        let mut entry = Entry::new(b"file".to_vec());
        entry.sums = vec![1, 2];
        let open = open(dir.path(), 0, &mut entry).unwrap();
        assert_eq!((entry.len, entry.sums.len(), open.part.len), (3, 0, 3));
    }
}
