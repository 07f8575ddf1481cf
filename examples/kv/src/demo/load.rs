use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rpc_core::Status;
use rpc_core::bytes::Bytes;

use crate::demo::entry::{Entry, Fate};
use crate::demo::meter::Meter;
use crate::demo::parts::Part;
use crate::demo::window::Window;
use crate::demo::{Session, patiently};
use crate::failure::sentence;
use crate::files::{self, ReadError, Stamp};
use crate::kv::PutRequest;

/// Stores the files of these numbers, many at a time; each ends as `Loaded` or as something worse.
pub(crate) async fn load(
    session: &Session<'_>,
    entries: &mut [Entry],
    which: &[usize],
    meter: &mut Meter,
) {
    let mut window = session.window;
    let mut reader = Reader { which: which.iter(), open: None };
    let mut flight = FuturesUnordered::new();
    loop {
        let step = reader.next(session, entries, &window);
        let more = match step {
            Step::Value { entry, key, value } => {
                window.start(value.len());
                flight.push(put(session, entry, key, value));
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
            window.end(done.len);
            match done.result {
                Ok(()) => meter.call(done.len, done.took, done.repeats),
                Err(status) => entries[done.entry].end(Fate::Failed(sentence(&status))),
            }
        }
    }
    for index in which {
        let entry = &mut entries[*index];
        entry.end(Fate::Loaded);
        meter.file(entry.fate == Fate::Loaded);
    }
}

struct Done {
    entry: usize,
    len: usize,
    took: Duration,
    repeats: u32,
    result: Result<(), Status>,
}

async fn put(session: &Session<'_>, entry: usize, key: Bytes, value: Bytes) -> Done {
    let len = value.len();
    let start = Instant::now();
    let request = PutRequest { key, value };
    let (result, repeats) = patiently(|| session.client.put(request.clone())).await;
    Done { entry, len, took: start.elapsed(), repeats, result: result.map(drop) }
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
    Value { entry: usize, key: Bytes, value: Bytes },
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
                    return Step::Value { entry: index, key: part.key(&entry.name), value };
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
            entry.len = stamp.len();
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
