//! Models of the return list. Each names the change that it was seen to notice.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

use super::atomic::AtomicU32;
use super::model::explore;
use super::{Closed, Links, ReturnList};

struct Cells(Vec<AtomicU32>);

impl Cells {
    fn new(n: u32) -> Self {
        Self((0..n).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Links for Cells {
    fn next(&self, index: u32) -> &AtomicU32 {
        &self.0[index as usize]
    }
}

/// Two threads return while a third takes: nothing is lost or seen twice, and who takes a thing sees
/// what its last owner did with it.
///
/// Fails when `push` publishes with Relaxed, when `take_all` takes with Relaxed, and when a link is
/// not written.
#[test]
fn returns_race_with_a_taker() {
    explore("returns to a list race with a taker", || {
        let things = [UnsafeCell::new(()), UnsafeCell::new(())];
        let shared = Arc::new((Cells::new(2), ReturnList::new(), things));
        let pushers: Vec<_> = (0..2u32)
            .map(|index| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.2[index as usize].with_mut(|_| ());
                    shared.1.push(&shared.0, index).unwrap();
                })
            })
            .collect();
        // Only the list says that a thing is here: the threads are joined after that.
        let mut seen = Vec::new();
        while seen.len() < 2 {
            for index in shared.1.take_all(&shared.0) {
                shared.2[index as usize].with_mut(|_| ());
                seen.push(index);
            }
            loom::thread::yield_now();
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
        for pusher in pushers {
            pusher.join().unwrap();
        }
    });
}

/// A push races with the closing and with a third that takes: the index is in exactly one hand.
///
/// Fails when `close` is a load and a store, or takes with Relaxed.
#[test]
fn a_push_is_taken_or_sees_that_the_list_is_closed() {
    explore("a push to a list is taken, or sees that the list is closed", || {
        let shared = Arc::new((Cells::new(1), ReturnList::new()));
        let run = |f: fn(&(Cells, ReturnList)) -> u32| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || f(&shared))
        };
        let pusher = run(|(cells, list)| u32::from(list.push(cells, 0) == Err(Closed)));
        let taker = run(|(cells, list)| list.take_all(cells).count() as u32);
        let (cells, list) = &*shared;
        let closer = list.close(cells).count() as u32;
        assert_eq!(pusher.join().unwrap() + taker.join().unwrap() + closer, 1);
        assert_eq!(list.push(cells, 0), Err(Closed), "closed for good");
    });
}
