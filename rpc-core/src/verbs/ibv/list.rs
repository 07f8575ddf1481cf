#![allow(unsafe_code)]

use std::fs;
use std::io;

use super::ffi::{self, Handle, ibv_context, ibv_device};
use crate::verbs::{OpenError, VerbsError};

/// Where the kernel lists its devices, whatever libibverbs knows of them.
const KERNEL_DEVICES: &str = "/sys/class/infiniband";

/// Where the kernel lists their files, each with the device's name in its `ibdev`.
const KERNEL_FILES: &str = "/sys/class/infiniband_verbs";

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
        if this.names.is_empty() { Err(why_none().into()) } else { Ok(this) }
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
        let context = Handle::created(context, "opening an RDMA device (ibv_open_device)");
        // The library does not say whether the file is missing or may not be opened.
        context.map_err(|error| file_trouble(device).map_or(error, VerbsError::from))
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_get_device_list, and nothing points into it any more.
        unsafe { ffi::ibv_free_device_list(self.list.ptr()) };
    }
}

/// The names of the devices that libibverbs has a driver for; none is opened.
///
/// # Errors
/// There is none, and why.
pub fn device_names() -> Result<Vec<String>, VerbsError> {
    Ok(DeviceList::get()?.names().to_vec())
}

/// ENOSYS: the kernel's user-space verbs are not there at all.
fn no_rdma(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::NotFound)
}

/// Why the library lists no device.
fn why_none() -> OpenError {
    let have = names_in(KERNEL_DEVICES);
    if have.is_empty() {
        return OpenError::NoDevice;
    }
    // It leaves out those whose file is missing.
    let missing = have.iter().find_map(|device| file_trouble(device.clone()));
    missing.unwrap_or_else(|| OpenError::NoProvider { have: have.join(", ") })
}

/// What is wrong with a device's file, if anything.
pub(super) fn file_trouble(device: String) -> Option<OpenError> {
    let is_its = |name: &String| {
        let of = fs::read_to_string(format!("{KERNEL_FILES}/{name}/ibdev"));
        of.is_ok_and(|of| of.trim() == device)
    };
    let name = names_in(KERNEL_FILES).into_iter().find(is_its)?;
    let file = format!("/dev/infiniband/{name}");
    match fs::File::options().read(true).write(true).open(&file).err()?.kind() {
        io::ErrorKind::PermissionDenied => Some(OpenError::NoPermission { device, file }),
        io::ErrorKind::NotFound => Some(OpenError::NoDeviceFile { device, file }),
        _ => None,
    }
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
