//! Models of threads that wait for a future. Each names the change that it was seen to notice.

use std::time::Duration;

use super::block_on;
use super::local::drive;
use crate::engine::{Clock, Core, CoreShared, JoinHandle};
use crate::sync::model::explore;

/// A plain thread blocks for a future that another thread makes ready.
///
/// Fails when the future, a [`JoinHandle`], does not look again after it has registered its waker,
/// and when the flag is set without an unpark.
#[test]
fn a_thread_that_blocks_for_a_future_is_woken() {
    explore("a thread that blocks for a future is woken", || {
        let (handle, joining) = JoinHandle::new();
        let other = loom::thread::spawn(move || joining.finish(7));
        assert_eq!(block_on(handle), Ok(7));
        other.join().unwrap();
    });
}

/// The future that the thread itself waits for is woken while the core goes to sleep.
///
/// Fails when the waker rings before it sets its flag, and when the core does not ask for that flag
/// once it has announced its sleep.
#[test]
fn a_thread_that_drives_its_core_hears_of_its_own_future() {
    explore("a thread that drives its core hears of its own future", || {
        let shared = CoreShared::new(0).unwrap();
        let mut core = Core::new(shared, Clock::new(), vec![], Duration::ZERO).unwrap();
        let (handle, joining) = JoinHandle::new();
        let other = loom::thread::spawn(move || joining.finish(7));
        assert_eq!(drive(&mut core, handle), Ok(7));
        other.join().unwrap();
    });
}
