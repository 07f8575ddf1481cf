//! The devices of this process, so that they can meet in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::device::Shared;
use super::link::{MemEnd, Stream};
use super::table::Id;
use crate::verbs::VerbsError;

/// By GUID. The lock is taken before any device's, and never while one is held; and no device is
/// dropped under it, for its drop takes it.
static DEVICES: Mutex<BTreeMap<u64, Weak<Shared>>> = Mutex::new(BTreeMap::new());

fn devices() -> MutexGuard<'static, BTreeMap<u64, Weak<Shared>>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a device known.
pub(super) fn add(device: &Arc<Shared>) {
    devices().insert(device.guid, Arc::downgrade(device));
}

/// Forgets a device.
pub(super) fn remove(guid: u64) {
    devices().remove(&guid);
}

/// The link in memory from `own` to the device `guid`, made if it does not exist. `None`: there is
/// no such device in this process.
pub(super) fn link(own: &Arc<Shared>, guid: u64) -> Result<Option<Id>, VerbsError> {
    // Held to the end, so that two devices that look for each other make one link.
    let known = devices();
    if guid == own.guid {
        return join(own, own).map(Some);
    }
    let Some(peer) = known.get(&guid).and_then(Weak::upgrade) else { return Ok(None) };
    let made = join(own, &peer);
    drop(known);
    drop(peer);
    made.map(Some)
}

fn join(own: &Arc<Shared>, peer: &Arc<Shared>) -> Result<Id, VerbsError> {
    let capacity = own.mem_link_bytes;
    if let Some(id) = own.lock().link_to(peer.guid) {
        return Ok(id);
    }
    if Arc::ptr_eq(own, peer) {
        let end = MemEnd::own(capacity, &own.signals.wake);
        return own.lock().add_link(own.guid, Stream::Mem(end));
    }
    let (near, far) = MemEnd::pair(capacity, &own.signals.wake, &peer.signals.wake);
    // One lock at a time: two devices must never wait for each other.
    peer.lock().add_link(own.guid, Stream::Mem(far))?;
    own.lock().add_link(peer.guid, Stream::Mem(near))
}
