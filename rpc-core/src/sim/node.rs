use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use crate::Runtime;

/// A future of a node's own, which stays on this thread.
pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What a task that panicked left, until the simulation looks.
pub(super) type Panicked = Rc<RefCell<Option<Box<dyn Any + Send>>>>;

/// A node in one of its lives: what its closure, and its tasks, have of it.
///
/// A cheap clone. In its tasks, servers and channels that are given no runtime use the node's.
#[derive(Clone)]
pub struct Node {
    name: Rc<str>,
    lives: u32,
    runtime: Runtime,
    pub(super) spawned: Rc<RefCell<Vec<Task>>>,
    panicked: Panicked,
}

impl Node {
    pub(super) fn new(name: Rc<str>, lives: u32, runtime: Runtime, panicked: Panicked) -> Self {
        Self { name, lives, runtime, spawned: Rc::default(), panicked }
    }

    /// Its name, which addresses name it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How often it was started before: 0 in its first life.
    pub fn lives(&self) -> u32 {
        self.lives
    }

    /// Its runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Places a task on the node, which ends with the node's life. If it panics, the simulation does.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let panicked = Rc::clone(&self.panicked);
        let mut future = Box::pin(future);
        let watched = std::future::poll_fn(move |context| {
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
                Ok(polled) => polled,
                Err(panic) => {
                    panicked.borrow_mut().get_or_insert(panic);
                    Poll::Ready(())
                }
            }
        });
        self.spawned.borrow_mut().push(Box::pin(watched));
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("lives", &self.lives).finish()
    }
}
