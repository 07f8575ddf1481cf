use clap::ValueEnum;

/// What is measured: a client process and a server process of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// A socket whose ends never sleep.
    RawSpin,
    /// A socket whose ends sleep.
    RawBlocking,
    /// Calls from a task of the client's core; both cores spin.
    OursSpin,
    /// The same; cores sleep at once.
    OursSleep,
    /// Calls from tokio, on another thread than the client's core; cores sleep at once.
    OursTokio,
    /// Calls from a plain thread by `block_on`; cores sleep at once.
    OursBlocking,
    /// tonic over TCP on one thread each.
    TonicTcp,
    /// tonic over TCP on tokio's threads.
    TonicTcpMulti,
    /// tonic over a Unix socket on one thread each.
    TonicUnix,
    /// tonic over a Unix socket on tokio's threads.
    TonicUnixMulti,
}

impl Peer {
    /// The row's name: who, which client, whether it spins.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::RawSpin => "raw TCP, spinning",
            Self::RawBlocking => "raw TCP, blocking",
            Self::OursSpin => "this crate, core-local, spinning",
            Self::OursSleep => "this crate, core-local, sleeping",
            Self::OursTokio => "this crate, from tokio, sleeping",
            Self::OursBlocking => "this crate, block_on, sleeping",
            Self::TonicTcp => "tonic TCP, current-thread",
            Self::TonicTcpMulti => "tonic TCP, multi-thread",
            Self::TonicUnix => "tonic Unix socket, current-thread",
            Self::TonicUnixMulti => "tonic Unix socket, multi-thread",
        }
    }

    /// The name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether this program has it.
    pub(super) fn is_built_in(self) -> bool {
        let is_tonic = !self.is_ours() && !matches!(self, Self::RawSpin | Self::RawBlocking);
        cfg!(feature = "tonic") || !is_tonic
    }

    /// Whether it is this crate.
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::OursSpin | Self::OursSleep | Self::OursTokio | Self::OursBlocking)
    }

    /// Whether it has more threads than one, and so is not kept to one CPU.
    pub(super) fn is_multi(self) -> bool {
        matches!(self, Self::TonicTcpMulti | Self::TonicUnixMulti)
    }

    /// Whether it goes over a Unix socket.
    pub(super) fn is_unix(self) -> bool {
        matches!(self, Self::TonicUnix | Self::TonicUnixMulti)
    }
}
