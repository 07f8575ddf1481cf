//! Devices that can meet in memory: all of this process, or those of one simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::device::Shared;
use super::link::{MemEnd, Stream};
use super::table::Id;
use crate::verbs::VerbsError;

#[cfg(any(test, feature = "test-util"))]
pub(crate) use relayed::Cable;

/// By GUID. The lock is taken before any device's, and never while one is held; and no device is
/// dropped under it, for its drop takes it.
pub(crate) struct Fabric {
    devices: Mutex<BTreeMap<u64, Weak<Shared>>>,
    #[cfg(any(test, feature = "test-util"))]
    relay: Option<relayed::Relay>,
}

/// The devices of this process.
static PROCESS: Fabric = Fabric {
    devices: Mutex::new(BTreeMap::new()),
    #[cfg(any(test, feature = "test-util"))]
    relay: None,
};

/// The fabric that a device is on.
#[derive(Clone, Default)]
pub(super) enum On {
    #[default]
    Process,
    #[cfg(any(test, feature = "test-util"))]
    Simulated(Arc<Fabric>),
}

impl On {
    pub(super) fn fabric(&self) -> &Fabric {
        match self {
            Self::Process => &PROCESS,
            #[cfg(any(test, feature = "test-util"))]
            Self::Simulated(fabric) => fabric,
        }
    }

    /// Whether there is nothing beside it: no TCP.
    pub(super) fn is_all(&self) -> bool {
        !matches!(self, Self::Process)
    }
}

impl Fabric {
    fn devices(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Shared>>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a device known.
    pub(super) fn add(&self, device: &Arc<Shared>) {
        self.devices().insert(device.guid, Arc::downgrade(device));
    }

    /// Forgets a device.
    pub(crate) fn remove(&self, guid: u64) {
        self.devices().remove(&guid);
    }

    /// The link in memory from `own` to the device `guid`, made if it does not exist. `None`: there is
    /// no such device here.
    pub(super) fn link(&self, own: &Arc<Shared>, guid: u64) -> Result<Option<Id>, VerbsError> {
        // Held to the end, so that two devices that look for each other make one link.
        let known = self.devices();
        if guid == own.guid {
            return self.join(own, own).map(Some);
        }
        let Some(peer) = known.get(&guid).and_then(Weak::upgrade) else { return Ok(None) };
        let made = self.join(own, &peer);
        drop(known);
        drop(peer);
        made.map(Some)
    }

    fn join(&self, own: &Arc<Shared>, peer: &Arc<Shared>) -> Result<Id, VerbsError> {
        let capacity = own.mem_link_bytes;
        if let Some(id) = own.lock().link_to(peer.guid) {
            return Ok(id);
        }
        if Arc::ptr_eq(own, peer) {
            let end = MemEnd::own(capacity, &own.signals.wake);
            return own.lock().add_link(own.guid, Stream::Mem(end));
        }
        let (near, far) = self.pair(own, peer, capacity);
        // One lock at a time: two devices must never wait for each other.
        peer.lock().add_link(own.guid, Stream::Mem(far))?;
        own.lock().add_link(peer.guid, Stream::Mem(near))
    }

    fn pair(&self, own: &Shared, peer: &Shared, capacity: usize) -> (MemEnd, MemEnd) {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(relay) = &self.relay {
            return relay.pair(own, peer, capacity);
        }
        MemEnd::pair(capacity, &own.signals.wake, &peer.signals.wake)
    }
}

#[cfg(any(test, feature = "test-util"))]
mod relayed {
    use std::io::{self, IoSlice, IoSliceMut};

    use super::*;
    use crate::verbs::soft::signal::Signal;

    /// What stands between the devices of a simulation: each link is cut in two, and whoever simulates
    /// carries the bytes from one half to the other.
    pub(super) struct Relay {
        cables: Mutex<Vec<Cable>>,
        /// The ends in the middle wake nobody: they are looked at.
        nobody: Arc<Signal>,
    }

    /// The middle of a link: what the device on side 0 or 1 writes is read here, and the reverse.
    pub(crate) struct Cable {
        /// The devices at its ends.
        pub(crate) guids: [u64; 2],
        ends: [Option<MemEnd>; 2],
    }

    impl Fabric {
        /// A fabric of its own, whose links are carried by whoever takes its [`cables`](Self::cables).
        pub(crate) fn relayed() -> Result<Arc<Self>, VerbsError> {
            let relay = Relay { cables: Mutex::default(), nobody: Arc::new(Signal::new()?) };
            Ok(Arc::new(Self { devices: Mutex::default(), relay: Some(relay) }))
        }

        /// Links that were made since the last call.
        pub(crate) fn cables(&self) -> Vec<Cable> {
            let Some(relay) = &self.relay else { return Vec::new() };
            std::mem::take(&mut *relay.cables.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl Relay {
        pub(super) fn pair(&self, own: &Shared, peer: &Shared, bytes: usize) -> (MemEnd, MemEnd) {
            let (near, own_side) = MemEnd::pair(bytes, &own.signals.wake, &self.nobody);
            let (far, peer_side) = MemEnd::pair(bytes, &peer.signals.wake, &self.nobody);
            let cable =
                Cable { guids: [own.guid, peer.guid], ends: [Some(own_side), Some(peer_side)] };
            self.cables.lock().unwrap_or_else(PoisonError::into_inner).push(cable);
            (near, far)
        }
    }

    impl Cable {
        /// Takes what the device on this side has written; WouldBlock when that is nothing, 0 when it is
        /// gone.
        pub(crate) fn read(&self, side: usize, bytes: &mut [u8]) -> io::Result<usize> {
            let Some(end) = &self.ends[side] else { return Ok(0) };
            end.read(&mut [IoSliceMut::new(bytes)])
        }

        /// Gives bytes to the device on this side; WouldBlock when there is no room.
        pub(crate) fn write(&self, side: usize, bytes: &[u8]) -> io::Result<usize> {
            let Some(end) = &self.ends[side] else { return Err(io::ErrorKind::BrokenPipe.into()) };
            end.write(&[IoSlice::new(bytes)])
        }

        /// The device on this side sees the link end, once it has read what was given to it.
        pub(crate) fn close(&mut self, side: usize) {
            self.ends[side] = None;
        }
    }
}
