#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::context::{Context, set_nonblocking};
use super::ffi::{self, Handle, ibv_comp_channel, ibv_cq, ibv_wc};
use super::tables::Counts;
use super::wc::Reader;
use crate::Time;
use crate::verbs::{Cq, VerbsError, Wc};

/// Completions taken from the library at once.
const TAKEN_MAX: usize = 64;

/// A completion queue with a completion channel of its own.
pub struct IbvCq {
    inner: Arc<CqInner>,
    reader: Reader,
    taken: Box<[ibv_wc; TAKEN_MAX]>,
}

/// The name of an [`IbvCq`]. It keeps the queue alive.
#[derive(Clone)]
pub struct IbvCqRef(pub(super) Arc<CqInner>);

pub(super) struct CqInner {
    raw: Handle<ibv_cq>,
    channel: Handle<ibv_comp_channel>,
    /// An asynchronous event said so. The library has this field's address as the CQ's context.
    overrun: Box<AtomicBool>,
    /// Of the QPs that complete here, and of what completes.
    pub(super) counts: Arc<Counts>,
    pub(super) context: Arc<Context>,
}

impl IbvCq {
    pub(super) fn create(
        context: &Arc<Context>,
        cqe: u32,
        reader: Reader,
    ) -> Result<Self, VerbsError> {
        // SAFETY: the context is alive.
        let channel = unsafe { ffi::ibv_create_comp_channel(context.raw().ptr()) };
        let channel =
            Handle::created(channel, "creating a completion channel (ibv_create_comp_channel)")?;
        let overrun = Box::new(AtomicBool::new(false));
        let cqe = i32::try_from(cqe).unwrap_or(i32::MAX);
        let name = (&raw const *overrun).cast_mut().cast();
        // SAFETY: context and channel are alive. `overrun` lives as long as the queue, see `drop`.
        let raw = unsafe { ffi::ibv_create_cq(context.raw().ptr(), cqe, name, channel.ptr(), 0) };
        let raw = match Handle::created(raw, "creating a completion queue (ibv_create_cq)") {
            Ok(raw) => raw,
            Err(error) => {
                destroy_channel(context, channel);
                return Err(error);
            }
        };
        context.tables.cqs.fetch_add(1, Relaxed);
        let (counts, context) = (context.tables.new_counts(), Arc::clone(context));
        let inner = Arc::new(CqInner { raw, channel, overrun, counts, context });
        set_nonblocking(inner.fd())?;
        Ok(Self { inner, reader, taken: Box::new([const { ffi::empty_wc() }; TAKEN_MAX]) })
    }

    pub(super) fn name(&self) -> IbvCqRef {
        IbvCqRef(Arc::clone(&self.inner))
    }
}

fn destroy_channel(context: &Context, channel: Handle<ibv_comp_channel>) {
    // SAFETY: the channel is alive, and no queue uses it any more.
    let code = unsafe { ffi::ibv_destroy_comp_channel(channel.ptr()) };
    if code != 0 {
        context.tables.leaked("completion channel", ffi::errno(code));
    }
}

impl CqInner {
    pub(super) const fn raw(&self) -> Handle<ibv_cq> {
        self.raw
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive, so its fields can be read.
        let fd = unsafe { (*self.channel.ptr()).fd };
        // SAFETY: the descriptor is open as long as the channel, which `self` keeps.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Marks the queue that an asynchronous event is about.
    ///
    /// # Safety
    /// `cq` must be a queue that [`IbvCq::create`] made and that is not destroyed: one of an event
    /// that is not acknowledged yet.
    pub(super) unsafe fn mark_overrun(cq: *mut ibv_cq) {
        // SAFETY: the caller says that the queue is alive; its context never changes.
        let overrun: *const AtomicBool = unsafe { (*cq).cq_context.cast() };
        // SAFETY: the flag outlives the queue, which cannot be destroyed before the event is
        // acknowledged.
        unsafe { &*overrun }.store(true, Relaxed);
    }
}

impl Cq for IbvCq {
    fn poll(&mut self, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        if self.inner.overrun.load(Relaxed) {
            return Err(VerbsError::CqOverrun);
        }
        let mut filled = 0;
        while filled < wcs.len() {
            let asked = (wcs.len() - filled).min(TAKEN_MAX);
            // SAFETY: the queue is alive, and `taken` has room for as many as are asked for.
            let count = unsafe {
                ffi::ibv_poll_cq(self.inner.raw.ptr(), asked as i32, self.taken.as_mut_ptr())
            };
            let Ok(count) = usize::try_from(count) else {
                return ffi::done(count, "polling a completion queue (ibv_poll_cq)").map(|()| 0);
            };
            let count = count.min(asked);
            for (wc, taken) in wcs[filled..].iter_mut().zip(&self.taken[..count]) {
                *wc = self.reader.read(taken);
            }
            filled += count;
            if count < asked {
                break;
            }
        }
        self.reader.count(&self.inner.counts);
        Ok(filled)
    }

    fn arm(&mut self) -> Result<(), VerbsError> {
        // SAFETY: the queue is alive. 0: for any completion, not only solicited ones.
        let code = unsafe { ffi::ibv_req_notify_cq(self.inner.raw.ptr(), 0) };
        ffi::done(code, "arming a completion queue (ibv_req_notify_cq)")
    }

    fn drain_events(&mut self) -> Result<u32, VerbsError> {
        let mut count = 0;
        loop {
            let (mut cq, mut name) = (null_mut(), null_mut());
            let channel = self.inner.channel.ptr();
            // SAFETY: the channel is alive, does not block, and the answers go to locals.
            let code = unsafe { ffi::ibv_get_cq_event(channel, &raw mut cq, &raw mut name) };
            if code != 0 {
                let error = std::io::Error::last_os_error();
                return match error.kind() {
                    std::io::ErrorKind::WouldBlock => Ok(count),
                    std::io::ErrorKind::Interrupted => continue,
                    _ => Err(ffi::system("taking a completion event (ibv_get_cq_event)", error)),
                };
            }
            count += 1;
            // Acknowledged here: destroying the queue waits for every event that was taken.
            // SAFETY: the channel serves this one queue, which is alive, and gave one event.
            unsafe { ffi::ibv_ack_cq_events(self.inner.raw.ptr(), 1) };
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let tables = &self.context.tables;
        tables.retire_counts(&self.counts);
        // SAFETY: every QP that completes here holds an Arc of this, so none is left.
        let code = unsafe { ffi::ibv_destroy_cq(self.raw.ptr()) };
        if code != 0 {
            // What its context points to stays with it.
            std::mem::forget(std::mem::take(&mut self.overrun));
            return tables.leaked("completion queue", ffi::errno(code));
        }
        destroy_channel(&self.context, self.channel);
        tables.cqs.fetch_sub(1, Relaxed);
    }
}
