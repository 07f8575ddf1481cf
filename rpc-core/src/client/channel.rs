use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use super::builder::{ChannelBuilder, ChannelOptions};
use super::info::ConnectionInfo;
use super::lane::{Lane, LaneState};
use super::watch::{StateChange, Watch};
use crate::cm::{Route, Target};
use crate::engine::local;
use crate::mem::{PayloadMut, Share, Use};
use crate::{Runtime, Status};

/// A client's way to a server: a cheap clone, usable from any executor, from a plain thread
/// ([`block_on`](crate::block_on)) and from a core's own tasks.
///
/// It keeps one connection for each core of its runtime and server. Calls made on a core use that
/// core's connection without a hop; other threads spread over the cores. A connection that was lost
/// is made again by the next call; one whose server goes away ends its calls in progress, and the next call
/// makes another at once.
#[derive(Clone)]
pub struct Channel {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) runtime: Runtime,
    pub(super) lanes: Vec<Arc<Lane>>,
    pub(super) options: ChannelOptions,
    pub(super) watch: Arc<Watch>,
    shown: String,
    /// What ends with the channel: its server, if that is in this process.
    _keeps: Option<Box<dyn Any + Send + Sync>>,
}

/// What a channel's connections are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelState {
    /// No connection has been asked for yet.
    Idle,
    /// Being connected.
    Connecting,
    /// At least one connection can be used now.
    Ready,
    /// The last attempt failed, or the connections were lost. The next call tries again, or one that
    /// waits does, once the time between attempts has passed.
    Failed,
}

impl Channel {
    /// Connects to `scheme://host:port` on the process's shared runtime.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an address that cannot be understood; UNAVAILABLE with its cause when
    /// nothing answers there, the name does not resolve, or the versions do not fit.
    pub async fn connect(address: &str) -> Result<Self, Status> {
        Self::builder(address).connect().await
    }

    /// Begins a channel with settings of its own.
    pub fn builder(address: &str) -> ChannelBuilder {
        ChannelBuilder::new(address)
    }

    pub(super) fn new(
        runtime: Runtime,
        target: Target,
        shown: String,
        options: ChannelOptions,
        keeps: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let (watch, route) = (Arc::<Watch>::default(), Route::default());
        let lanes = (0..runtime.cores())
            .flat_map(|core| std::iter::repeat_n(core, options.connections_per_core))
            .map(|core| Lane::new(&runtime, core, target.clone(), &options, &watch, route.beside()))
            .collect();
        let inner = Inner { runtime, lanes, options, watch, shown, _keeps: keeps };
        Self { inner: Arc::new(inner) }
    }

    /// A channel to a server of this process; `keeps` is dropped with it.
    pub(crate) async fn in_process(
        runtime: Runtime,
        server: u64,
        keeps: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, Status> {
        let channel = Self::new(
            runtime,
            Target::InProcess { server },
            "in-process".to_owned(),
            ChannelOptions::default(),
            Some(keeps),
        );
        channel.connect_all().await?;
        Ok(channel)
    }

    /// Waits for every core's connection, which are made at the same time.
    pub(super) async fn connect_all(&self) -> Result<(), Status> {
        let runtime = &self.inner.runtime;
        let lanes = self.inner.lanes.iter();
        let mut pending: Vec<_> =
            lanes.map(|lane| Box::pin(lane.connection(runtime, None, false))).collect();
        std::future::poll_fn(|context| {
            let mut failed = None;
            pending.retain_mut(|connection| match connection.as_mut().poll(context) {
                Poll::Ready(made) => {
                    failed = failed.take().or_else(|| made.err());
                    false
                }
                Poll::Pending => true,
            });
            match failed {
                Some(status) => Poll::Ready(Err(status)),
                None if pending.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// What the channel's connections are doing.
    pub fn state(&self) -> ChannelState {
        self.inner.state()
    }

    /// Waits until the state is not `from` any more; at once if it is not now. A state that lasts for a
    /// moment only may be missed. The future keeps the channel.
    pub fn state_change(
        &self,
        from: ChannelState,
    ) -> impl Future<Output = ChannelState> + Send + use<> {
        StateChange { inner: Arc::clone(&self.inner), from, place: None }
    }

    /// Which kind of device carries the calls, `soft` or `rdma`, and why it was chosen, as in "soft: the address
    /// says soft://". With `auto://` the server has a say in it, so before the first connection it is not known.
    /// Of the first core's connection, or its last; those of other cores are made by the same rule. A
    /// connection keeps its way for its life: one that fell back to software goes back to RDMA when it has to be
    /// made anew, a minute later at the earliest.
    pub fn path(&self) -> String {
        let paths = self.inner.lanes.iter().find_map(|lane| lane.path());
        paths.map_or_else(|| "not connected yet".to_owned(), |path| path.to_string())
    }

    /// What was agreed for one of its connections, if there is one now. All are to the same address, and
    /// differ only while a server is being replaced.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.inner.lanes.iter().find_map(|lane| lane.info())
    }

    /// A buffer of `len` bytes in payload memory. Filled and frozen into a `bytes` field, it is
    /// advertised to the peer as it lies, without a copy.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the outbound share of the memory budget is used up, or could never
    /// hold so much.
    pub fn alloc(&self, len: usize) -> Result<PayloadMut, Status> {
        self.inner.runtime.pool().alloc(Share::Outbound, Use::Request, len).map_err(|error| {
            Status::resource_exhausted(error.to_string())
                .with_execution(crate::Execution::NotExecuted)
                .with_source(error)
        })
    }

    /// The lane for a call made here: this core's own, or one that this thread keeps to.
    pub(super) fn lane(&self) -> &Arc<Lane> {
        let lanes = &self.inner.lanes;
        if let Some(local) = local::current()
            && let Some(lane) = lanes.iter().find(|lane| Arc::ptr_eq(&lane.shared, &local.shared))
        {
            return lane;
        }
        &lanes[thread_number() % lanes.len()]
    }
}

impl Inner {
    pub(super) fn state(&self) -> ChannelState {
        let states: Vec<LaneState> = self.lanes.iter().map(|lane| lane.state()).collect();
        if states.contains(&LaneState::Ready) {
            ChannelState::Ready
        } else if states.contains(&LaneState::Connecting) {
            ChannelState::Connecting
        } else if states.contains(&LaneState::Failed) {
            ChannelState::Failed
        } else {
            ChannelState::Idle
        }
    }
}

/// A small number for each thread, in the order of their first calls.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(Some(new));
            new
        })
    })
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("to", &self.inner.shown)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.close();
        }
    }
}
