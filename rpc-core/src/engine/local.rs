//! What belongs to the core that this thread is turning right now.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use async_task::{Runnable, Task};
use slab::Slab;

use super::cell::CallCell;
use super::shared::CoreShared;
use super::submission::HandlerEnd;

/// A core's queues that only its own thread touches.
///
/// A thread may own several cores (tests step a client and a server in turn), so the thread-local
/// names the one whose turn it is.
pub(crate) struct Local {
    pub(crate) shared: Arc<CoreShared>,
    pub(crate) ready: RefCell<VecDeque<Runnable>>,
    pub(crate) submissions: RefCell<VecDeque<Arc<CallCell>>>,
    pub(crate) ended: RefCell<VecDeque<HandlerEnd>>,
    /// Tasks that were placed on the core and have not ended: they end with it.
    pub(crate) tasks: RefCell<Slab<Option<Task<()>>>>,
    /// The method whose handler runs, for the report of a stall.
    pub(crate) running: Cell<Option<&'static str>>,
}

#[cfg(not(all(loom, test)))]
thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}
#[cfg(all(loom, test))]
loom::thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = RefCell::new(None);
}

/// Makes a core this thread's current one until the guard is dropped.
pub(crate) struct Entered {
    before: Option<Rc<Local>>,
}

impl Local {
    pub(crate) fn new(shared: Arc<CoreShared>) -> Rc<Self> {
        Rc::new(Self {
            shared,
            ready: RefCell::default(),
            submissions: RefCell::default(),
            ended: RefCell::default(),
            tasks: RefCell::default(),
            running: Cell::new(None),
        })
    }

    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        Entered { before: CURRENT.with(|current| current.replace(Some(Rc::clone(self)))) }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty()
            || !self.submissions.borrow().is_empty()
            || !self.ended.borrow().is_empty()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(self.before.take()));
    }
}

/// The core this thread is turning, if any.
pub(crate) fn current() -> Option<Rc<Local>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Whether this thread is turning a core: blocking here would stop it.
pub(crate) fn is_on_core() -> bool {
    CURRENT.try_with(|current| current.borrow().is_some()).unwrap_or(false)
}

/// Runs `f` with the current core if that is `shared`.
pub(crate) fn with_current<R>(shared: &CoreShared, f: impl FnOnce(&Local) -> R) -> Option<R> {
    CURRENT
        .try_with(|current| {
            let current = current.borrow();
            let local = current.as_ref()?;
            std::ptr::eq(Arc::as_ptr(&local.shared), shared).then(|| f(local))
        })
        .ok()
        .flatten()
}

/// Queues a call on the current core if it is the call's. False: it is not.
pub(crate) fn submit_if_current(shared: &CoreShared, call: &Arc<CallCell>) -> bool {
    with_current(shared, |local| local.submissions.borrow_mut().push_back(Arc::clone(call)))
        .is_some()
}

/// Queues a task on the current core if it is the task's; gives it back otherwise.
pub(crate) fn push_if_current(shared: &CoreShared, runnable: Runnable) -> Option<Runnable> {
    let mut runnable = Some(runnable);
    with_current(shared, |local| local.ready.borrow_mut().extend(runnable.take()));
    runnable
}
