#![allow(unsafe_code)]

use std::fs;
use std::io;

use super::ffi::{self, Handle, ibv_context, ibv_device};
use crate::verbs::{OpenError, VerbsError};

/// Where the kernel lists its devices, whatever libibverbs knows of them.
const KERNEL_DEVICES: &str = "/sys/class/infiniband";

/// The devices that libibverbs has a driver for.
pub(super) struct DeviceList {
    list: Handle<*mut ibv_device>,
    names: Vec<String>,
}

impl DeviceList {
    /// # Errors
    /// There is none, and why: the kernel, the driver or the library.
    pub(super) fn get() -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: `count` is where the number goes.
        let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
        let list = Handle::created(list, "listing RDMA devices (ibv_get_device_list)");
        let list = list.map_err(|error| match error {
            VerbsError::System { source, .. } if no_rdma(&source) => OpenError::NoRdma.into(),
            error => error,
        })?;
        let mut this = Self { list, names: Vec::new() };
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the entry is a device of a list that is not freed.
            let name = unsafe { ffi::ibv_get_device_name(this.entry(index)) };
            // SAFETY: the name lives as long as the list.
            this.names.push(unsafe { ffi::text(name) });
        }
        if this.names.is_empty() {
            let have = kernel_devices();
            return Err(if have.is_empty() {
                OpenError::NoDevice
            } else {
                OpenError::NoProvider { have: have.join(", ") }
            }
            .into());
        }
        Ok(this)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The entry of `index`, which must be one of a name.
    fn entry(&self, index: usize) -> *mut ibv_device {
        // SAFETY: the list has as many entries as `count` said, and one more that is NULL.
        let entry = unsafe { self.list.ptr().add(index) };
        // SAFETY: as above.
        unsafe { *entry }
    }

    /// Opens the device of a name.
    pub(super) fn open(&self, index: usize) -> Result<Handle<ibv_context>, VerbsError> {
        let device = self.names[index].clone();
        // SAFETY: the entry is a device of this list, which is not freed before this returns.
        let context = unsafe { ffi::ibv_open_device(self.entry(index)) };
        Handle::created(context, "opening an RDMA device (ibv_open_device)").map_err(|error| {
            match error {
                VerbsError::System { source, .. } if may_not(&source) => {
                    OpenError::NoPermission { device }.into()
                }
                VerbsError::System { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                    OpenError::NoDeviceFile { device }.into()
                }
                error => error,
            }
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_get_device_list, and nothing points into it any more.
        unsafe { ffi::ibv_free_device_list(self.list.ptr()) };
    }
}

/// ENOSYS: the kernel's user-space verbs are not there at all.
fn no_rdma(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::NotFound)
}

fn may_not(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn kernel_devices() -> Vec<String> {
    let entries = fs::read_dir(KERNEL_DEVICES).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
