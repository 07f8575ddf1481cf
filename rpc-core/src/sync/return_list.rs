use super::atomic::{AtomicU32, Ordering};

/// The end of a list; so an index may be at most `u32::MAX - 1`.
const END: u32 = u32::MAX;

/// Where the link of each index lives: one cell per thing that can be returned.
///
/// An index is on at most one list at a time, and only the list writes its cell meanwhile.
pub trait Links {
    /// The cell of `index`.
    fn next(&self, index: u32) -> &AtomicU32;
}

/// A list of indices that any thread may push to and any thread may take *whole*.
///
/// The links are in the things themselves, so a push needs no memory and cannot fail, and a push is
/// a compare-exchange loop that another push can only delay by succeeding. There is no pop of one
/// element, so the ABA problem of such stacks cannot occur.
///
/// ```text
/// head ──> 7 ──> 2 ──> 9 ──> END        push(4): next[4] = 7, head = 4
/// ```
#[derive(Debug)]
pub struct ReturnList {
    head: AtomicU32,
}

impl Default for ReturnList {
    fn default() -> Self {
        Self::new()
    }
}

impl ReturnList {
    /// An empty list.
    pub fn new() -> Self {
        Self { head: AtomicU32::new(END) }
    }

    /// Puts `index` on the list. The caller must have it to give: it is on no list.
    ///
    /// Sequentially consistent with a flag the caller reads afterwards: if it pushes and then finds
    /// "not asleep" (or "not closed"), the other side, which sets that flag and then takes the list,
    /// sees the push.
    pub fn push<L: Links + ?Sized>(&self, links: &L, index: u32) {
        let next = links.next(index);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, index, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything that was pushed so far, last first.
    pub fn take_all<'a, L: Links + ?Sized>(&self, links: &'a L) -> Chain<'a, L> {
        // An empty list is left alone, so that a core which looks often does not steal the line
        // from those that push.
        if self.is_empty() {
            return Chain { next: END, links };
        }
        Chain { next: self.head.swap(END, Ordering::SeqCst), links }
    }

    /// Whether nothing is on the list at this moment.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst) == END
    }
}

/// What [`ReturnList::take_all`] took. Dropping it forgets the rest: drain it.
#[must_use = "indices that are not taken from the chain are lost"]
#[derive(Debug)]
pub struct Chain<'a, L: Links + ?Sized> {
    next: u32,
    links: &'a L,
}

impl<L: Links + ?Sized> Iterator for Chain<'_, L> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next == END {
            return None;
        }
        let index = self.next;
        // Read before `index` is handed out: its new owner may push it elsewhere at once.
        self.next = self.links.next(index).load(Ordering::Relaxed);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[cfg(not(loom))]
    #[test]
    fn everything_pushed_is_taken_once_last_first() {
        let cells = Cells::new(8);
        let list = ReturnList::new();
        assert_eq!(list.take_all(&cells).count(), 0);
        for index in [3, 0, 7] {
            list.push(&cells, index);
        }
        assert!(!list.is_empty());
        assert_eq!(list.take_all(&cells).collect::<Vec<_>>(), [7, 0, 3]);
        assert!(list.is_empty());
    }

    #[cfg(not(loom))]
    #[test]
    fn many_threads_return_and_many_take_without_loss() {
        const THREADS: u32 = 4;
        const EACH: u32 = if cfg!(miri) { 20 } else { 20_000 };
        let cells = Cells::new(THREADS * EACH);
        let list = ReturnList::new();
        let (left, taken) = (AtomicU32::new(THREADS), std::sync::Mutex::new(vec![]));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (cells, list, left) = (&cells, &list, &left);
                scope.spawn(move || {
                    for n in 0..EACH {
                        list.push(cells, thread * EACH + n);
                    }
                    left.fetch_sub(1, Ordering::SeqCst);
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let last = left.load(Ordering::SeqCst) == 0;
                        let chain: Vec<u32> = list.take_all(&cells).collect();
                        taken.lock().unwrap().extend(chain);
                        if last {
                            return;
                        }
                        std::thread::yield_now();
                    }
                });
            }
        });
        let mut taken = taken.into_inner().unwrap();
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..THREADS * EACH));
    }

    /// Two threads return while a third takes: nothing is lost or seen twice, and what the pusher
    /// wrote before the push is seen by the taker.
    #[cfg(loom)]
    #[test]
    fn loom_returns_race_with_a_taker() {
        use loom::sync::Arc;
        use loom::sync::atomic::AtomicU32 as Data;

        loom::model(|| {
            let shared = Arc::new((Cells::new(2), ReturnList::new(), [Data::new(0), Data::new(0)]));
            let pushers: Vec<_> = (0..2u32)
                .map(|index| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        shared.2[index as usize].store(1, Ordering::Relaxed);
                        shared.1.push(&shared.0, index);
                    })
                })
                .collect();
            let mut seen: Vec<u32> = shared.1.take_all(&shared.0).collect();
            for index in &seen {
                assert_eq!(shared.2[*index as usize].load(Ordering::Relaxed), 1);
            }
            for pusher in pushers {
                pusher.join().unwrap();
            }
            seen.extend(shared.1.take_all(&shared.0));
            seen.sort_unstable();
            assert_eq!(seen, [0, 1]);
        });
    }

    /// The rule that [`ReturnList::push`] promises: of a push followed by a look at a flag, and of
    /// setting the flag followed by taking the list, at least one sees the other.
    #[cfg(loom)]
    #[test]
    fn loom_a_push_or_the_closing_flag_is_seen() {
        use loom::sync::Arc;
        use loom::sync::atomic::AtomicBool;

        loom::model(|| {
            let shared = Arc::new((Cells::new(1), ReturnList::new(), AtomicBool::new(false)));
            let pusher = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.1.push(&shared.0, 0);
                    shared.2.load(Ordering::SeqCst)
                })
            };
            shared.2.store(true, Ordering::SeqCst);
            let taken = shared.1.take_all(&shared.0).count();
            let saw_closed = pusher.join().unwrap();
            assert!(taken == 1 || saw_closed);
        });
    }
}
