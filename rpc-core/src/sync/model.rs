//! What stands in for atomics, queues and descriptors while loom explores a model.
//!
//! Loom tries every order in which threads can take their steps, up to a bound of preemptions, and
//! every value that a load may see. What it does not know by itself stands here, and promises no
//! more than what it stands for.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex as Plain};
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};

use super::Bell;
use atomic::{AtomicUsize, Ordering, fence};

/// Times that loom takes a thread from its processor in one order of steps; the errors that need
/// more are rare. LOOM_MAX_PREEMPTIONS sets another bound for every model.
const PREEMPTIONS_MAX: usize = 3;
/// Steps of one order at most; beyond them a model is taken to run in a circle.
const STEPS_MAX: usize = 20_000;

/// Explores every order of `f`'s threads, and says how many there were.
pub(crate) fn explore(name: &str, f: impl Fn() + Sync + Send + 'static) {
    explore_within(PREEMPTIONS_MAX, name, f);
}

/// The same for a model that needs a bound of its own.
pub(crate) fn explore_within(
    preemptions_max: usize,
    name: &str,
    f: impl Fn() + Sync + Send + 'static,
) {
    let orders = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = Arc::clone(&orders);
    let mut builder = loom::model::Builder::new();
    builder.max_branches = STEPS_MAX;
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions_max));
    let bound = builder.preemption_bound.unwrap_or_default();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        f();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("\n| {name:<68} | {orders:>8} | {bound:>11} |");
}

/// Whether a bell is readable. All bells of a model share one lock, as descriptors share a kernel.
#[derive(Debug, Default)]
pub(super) struct Rung(std::sync::atomic::AtomicBool);

loom::lazy_static! {
    static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

impl Rung {
    /// Makes it readable or not; says which it was.
    pub(super) fn set(&self, rung: bool) -> bool {
        let _kernel = KERNEL.0.lock().unwrap();
        if rung {
            KERNEL.1.notify_all();
        }
        self.0.swap(rung, Ordering::Relaxed)
    }
}

/// Blocks until one of these was rung, as in epoll without a timeout. If none ever is, loom finds
/// that all threads are blocked and fails: a lost wake-up.
pub(crate) fn wait(bells: &[&Bell]) {
    let mut kernel = KERNEL.0.lock().unwrap();
    while !bells.iter().any(|bell| bell.rung.0.load(Ordering::Relaxed)) {
        kernel = KERNEL.1.wait(kernel).unwrap();
    }
}

/// Whether the bell is readable, as epoll with a timeout of zero.
pub(crate) fn is_rung(bell: &Bell) -> bool {
    let _kernel = KERNEL.0.lock().unwrap();
    bell.rung.0.load(Ordering::Relaxed)
}

/// Parking. Loom's own loses an `unpark` that comes while the thread waits for something else.
pub(crate) mod thread {
    use std::sync::Arc;

    use loom::sync::{Condvar, Mutex};

    #[derive(Clone)]
    pub(crate) struct Thread(Arc<(Mutex<bool>, Condvar)>);

    loom::thread_local! {
        static CURRENT: Thread = Thread(Arc::new((Mutex::new(false), Condvar::new())));
    }

    pub(crate) fn current() -> Thread {
        CURRENT.with(Thread::clone)
    }

    pub(crate) fn park() {
        let this = current();
        let mut unparked = this.0.0.lock().unwrap();
        while !std::mem::take(&mut *unparked) {
            unparked = this.0.1.wait(unparked).unwrap();
        }
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_one();
        }
    }
}

/// Blocks a model's thread until a future is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// As `atomic_waker`'s: who registers after a wake sees what came before that wake.
#[derive(Debug)]
pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn register(&self, waker: &Waker) {
        *self.0.lock().unwrap() = Some(waker.clone());
    }

    pub(crate) fn wake(&self) {
        let waker = self.0.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// As crossbeam's bounded queue: the same steps with the same orderings. A value passes by its
/// slot's stamp alone.
pub(crate) struct ArrayQueue<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[Slot<T>]>,
}

struct Slot<T> {
    /// Twice the number of the push that may fill it; one more when it is filled.
    stamp: AtomicUsize,
    value: Plain<Option<T>>,
}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let slot = |n| Slot { stamp: AtomicUsize::new(2 * n), value: Plain::new(None) };
        let slots = (0..capacity).map(slot).collect();
        Self { head: AtomicUsize::new(0), tail: AtomicUsize::new(0), slots }
    }

    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        loop {
            let tail = self.tail.load(Ordering::Relaxed);
            let slot = &self.slots[tail % self.slots.len()];
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == 2 * tail {
                let (claim, retry) = (Ordering::SeqCst, Ordering::Relaxed);
                if self.tail.compare_exchange_weak(tail, tail + 1, claim, retry).is_ok() {
                    *slot.value.lock().unwrap() = Some(value);
                    slot.stamp.store(2 * tail + 1, Ordering::Release);
                    return Ok(());
                }
            } else if stamp < 2 * tail {
                fence(Ordering::SeqCst);
                if self.head.load(Ordering::Relaxed) + self.slots.len() == tail {
                    return Err(value);
                }
            }
            loom::thread::yield_now();
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            let slot = &self.slots[head % self.slots.len()];
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == 2 * head + 1 {
                let (claim, retry) = (Ordering::SeqCst, Ordering::Relaxed);
                if self.head.compare_exchange_weak(head, head + 1, claim, retry).is_ok() {
                    let value = slot.value.lock().unwrap().take();
                    slot.stamp.store(2 * (head + self.slots.len()), Ordering::Release);
                    return value;
                }
            } else if stamp == 2 * head {
                fence(Ordering::SeqCst);
                if self.tail.load(Ordering::Relaxed) == head {
                    return None;
                }
            }
            loom::thread::yield_now();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::SeqCst);
        head == self.tail.load(Ordering::SeqCst)
    }

    pub(crate) fn is_full(&self) -> bool {
        let tail = self.tail.load(Ordering::SeqCst);
        self.head.load(Ordering::SeqCst) + self.slots.len() == tail
    }
}

/// As crossbeam's unbounded queue, for the few values of a model.
pub(crate) struct SegQueue<T>(ArrayQueue<T>);

impl<T> SegQueue<T> {
    pub(crate) fn new() -> Self {
        Self(ArrayQueue::new(4))
    }

    pub(crate) fn push(&self, value: T) {
        assert!(self.0.push(value).is_ok(), "a model pushes few values");
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Loom's atomics with sequential consistency.
///
/// Loom takes a sequentially consistent access for one that acquires and releases, and so finds
/// errors that are none; but it knows fences. A fence before each such access is how some
/// processors implement it: a relaxed access may still pass an earlier store. It orders a little
/// more than the language promises, so a model can miss that one of several such accesses could be
/// weaker than it is written, and loom does not take turns at fences. What a model must notice is
/// what its comment says that it has noticed.
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{Ordering, fence};

    fn lead(order: Ordering) {
        if order == Ordering::SeqCst {
            fence(order);
        }
    }

    macro_rules! atomic {
        ($name:ident: $value:ty, $($op:ident),*) => {
            /// As std's.
            #[derive(Debug)]
            pub struct $name(loom::sync::atomic::$name);

            #[allow(dead_code, missing_docs, reason = "each stands for one of std")]
            impl $name {
                #[track_caller]
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                #[track_caller]
                pub fn load(&self, order: Ordering) -> $value {
                    lead(order);
                    self.0.load(order)
                }

                #[track_caller]
                pub fn store(&self, value: $value, order: Ordering) {
                    lead(order);
                    self.0.store(value, order);
                }

                #[track_caller]
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    lead(order);
                    self.0.swap(value, order)
                }

                #[track_caller]
                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    lead(success);
                    self.0.compare_exchange_weak(current, new, success, failure)
                }

                #[track_caller]
                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    mut f: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let mut now = self.load(fetch);
                    while let Some(next) = f(now) {
                        match self.compare_exchange_weak(now, next, set, fetch) {
                            Ok(before) => return Ok(before),
                            Err(other) => now = other,
                        }
                    }
                    Err(now)
                }

                $(#[track_caller]
                pub fn $op(&self, value: $value, order: Ordering) -> $value {
                    lead(order);
                    self.0.$op(value, order)
                })*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new(<$value>::default())
                }
            }
        };
    }

    atomic!(AtomicBool: bool, fetch_or);
    atomic!(AtomicU8: u8, fetch_or);
    atomic!(AtomicU32: u32, fetch_add, fetch_sub, fetch_max);
    atomic!(AtomicU64: u64, fetch_add, fetch_sub, fetch_max, fetch_or);
    atomic!(AtomicUsize: usize, fetch_add, fetch_sub, fetch_max);
}
