use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::AddressError;
use crate::Code;
use crate::verbs::{OpenError, VerbsError};
use crate::wire::Features;

/// Why a connection, or a listener, did not come about.
///
/// Each variant's sentence says what failed, the likely cause and what to do. What the peer is told
/// is shorter: see [`ConnectError::refusal`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address cannot be read, or does not fit what it is used for.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The name has no address.
    #[error(
        "the name {host:?} does not resolve ({reason}); check its spelling, /etc/hosts and the \
         name server, or use an IP address"
    )]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// The host answered that nothing listens on the port.
    #[error(
        "nothing listens on {to}: the connection was refused; is the server running, and is it \
         bound to this address and port?"
    )]
    Refused {
        /// Where.
        to: SocketAddr,
    },
    /// The network has no way to the host.
    #[error("{to} cannot be reached ({source}); check the route, the firewall and the address")]
    Unreachable {
        /// Where.
        to: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Another socket listens on the port.
    #[error(
        "port {} on {} is in use by another program; choose another port, or 0 for any free one",
        at.port(), at.ip()
    )]
    PortInUse {
        /// Where.
        at: SocketAddr,
    },
    /// No interface of this machine has the address.
    #[error(
        "this machine has no interface with the address {}; listen on one of its own addresses, \
         or on 0.0.0.0 or [::] for all of them", at.ip()
    )]
    NotLocal {
        /// Where.
        at: SocketAddr,
    },
    /// The system does not let this program listen on the port.
    #[error(
        "this program may not listen on port {}; choose a port from 1024 up, or give it the \
         capability CAP_NET_BIND_SERVICE", at.port()
    )]
    PortForbidden {
        /// Where.
        at: SocketAddr,
    },
    /// The deadline passed.
    #[error("connecting timed out {step}; {}", step.advice())]
    TimedOut {
        /// What was being waited for.
        step: Step,
    },
    /// The peer closed the control connection before the handshake was done.
    #[error(
        "the peer closed the control connection {step}; it may have been stopped, or be at one of \
         its limits: look at its log"
    )]
    Closed {
        /// What was being waited for.
        step: Step,
    },
    /// No version of the protocol is spoken by both sides.
    #[error(
        "no common protocol version: this program speaks {own_min} to {own_max}, the peer \
         {peer_min} to {peer_max}; upgrade {}",
        if own_max < peer_min { "this program" } else { "the peer" }
    )]
    Version {
        /// The oldest that this program speaks.
        own_min: u16,
        /// The newest that this program speaks.
        own_max: u16,
        /// The oldest that the peer speaks.
        peer_min: u16,
        /// The newest that the peer speaks.
        peer_max: u16,
    },
    /// One side requires what the other does not offer.
    #[error(
        "{} requires protocol features ({features}) that {} does not have; upgrade {}, or turn \
         the features off where they are required",
        if *by_peer { "the peer" } else { "this program" },
        if *by_peer { "this program" } else { "the peer" },
        if *by_peer { "this program" } else { "the peer" },
    )]
    Feature {
        /// What is required and not offered.
        features: Features,
        /// Whether the peer is the one that requires them.
        by_peer: bool,
    },
    /// What answers is another kind of server.
    #[error(
        "the peer answers, but does not speak this protocol; check the port: is this the RPC \
         server's own, not that of a web server or of gRPC?"
    )]
    NotThisProtocol,
    /// The peer broke the rules of the handshake.
    #[error("the peer sent a control message that cannot be used: {what}; is its version sound?")]
    Malformed {
        /// What is wrong with it.
        what: String,
    },
    /// The peer's device cannot talk to ours.
    #[error(
        "the peer's device is of another kind than ours: one address says soft:// and the other \
         rdma://; use the same scheme at both ends"
    )]
    OtherDevice,
    /// The two ports cannot reach each other.
    #[error("the two ends' RDMA devices cannot talk to each other: {why}")]
    OtherPort {
        /// What differs, and which option mends it.
        why: &'static str,
    },
    /// The server has no device of the kind that the address asks for.
    #[error(
        "the server offers no {wanted} at this address; use {instead} or auto://, or the server's address \
         of a network that has it (its log says what it has)",
        wanted = if *offers_rdma { "software device" } else { "RDMA" },
        instead = if *offers_rdma { "rdma://" } else { "soft://" },
    )]
    NotOffered {
        /// Whether RDMA is what it offers.
        offers_rdma: bool,
    },
    /// This side's own message breaks a rule of the wire format: a value that the runtime was built
    /// with is out of its range.
    #[error(
        "this program's own {kind} breaks a rule of the protocol; check the runtime's settings \
         (eager buffers of 8 to 64 KiB, a multiple of 8)"
    )]
    OwnMessage {
        /// Which message.
        kind: &'static str,
    },
    /// The peer said no.
    #[error("the peer refused the connection ({code:?}): {message}")]
    PeerRefused {
        /// Its code.
        code: Code,
        /// Whether its device is why, or ours.
        of_device: bool,
        /// Its own words, with control characters escaped.
        message: String,
    },
    /// `rdma://` without the feature `verbs`.
    #[error(
        "rdma:// needs this program to be built with the feature `verbs` of rpc-core; add it, or \
         use auto:// or soft://"
    )]
    VerbsFeatureMissing,
    /// The device has no type-2 memory windows.
    #[error(
        "the RDMA device {device} has no memory windows of type 2, without which a peer could read \
         all payload memory; name another device (?device=), or use soft://"
    )]
    NoWindows {
        /// Its name.
        device: String,
    },
    /// The process may not lock as much memory as its budget.
    #[error(
        "RDMA locks the memory it uses, and this runtime's budget of {budget_bytes} bytes is more \
         than the {max_bytes} that fit below this process's limit (RLIMIT_MEMLOCK) of {limit_bytes}; \
         raise the limit (ulimit -l, LimitMEMLOCK= of a systemd unit, or the capability \
         CAP_IPC_LOCK), or give the runtime a smaller budget_bytes"
    )]
    Memlock {
        /// The runtime's budget.
        budget_bytes: u64,
        /// The process's limit.
        limit_bytes: u64,
        /// The largest budget below it.
        max_bytes: u64,
    },
    /// A verb failed.
    #[error("the device could not make the connection: {0}")]
    Device(#[from] VerbsError),
    /// The receives that every connection owns for its life cannot be backed.
    #[error("no memory for the connection's guaranteed receives: {what}; raise the budget")]
    NoMemory {
        /// What was missing.
        what: String,
    },
    /// The server is not there, or is shutting down.
    #[error("the server is not there any more: it was shut down or never started")]
    NoServer,
    /// This process takes part in too many handshakes at once.
    #[error("{max} handshakes are under way, the most allowed at once; try again after a moment")]
    TooManyHandshakes {
        /// The limit.
        max: usize,
    },
    /// The control thread's queue is full.
    #[error("{max} connection requests wait already, the most allowed; try again after a moment")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// The runtime is shutting down.
    #[error("the runtime is shutting down")]
    ShutDown,
    /// A system call failed for a reason that has no variant of its own.
    #[error("{operation} failed: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl ConnectError {
    /// The status code that a user sees.
    pub fn code(&self) -> Code {
        match self {
            Self::Address(_) | Self::PortForbidden { .. } | Self::NotLocal { .. } => {
                Code::InvalidArgument
            }
            Self::TimedOut { .. } => Code::DeadlineExceeded,
            // A link comes back, and the next attempt finds it.
            Self::Device(VerbsError::Open(OpenError::PortDown { .. })) => Code::Unavailable,
            Self::Version { .. }
            | Self::Feature { .. }
            | Self::NotThisProtocol
            | Self::PortInUse { .. }
            | Self::OtherDevice
            | Self::OtherPort { .. }
            | Self::NotOffered { .. }
            | Self::Device(VerbsError::Open(_))
            | Self::NoWindows { .. }
            | Self::Memlock { .. }
            | Self::VerbsFeatureMissing => Code::FailedPrecondition,
            Self::NoMemory { .. } | Self::TooManyHandshakes { .. } | Self::Busy { .. } => {
                Code::ResourceExhausted
            }
            Self::PeerRefused { code, .. } => *code,
            Self::Malformed { .. } | Self::OwnMessage { .. } => Code::Internal,
            _ => Code::Unavailable,
        }
    }

    /// Whether it concerns the device that a connection was to be made on, at either end, so that another one
    /// may do.
    pub fn concerns_device(&self) -> bool {
        matches!(
            self,
            Self::PeerRefused { of_device: true, .. }
                | Self::Device(_)
                | Self::NoWindows { .. }
                | Self::Memlock { .. }
                | Self::OtherDevice
                | Self::OtherPort { .. }
                | Self::NotOffered { .. }
                | Self::VerbsFeatureMissing
        )
    }

    /// What the peer is told: a code and a sentence that names nothing of this machine.
    pub fn refusal(&self) -> (Code, String) {
        let text = match self {
            Self::Version { own_min, own_max, peer_min, peer_max } => format!(
                "no common protocol version: you speak {peer_min} to {peer_max}, this side \
                 {own_min} to {own_max}; upgrade {}",
                if own_max < peer_min { "this side" } else { "your side" }
            ),
            Self::Feature { features, by_peer: true } => {
                format!("this side does not have the features you require ({features})")
            }
            Self::Feature { features, by_peer: false } => {
                format!("this side requires features you do not offer ({features})")
            }
            Self::TimedOut { step } => format!("the handshake timed out {step}"),
            Self::Malformed { what } => format!("your control message cannot be used: {what}"),
            Self::OtherDevice => {
                "your device is of another kind than this side's: use the same scheme, soft:// or \
                 rdma://, at both ends"
                    .to_owned()
            }
            Self::NotOffered { offers_rdma } => format!(
                "this server has no {}",
                if *offers_rdma {
                    "software device here"
                } else {
                    "RDMA device that could be used"
                }
            ),
            Self::NotThisProtocol => "that is not this protocol".to_owned(),
            Self::Device(_) => "this side's device could not make the connection".to_owned(),
            Self::NoMemory { .. } => {
                "this side has no memory for another connection's receives".to_owned()
            }
            Self::NoServer | Self::ShutDown => "this server is shutting down".to_owned(),
            Self::TooManyHandshakes { .. } | Self::Busy { .. } => {
                "this side is in too many handshakes; try again after a moment".to_owned()
            }
            Self::OtherPort { why } => format!("the two devices cannot talk to each other: {why}"),
            _ => "this side could not make the connection; see its log".to_owned(),
        };
        (self.code(), text)
    }
}

/// What a handshake waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The request waits in the control thread's queue.
    Queue,
    /// The host has not answered the TCP connection.
    Connect,
    /// The peer's hello has not arrived.
    Hello,
    /// The peer's device address has not arrived.
    Blob,
    /// The core has not taken the QP.
    Install,
    /// The peer does not read.
    Send,
}

impl Step {
    fn advice(self) -> &'static str {
        match self {
            Self::Queue => "this process was busy with other connections, or with a slow resolver",
            Self::Connect => "check the address, the route and the firewall",
            Self::Hello => "check that the port is the RPC server's; the server may be overloaded",
            Self::Blob => "the peer may be overloaded: look at its log",
            Self::Install => "this process's core is stalled: look for a handler that blocks it",
            Self::Send => "the peer may be stopped, or is not the RPC server",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "before it began",
            Self::Connect => "while the host did not answer",
            Self::Hello => "while waiting for the peer's hello",
            Self::Blob => "while waiting for the peer's device address",
            Self::Install => "while waiting for the core to take the connection",
            Self::Send => "while the peer did not read",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_error_names_the_side_to_upgrade() {
        let older = ConnectError::Version { own_min: 1, own_max: 1, peer_min: 2, peer_max: 3 };
        assert!(older.to_string().ends_with("upgrade this program"), "{older}");
        assert!(older.refusal().1.ends_with("upgrade this side"));
        let newer = ConnectError::Version { own_min: 4, own_max: 5, peer_min: 2, peer_max: 3 };
        assert!(newer.to_string().ends_with("upgrade the peer"), "{newer}");
        assert!(newer.refusal().1.ends_with("upgrade your side"));
    }

    #[test]
    fn a_link_that_is_down_is_unavailable_and_a_device_that_is_not_there_is_not() {
        let device = || "nic".to_owned();
        let down = OpenError::PortDown { device: device(), port: 1, state: "down".into() };
        let missing = OpenError::NoSuchPort { device: device(), port: 3, ports: 2 };
        let code = |error: OpenError| ConnectError::Device(error.into()).code();
        assert_eq!(code(down), Code::Unavailable);
        assert_eq!(code(missing), Code::FailedPrecondition);
    }

    #[test]
    fn a_refusal_tells_nothing_of_this_machine() {
        let at: SocketAddr = "10.1.2.3:77".parse().unwrap();
        for error in [
            ConnectError::PortInUse { at },
            ConnectError::Refused { to: at },
            ConnectError::Device(VerbsError::Address("secret".into())),
            ConnectError::NoMemory { what: "secret".into() },
        ] {
            let (_, text) = error.refusal();
            assert!(!text.contains("10.1.2.3") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_port_in_use_says_what_to_do() {
        let error = ConnectError::PortInUse { at: "127.0.0.1:7471".parse().unwrap() };
        assert_eq!(
            error.to_string(),
            "port 7471 on 127.0.0.1 is in use by another program; choose another port, or 0 for \
             any free one"
        );
    }
}
