//! Models of payload memory: blocks that come home while their core goes, blocks that pass from
//! thread to thread, and waiting for memory. Each names the change that it was seen to notice.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use loom::cell::UnsafeCell;

use super::{BUDGET_BYTES_MIN, Budget, PayloadMut, Pool, PoolConfig, Share, Use};
use crate::sync::model::{block_on, explore};

fn pool() -> Pool {
    Pool::new(PoolConfig::new(BUDGET_BYTES_MIN)).unwrap()
}

/// A block comes home while the cache it came from goes: it is free, once.
///
/// Fails when a block that finds its list closed is forgotten, and when the list is closed by a load
/// and a store.
#[test]
fn a_block_that_comes_home_while_its_core_goes_is_free_once() {
    explore("a block that comes home while its core goes is free once", || {
        let pool = pool();
        let mut cache = pool.core_cache();
        let block = cache.alloc(Share::Inbound, Use::Response, 128 << 10).unwrap();
        let mapped = pool.usage().mapped;
        let dropper = loom::thread::spawn(move || drop(block));
        drop(cache);
        dropper.join().unwrap();
        let usage = pool.usage();
        assert_eq!((usage.free, usage.inbound), (mapped, 0));
    });
}

/// The share has room for one block. Whoever gets the budget that another thread gives back finds
/// that thread's block, and nothing that it did with the bytes is still under way.
///
/// Fails when the budget is given back before the block.
#[test]
fn a_block_passes_from_thread_to_thread() {
    explore("a block passes from thread to thread, one owner at a time", || {
        let (pool, bytes) = (pool(), Arc::new(UnsafeCell::new(())));
        let take = |pool: &Pool| pool.alloc(Share::Inbound, Use::Response, 128 << 10);
        let touch = |bytes: &UnsafeCell<()>, _: &mut PayloadMut| bytes.with_mut(|_| ());
        let mut block = take(&pool).unwrap();
        let place = block.placement();
        let first = Arc::clone(&bytes);
        let dropper = loom::thread::spawn(move || {
            touch(&first, &mut block);
            drop(block);
        });
        // Only the budget says that the block is here: the thread is joined after that.
        let mut block = loop {
            match take(&pool) {
                Ok(block) => break block,
                Err(_) => loom::thread::yield_now(),
            }
        };
        assert!(block.placement() == place);
        touch(&bytes, &mut block);
        drop(block);
        dropper.join().unwrap();
        let usage = pool.usage();
        assert_eq!((usage.free, usage.inbound), (usage.mapped, 0));
    });
}

/// Memory comes back while a core begins to wait for it: the core is woken, or finds it.
///
/// Fails when who gives memory back loads the waiters with Relaxed.
#[test]
fn memory_that_comes_back_wakes_who_begins_to_wait() {
    explore("memory that comes back wakes who begins to wait for it", || {
        let budget = Budget::new(1000);
        let take = |budget: &Arc<Budget>| budget.try_reserve(Share::Inbound, Use::Response, 500);
        let held = take(&budget).unwrap();
        let dropper = loom::thread::spawn(move || drop(held));
        block_on(poll_fn(|context| {
            let taken = take(&budget).or_else(|_| {
                budget.wait(0, context.waker());
                take(&budget)
            });
            taken.map_or(Poll::Pending, Poll::Ready)
        }));
        dropper.join().unwrap();
    });
}
