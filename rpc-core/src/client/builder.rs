use std::time::Duration;

use super::backoff::Backoff;
use super::channel::Channel;
use crate::cm::{Address, ConnectError, Target};
use crate::{Runtime, Status};

/// Collects a channel's settings.
#[derive(Debug)]
#[must_use = "a builder does nothing until connect() or connect_lazy()"]
pub struct ChannelBuilder {
    address: String,
    runtime: Option<Runtime>,
    options: ChannelOptions,
}

#[derive(Clone, Debug)]
pub(super) struct ChannelOptions {
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) connections_per_core: usize,
    pub(super) message_bytes_max: u64,
    pub(super) wait_for_ready: bool,
    pub(super) backoff: Backoff,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            timeout: None,
            connections_per_core: 1,
            message_bytes_max: u64::MAX,
            wait_for_ready: false,
            backoff: Backoff::default(),
        }
    }
}

/// Connections of a channel on one core at most.
const CONNECTIONS_PER_CORE_MAX: usize = 64;

impl ChannelBuilder {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), runtime: None, options: ChannelOptions::default() }
    }

    /// Uses this runtime instead of the process's shared one.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// How long one attempt to connect, by one of the server's devices, may take until the control
    /// connection is agreed; the system's resolver has a limit of its own, and the confirmation over the queue pair that follows takes
    /// 5 s at most. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// The timeout of calls that set no deadline of their own. Default: none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Connections for each core, 1 to 64. More than the default of one pays only where bulk
    /// transfers and small calls should not share a queue pair.
    pub fn connections_per_core(mut self, connections: usize) -> Self {
        self.options.connections_per_core = connections.clamp(1, CONNECTIONS_PER_CORE_MAX);
        self
    }

    /// The longest request sent. Default: what the server and the runtime's memory allow.
    pub fn message_bytes_max(mut self, bytes: u64) -> Self {
        self.options.message_bytes_max = bytes;
        self
    }

    /// Whether calls wait for a connection while the server cannot be reached, until their deadline; a call
    /// may say otherwise ([`Request::set_wait_for_ready`](crate::Request::set_wait_for_ready)). Default: no;
    /// a call waits for an attempt that is being made, and fails at once, UNAVAILABLE and not executed,
    /// while the next attempt is not due yet.
    pub fn wait_for_ready(mut self, wait: bool) -> Self {
        self.options.wait_for_ready = wait;
        self
    }

    /// How long the channel waits after an attempt to connect failed, before the next one: `first` after
    /// the first failure, twice as long after each further one, `most` at most, and at random up to half
    /// of it less. A connection ends the count. Attempts are made for calls only, one at a time on each
    /// core. 1 ms to an hour; default: 50 ms and 3 s.
    pub fn reconnect_backoff(mut self, first: Duration, most: Duration) -> Self {
        self.options.backoff = Backoff::new(first, most);
        self
    }

    /// Connects now.
    ///
    /// # Errors
    /// As [`Channel::connect`]. Dropping the future gives the attempt up.
    pub async fn connect(self) -> Result<Channel, Status> {
        let channel = self.connect_lazy()?;
        channel.connect_all().await?;
        Ok(channel)
    }

    /// Connects with the first call.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an address that cannot be understood.
    pub fn connect_lazy(self) -> Result<Channel, Status> {
        let address: Address = self.address.parse().map_err(ConnectError::from)?;
        address.device()?;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::shared()?,
        };
        let target = Target::Address(address.with_defaults(runtime.rdma_options()));
        Ok(Channel::new(runtime, target, self.address, self.options, None))
    }
}
