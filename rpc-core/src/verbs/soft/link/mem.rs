use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::sync::{Arc, PoisonError};

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::verbs::soft::signal::Signal;

/// One direction of a link in memory.
struct Pipe {
    inner: Mutex<Inner>,
    /// Bytes inside, readable without the lock; `CLOSED` when the writer is gone.
    level: AtomicUsize,
    capacity: usize,
    reader: Arc<Signal>,
    writer: Arc<Signal>,
}

struct Inner {
    bytes: VecDeque<u8>,
    /// The reader may sleep: its signal is raised at the next write.
    reader_waits: bool,
    /// A write was cut short: the writer's signal is raised at the next read.
    writer_waits: bool,
    closed: bool,
}

const CLOSED: usize = 1 << (usize::BITS - 1);

impl Pipe {
    fn new(capacity: usize, reader: Arc<Signal>, writer: Arc<Signal>) -> Self {
        let inner = Inner {
            bytes: VecDeque::new(),
            // Its reader may be asleep already when another thread makes the link.
            reader_waits: true,
            writer_waits: false,
            closed: false,
        };
        Self { inner: Mutex::new(inner), level: AtomicUsize::new(0), capacity, reader, writer }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, inner: &Inner) {
        let level = inner.bytes.len() | if inner.closed { CLOSED } else { 0 };
        self.level.store(level, Ordering::Release);
    }

    fn write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut count = 0;
        for buf in bufs {
            let room = self.capacity - inner.bytes.len();
            let step = room.min(buf.len());
            inner.bytes.extend(&buf[..step]);
            count += step;
        }
        self.note(&inner);
        if inner.bytes.len() == self.capacity {
            inner.writer_waits = true;
        }
        if std::mem::take(&mut inner.reader_waits) {
            self.reader.raise();
        }
        let empty = bufs.iter().all(|buf| buf.is_empty());
        if count == 0 && !empty { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn read(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut inner = self.lock();
        let mut count = 0;
        for buf in bufs {
            let mut room: &mut [u8] = buf;
            // A deque gives one of its two halves at a time.
            while !room.is_empty() && !inner.bytes.is_empty() {
                let step = inner.bytes.read(room)?;
                room = &mut room[step..];
                count += step;
            }
        }
        self.note(&inner);
        if count > 0 && std::mem::take(&mut inner.writer_waits) {
            self.writer.raise();
        }
        if count == 0 && !inner.closed { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        self.note(&inner);
        self.reader.raise();
        self.writer.raise();
    }
}

/// One end of a link between two devices of this process: two bounded pipes.
pub(in crate::verbs::soft) struct MemEnd {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
}

impl MemEnd {
    /// Both ends of a new link, whose devices wake by `a` and `b`.
    pub(in crate::verbs::soft) fn pair(
        capacity: usize,
        a: &Arc<Signal>,
        b: &Arc<Signal>,
    ) -> (Self, Self) {
        let to_b = Arc::new(Pipe::new(capacity, Arc::clone(b), Arc::clone(a)));
        let to_a = Arc::new(Pipe::new(capacity, Arc::clone(a), Arc::clone(b)));
        (
            Self { incoming: Arc::clone(&to_a), outgoing: Arc::clone(&to_b) },
            Self { incoming: to_b, outgoing: to_a },
        )
    }

    /// The one end of a device's link to itself: what goes in comes out.
    pub(in crate::verbs::soft) fn own(capacity: usize, wake: &Arc<Signal>) -> Self {
        let pipe = Arc::new(Pipe::new(capacity, Arc::clone(wake), Arc::clone(wake)));
        Self { incoming: Arc::clone(&pipe), outgoing: pipe }
    }

    pub(in crate::verbs::soft) fn write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.outgoing.write(bufs)
    }

    pub(in crate::verbs::soft) fn read(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.incoming.read(bufs)
    }

    /// Whether a read would bring something, without a lock.
    pub(in crate::verbs::soft) fn is_ready(&self) -> bool {
        self.incoming.level.load(Ordering::Acquire) != 0
    }

    /// Asks for the wake-up at the next byte that comes, or now if one is there; for a writer that
    /// has more, also at the next room.
    pub(in crate::verbs::soft) fn watch(&self, has_more: bool) {
        let mut inner = self.incoming.lock();
        if inner.bytes.is_empty() && !inner.closed {
            inner.reader_waits = true;
        } else {
            self.incoming.reader.raise();
        }
        drop(inner);
        if has_more {
            let mut inner = self.outgoing.lock();
            if inner.bytes.len() == self.outgoing.capacity {
                inner.writer_waits = true;
            } else {
                self.outgoing.writer.raise();
            }
        }
    }
}

impl Drop for MemEnd {
    fn drop(&mut self) {
        self.outgoing.close();
        self.incoming.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal() -> Arc<Signal> {
        Arc::new(Signal::new().unwrap())
    }

    #[test]
    fn bytes_keep_their_order_and_the_bound_holds() {
        let (a, b) = MemEnd::pair(100, &signal(), &signal());
        let data: Vec<u8> = (0..=255).collect();
        assert_eq!(a.write(&[IoSlice::new(&data[..60]), IoSlice::new(&data[60..])]).unwrap(), 100);
        let full = a.write(&[IoSlice::new(&data)]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let (mut x, mut y) = ([0; 30], [0; 200]);
        let count = b.read(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)]).unwrap();
        assert_eq!(count, 100);
        assert_eq!([&x[..], &y[..70]].concat(), data[..100]);
        let empty = b.read(&mut [IoSliceMut::new(&mut y)]).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn bytes_written_before_the_end_is_dropped_are_read_before_the_end() {
        let (a, b) = MemEnd::pair(100, &signal(), &signal());
        a.write(&[IoSlice::new(b"last")]).unwrap();
        drop(a);
        assert!(b.is_ready());
        let mut out = [0; 8];
        assert_eq!(b.read(&mut [IoSliceMut::new(&mut out)]).unwrap(), 4);
        assert_eq!(b.read(&mut [IoSliceMut::new(&mut out)]).unwrap(), 0);
        assert!(b.write(&[IoSlice::new(b"x")]).is_err());
    }
}
