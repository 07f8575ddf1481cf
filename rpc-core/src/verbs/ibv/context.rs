#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ffi::{self, Handle, ibv_context, ibv_device_attr};
use super::list::DeviceList;
use super::tables::Tables;
use crate::verbs::VerbsError;

/// An open device. Every object made with it keeps it alive.
pub(super) struct Context {
    raw: Handle<ibv_context>,
    pub(super) name: String,
    pub(super) tables: Tables,
    lost: AtomicBool,
}

impl Context {
    /// Opens the device of `index` in the list.
    pub(super) fn open(list: &DeviceList, index: usize) -> Result<Self, VerbsError> {
        let raw = list.open(index)?;
        let name = list.names()[index].clone();
        let (tables, lost) = (Tables::default(), AtomicBool::new(false));
        let context = Self { raw, name, tables, lost };
        set_nonblocking(context.async_fd())?;
        Ok(context)
    }

    pub(super) const fn raw(&self) -> Handle<ibv_context> {
        self.raw
    }

    /// The descriptor of events has failed: whether that is news.
    pub(super) fn is_first_loss(&self) -> bool {
        !self.lost.swap(true, Ordering::Relaxed)
    }

    /// The descriptor of asynchronous events; it does not block.
    pub(super) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is alive, so its fields can be read.
        let fd = unsafe { (*self.raw.ptr()).async_fd };
        // SAFETY: the descriptor is open as long as the context, which `self` keeps.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    pub(super) fn attributes(&self) -> Result<ibv_device_attr, VerbsError> {
        // SAFETY: a plain struct of numbers and bytes, for which zeros are valid.
        let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is alive, and `attr` is where the answer goes.
        let code = unsafe { ffi::ibv_query_device(self.raw.ptr(), &raw mut attr) };
        ffi::done(code, "reading a device's attributes (ibv_query_device)")?;
        Ok(attr)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: every object of the context holds an Arc of it, so none is left.
        let code = unsafe { ffi::ibv_close_device(self.raw.ptr()) };
        if code != 0 {
            self.tables.leaked("device context", ffi::errno(code));
        }
    }
}

/// Makes reads of a descriptor of libibverbs return at once.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), VerbsError> {
    let set = rustix::fs::fcntl_getfl(fd)
        .and_then(|flags| rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK));
    set.map_err(|error| ffi::system("making a device's descriptor non-blocking", error.into()))
}
