use super::atomic::{AtomicU32, Ordering};

/// The end of a list, and the head of an empty one.
const END: u32 = u32::MAX;

/// The head of a list that takes no more. So an index is at most `u32::MAX - 2`.
const CLOSED: u32 = u32::MAX - 1;

/// Where the link of each index lives: one cell per thing that can be returned.
///
/// An index is on at most one list at a time, and only the list writes its cell meanwhile.
pub trait Links {
    /// The cell of `index`.
    fn next(&self, index: u32) -> &AtomicU32;
}

/// A list of indices that any thread may push to and any thread may take *whole*.
///
/// The links are in the things themselves, so a push needs no memory, and it is a compare-exchange
/// loop that only another push or take can delay, by succeeding. There is no pop of one element, so
/// the ABA problem of such stacks cannot occur: who takes the list reads its links afterwards.
///
/// ```text
/// head ──> 7 ──> 2 ──> 9 ──> END        push(4): next[4] = 7, head = 4
/// ```
///
/// That a list is closed is a value of its head, so a push either is in what the closing took, or
/// sees that the list is closed.
#[derive(Debug)]
pub struct ReturnList {
    head: AtomicU32,
}

/// The list takes no more; the index is still the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

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

    /// A list that was closed from the start.
    pub fn closed() -> Self {
        Self { head: AtomicU32::new(CLOSED) }
    }

    /// Puts `index` on the list. The caller must have it to give: it is on no list.
    ///
    /// # Errors
    /// The list is [`close`](Self::close)d.
    pub fn push<L: Links + ?Sized>(&self, links: &L, index: u32) -> Result<(), Closed> {
        debug_assert!(index < CLOSED);
        let next = links.next(index);
        let mut head = self.head.load(Ordering::Relaxed);
        while head != CLOSED {
            next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => head = now,
            }
        }
        Err(Closed)
    }

    /// Takes everything that was pushed so far, last first.
    pub fn take_all<'a, L: Links + ?Sized>(&self, links: &'a L) -> Chain<'a, L> {
        // An empty list is left alone, so that a core which looks often does not steal the line
        // from those that push; and a closed one stays closed.
        let mut head = self.head.load(Ordering::Relaxed);
        while head != END && head != CLOSED {
            match self.head.compare_exchange_weak(head, END, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Chain { next: head, links },
                Err(now) => head = now,
            }
        }
        Chain { next: END, links }
    }

    /// Takes everything and refuses every later push.
    pub fn close<'a, L: Links + ?Sized>(&self, links: &'a L) -> Chain<'a, L> {
        let head = self.head.swap(CLOSED, Ordering::Acquire);
        Chain { next: if head == CLOSED { END } else { head }, links }
    }

    /// Whether nothing is on the list at this moment.
    pub fn is_empty(&self) -> bool {
        matches!(self.head.load(Ordering::Relaxed), END | CLOSED)
    }
}

/// What was taken from a [`ReturnList`]. Dropping it forgets the rest: drain it.
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

    #[test]
    fn everything_pushed_is_taken_once_last_first() {
        let cells = Cells::new(8);
        let list = ReturnList::new();
        assert_eq!(list.take_all(&cells).count(), 0);
        for index in [3, 0, 7] {
            list.push(&cells, index).unwrap();
        }
        assert!(!list.is_empty());
        assert_eq!(list.take_all(&cells).collect::<Vec<_>>(), [7, 0, 3]);
        assert!(list.is_empty());
    }

    #[test]
    fn a_closed_list_gives_what_it_had_and_takes_no_more() {
        let cells = Cells::new(2);
        let list = ReturnList::new();
        list.push(&cells, 1).unwrap();
        assert_eq!(list.close(&cells).collect::<Vec<_>>(), [1]);
        assert_eq!(list.push(&cells, 1), Err(Closed));
        assert_eq!(list.take_all(&cells).count() + list.close(&cells).count(), 0);
        assert_eq!(list.push(&cells, 1), Err(Closed), "taking does not open it");
        assert!(list.is_empty() && ReturnList::closed().push(&cells, 0).is_err());
    }

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
                        list.push(cells, thread * EACH + n).unwrap();
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
}
