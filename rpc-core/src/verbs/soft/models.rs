//! Models of the software device's wake-ups: the signal, and links in memory. Each names the change
//! that it was seen to notice.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use super::link::{MemEnd, Stream};
use super::signal::Signal;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::model::{explore, wait};

fn signal() -> Arc<Signal> {
    Arc::new(Signal::new().unwrap())
}

/// Work that is announced by a signal while its owner clears it is found: now, or by the next wait.
///
/// Fails when the flag falls before the descriptor is read, when it falls though nothing was read
/// (`docs/bugs/005`), and when it falls by a relaxed store.
#[test]
fn a_signal_raised_while_it_is_cleared_is_not_lost() {
    explore("a signal raised while it is cleared is not lost", || {
        let (signal, work) = (signal(), Arc::new(AtomicBool::new(false)));
        let raiser = {
            let (signal, work) = (Arc::clone(&signal), Arc::clone(&work));
            loom::thread::spawn(move || {
                signal.raise();
                work.store(true, Ordering::Relaxed);
                signal.raise();
            })
        };
        loop {
            signal.clear();
            if work.load(Ordering::Relaxed) {
                break;
            }
            wait(&[signal.bell()]);
        }
        raiser.join().unwrap();
    });
}

/// What a device does for a link before and during its sleep: clear, look, ask, sleep.
fn read_asleep(end: &mut Stream, wake: &Signal, out: &mut [u8]) -> usize {
    loop {
        wake.clear();
        let Stream::Mem(mem) = &*end else { unreachable!("a link in memory") };
        if mem.is_ready() {
            return end.read(&mut [IoSliceMut::new(out)]).unwrap();
        }
        mem.watch(false);
        wait(&[wake.bell()]);
    }
}

/// Bytes written while the reader goes to sleep wake it, and the end of the link does too.
///
/// Fails when `watch` asks for a wake-up without a look, and when `write` raises nothing.
#[test]
fn a_byte_written_while_the_reader_goes_to_sleep_wakes_it() {
    explore("a byte written while the reader goes to sleep wakes it", || {
        let (near, far) = (signal(), signal());
        let (a, b) = MemEnd::pair(8, &near, &far);
        let writer = loom::thread::spawn(move || {
            let mut end = Stream::Mem(a);
            for byte in [b"x", b"y"] {
                assert_eq!(end.write(&[IoSlice::new(byte)]).unwrap(), 1);
            }
            end
        });
        let (mut end, mut out, mut came) = (Stream::Mem(b), [0; 2], 0);
        while came < 2 {
            came += read_asleep(&mut end, &far, &mut out[came..]);
        }
        assert_eq!(&out, b"xy");
        drop(writer.join().unwrap());
        assert_eq!(read_asleep(&mut end, &far, &mut out), 0);
    });
}

/// A writer that found the link full is woken by the room that a read makes.
///
/// Fails when `read` raises nothing.
#[test]
fn room_made_while_the_writer_goes_to_sleep_wakes_it() {
    explore("room made while the writer goes to sleep wakes it", || {
        let (near, far) = (signal(), signal());
        let (a, b) = MemEnd::pair(1, &near, &far);
        let mut end = Stream::Mem(a);
        assert_eq!(end.write(&[IoSlice::new(b"x")]).unwrap(), 1);
        let reader = loom::thread::spawn(move || {
            let (mut end, mut out) = (Stream::Mem(b), [0; 1]);
            assert_eq!(end.read(&mut [IoSliceMut::new(&mut out)]).unwrap(), 1);
            end
        });
        loop {
            near.clear();
            if end.write(&[IoSlice::new(b"y")]).is_ok() {
                break;
            }
            let Stream::Mem(mem) = &end else { unreachable!("a link in memory") };
            mem.watch(true);
            wait(&[near.bell()]);
        }
        reader.join().unwrap();
    });
}
