//! What is put under arbitrary input, and the properties that must hold.

mod address;
mod blocks;
pub(crate) mod body;
mod control;
mod handshake;
mod link;
mod make;
mod message;
mod send;

use super::connection;

/// A function of bytes that panics when a property does not hold.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Inputs of the fixed run beside the corpus: together some seconds on a busy machine.
    pub(crate) iterations: u64,
    /// Bytes of an input at most.
    pub(crate) len_max: usize,
    pub(crate) run: fn(&[u8]),
}

/// Every target.
pub(crate) static TARGETS: [Target; 11] = [
    Target { name: "control", iterations: 20_000, len_max: 4096, run: control::run },
    Target { name: "handshake", iterations: 5_000, len_max: 4096, run: handshake::run },
    Target { name: "send", iterations: 20_000, len_max: 9216, run: send::run },
    Target { name: "body", iterations: 20_000, len_max: 9216, run: body::run },
    Target { name: "segments", iterations: 20_000, len_max: 4096, run: blocks::segments },
    Target { name: "metadata", iterations: 20_000, len_max: 4200, run: blocks::metadata },
    Target { name: "status", iterations: 20_000, len_max: 4096, run: blocks::status },
    Target { name: "message", iterations: 10_000, len_max: 4096, run: message::run },
    Target { name: "address", iterations: 20_000, len_max: 600, run: address::run },
    Target { name: "link", iterations: 300, len_max: 4096, run: link::run },
    Target { name: "connection", iterations: 5_000, len_max: 4096, run: connection::run },
];

impl Target {
    pub(crate) fn named(name: &str) -> Result<&'static Self, String> {
        let all = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
        let found = TARGETS.iter().find(|target| target.name == name);
        found.ok_or_else(|| format!("no target is called '{name}'; there are: {}", all()))
    }
}
