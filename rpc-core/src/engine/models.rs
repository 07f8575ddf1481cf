//! Models of how a core and other threads meet: sleep, mailbox, calls, joins.
//!
//! They run the engine's own code. What stands below it (atomics, locks, crossbeam's queues,
//! `atomic_waker`, the eventfd) is replaced by `crate::sync::model`. Each model names the change
//! that it was seen to notice.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::Reply;
use super::cell::CallCell;
use super::clock::Clock;
use super::core::Core;
use super::executor::JoinHandle;
use super::shared::CoreShared;
use super::sleep::Ready;
use super::submission::ReceivedBody;
use crate::Status;
use crate::sync::model::{block_on, explore, explore_within};

/// A core without devices, as its thread runs it.
fn run_core(shared: &Arc<CoreShared>) -> loom::thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    loom::thread::spawn(move || {
        Core::new(shared, Clock::new(), vec![], Duration::ZERO).unwrap().run();
    })
}

fn reply() -> Result<Reply, Status> {
    Ok(Reply { metadata: bytes::Bytes::new(), body: ReceivedBody::Inline(bytes::Bytes::new()) })
}

/// A core goes to sleep while another thread gives it a job: the job is run.
///
/// Fails when `wake` swaps with Relaxed, or looks at the flag before it swaps; when
/// `prepare_to_sleep` does not look again, or looks with a whole turn (`docs/bugs/003`).
#[test]
fn a_job_for_a_core_that_goes_to_sleep_is_run() {
    explore("a job for a core that goes to sleep is run", || {
        let shared = CoreShared::new(0).unwrap();
        let thread = run_core(&shared);
        let (handle, joining) = JoinHandle::new();
        shared.run_on_core(Box::new(move |_| joining.finish(7)));
        assert_eq!(block_on(handle), Ok(7));
        shared.stop();
        thread.join().unwrap();
    });
}

/// A core that goes to sleep learns that it shall stop.
///
/// Fails when `stop` does not wake, and when `sleep` does not ask `woken`.
#[test]
fn a_core_that_goes_to_sleep_hears_that_it_shall_stop() {
    explore("a core that goes to sleep hears that it shall stop", || {
        let shared = CoreShared::new(0).unwrap();
        let thread = run_core(&shared);
        shared.stop();
        thread.join().unwrap();
    });
}

/// Two threads wake one core, and only one of them rings: the core finds what both gave it.
///
/// Its loop is the core's, without what does not matter here; a whole core has too many steps.
/// Fails when `wake` looks at the flag before it swaps.
#[test]
fn two_threads_wake_one_core() {
    explore_within(2, "two threads wake one core: what both gave it is found", || {
        let shared = CoreShared::new(0).unwrap();
        let threads = [(), ()].map(|()| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.run_on_core(Box::new(|_| ())))
        });
        let (mut found, mut ready) = (0, Ready::new());
        while found < 2 {
            shared.sleeper.announce();
            if shared.has_work() {
                shared.sleeper.retract();
            } else {
                shared.sleeper.wait(&mut ready, None).unwrap();
            }
            while shared.take_job().is_some() {
                found += 1;
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Two threads give a core something that spins and never looks at its queues but when it is told to: it takes
/// both.
///
/// Fails when `wake_for_given` comes before the push, and when it stores in place of a swap.
#[test]
fn a_core_that_spins_takes_what_two_threads_give_it() {
    explore_within(2, "a core that spins takes what two threads give it", || {
        let shared = CoreShared::new(0).unwrap();
        let threads = [(), ()].map(|()| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.run_on_core(Box::new(|_| ())))
        });
        let look = || {
            let jobs = std::iter::from_fn(|| shared.take_job());
            if shared.take_given() { jobs.count() } else { 0 }
        };
        // Once while they are at it, and once when they have said so.
        let before = look();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(before + look(), 2);
    });
}

/// A job given while its core ends is run or dropped, so that who waits for it hears of it.
///
/// Fails when `run_on_core` asks whether the core has stopped before it pushes.
#[test]
fn a_job_given_to_a_core_that_ends_is_run_or_dropped() {
    explore("a job for a core that ends is run or dropped", || {
        let shared = CoreShared::new(0).unwrap();
        let core = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || {
            Core::new(core, Clock::new(), vec![], Duration::ZERO).unwrap().shut_down();
        });
        let (handle, joining) = JoinHandle::new();
        shared.run_on_core(Box::new(move |_| joining.finish(())));
        let _ = block_on(handle);
        thread.join().unwrap();
    });
}

/// A call given while its core ends is ended, by whichever side saw the other.
///
/// Fails when `submit` does not ask whether the core has stopped.
#[test]
fn a_call_given_to_a_core_that_ends_is_ended() {
    explore("a call given to a core that ends is ended", || {
        let shared = CoreShared::new(0).unwrap();
        let core = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || {
            Core::new(core, Clock::new(), vec![], Duration::ZERO).unwrap().shut_down();
        });
        let cell = CallCell::of(&shared, bytes::Bytes::new());
        assert!(shared.submit(&cell));
        assert!(block_on(poll_fn(|context| cell.poll(context))).is_err());
        thread.join().unwrap();
    });
}

/// A call that finds the mailbox full goes in when its core has made room.
///
/// Fails when `wait_for_room` does not look again, and when the core loads the flag with Relaxed.
#[test]
fn a_call_that_finds_the_mailbox_full_goes_in_when_there_is_room() {
    explore("a call that finds the mailbox full goes in when there is room", || {
        let shared = CoreShared::with_room(0, 1).unwrap();
        assert!(shared.submit(&CallCell::of(&shared, bytes::Bytes::new())));
        let core = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || {
            let mut taken = Vec::new();
            core.take_submissions(&mut taken, 1);
        });
        let second = CallCell::of(&shared, bytes::Bytes::new());
        block_on(poll_fn(|context| {
            // As the stub does.
            if shared.submit(&second) {
                return std::task::Poll::Ready(());
            }
            shared.wait_for_room(context.waker());
            std::task::Poll::Pending
        }));
        thread.join().unwrap();
    });
}

/// A call ends while its caller asks for a wake-up.
///
/// Fails when `poll` does not look again after it has registered its waker.
#[test]
fn a_call_that_ends_while_its_caller_begins_to_wait_wakes_it() {
    explore("a call that ends while its caller begins to wait wakes it", || {
        let shared = CoreShared::new(0).unwrap();
        let cell = CallCell::of(&shared, bytes::Bytes::new());
        let core = Arc::clone(&cell);
        let thread = loom::thread::spawn(move || core.complete(reply()));
        assert!(block_on(poll_fn(|context| cell.poll(context))).is_ok());
        thread.join().unwrap();
    });
}

/// A caller goes while its call ends: the call is handed back to its core once, or it has ended.
///
/// Fails when `abandon` loads and then stores its flag.
#[test]
fn a_call_that_ends_while_its_caller_goes_is_cancelled_at_most_once() {
    explore("a call that ends while its caller goes is cancelled at most once", || {
        let shared = CoreShared::new(0).unwrap();
        let cell = CallCell::of(&shared, bytes::Bytes::new());
        let (core, other) = (Arc::clone(&cell), Arc::clone(&cell));
        let threads = [
            loom::thread::spawn(move || core.complete(reply())),
            loom::thread::spawn(move || other.abandon()),
        ];
        cell.abandon();
        for thread in threads {
            thread.join().unwrap();
        }
        let mut handed = 0;
        while shared.take_abandoned().is_some() {
            handed += 1;
        }
        assert!(handed <= 1);
        assert_eq!(cell.is_abandoned(), handed == 1);
    });
}
