use std::time::Instant;

use crate::verbs::Device;

/// What kind of device a fabric has, for the marks of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "tests are marked for devices that a build may not have")]
pub(in crate::verbs) enum Kind {
    /// The software device of this crate.
    Soft,
    /// The kernel's soft-RoCE through libibverbs.
    IbvRxe,
    /// A NIC through libibverbs.
    Ibv,
}

/// A way to have two devices that can reach each other.
pub(in crate::verbs) trait Fabric: Sized + 'static {
    /// The device.
    type Device: Device;

    /// Its kind.
    const KIND: Kind;

    /// Opens both; they may be one.
    fn open() -> (Self, Self::Device, Self::Device);

    /// Lets time pass: neither device had anything. A device whose timers run on a clock of the
    /// test's own moves it by about 200 µs; another may sleep for as long.
    fn pause(&self);

    /// Whether a test that waits since `begun`, and has paused so often, waits in vain.
    fn gives_up(&self, pauses: u32, begun: Instant) -> bool;
}
