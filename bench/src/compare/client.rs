use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rpc_core::bytes::Bytes;
use rpc_core::{Channel, Runtime};

use super::peer::Peer;
use super::service::{Blob, BulkClient, Keep};
use super::tonic_peer;
use crate::failure::Failure;

/// A client of the service, of either framework.
#[derive(Clone)]
pub(crate) enum Client {
    Ours(BulkClient, Channel, OnCore),
    Tonic(tonic_peer::Client),
}

/// The runtime whose core makes the calls, as a task for each that is outstanding; without one, the
/// thread that waits for them does.
pub(crate) type OnCore = Option<Runtime>;

impl Client {
    pub(crate) async fn ours(
        address: &str,
        runtime: &Runtime,
        on_core: OnCore,
    ) -> Result<Self, Failure> {
        let channel = Channel::builder(address).runtime(runtime).connect().await?;
        Ok(Self::Ours(BulkClient::new(channel.clone()), channel, on_core))
    }

    /// One whose calls the runtime's own core makes.
    #[cfg(feature = "verbs")]
    pub(crate) fn on_core(channel: Channel, runtime: &Runtime) -> Self {
        Self::Ours(BulkClient::new(channel.clone()), channel, Some(runtime.clone()))
    }

    pub(crate) async fn tonic(address: &str, peer: Peer) -> Result<Self, Failure> {
        Ok(Self::Tonic(tonic_peer::Client::connect(address, peer.is_unix()).await?))
    }

    pub(crate) async fn echo(&self, blob: Blob) -> Result<Blob, Failure> {
        match self {
            Self::Ours(client, ..) => Ok(client.echo(blob).await?.into_inner()),
            Self::Tonic(client) => client.call("/bench.Bulk/echo", blob).await,
        }
    }

    pub(crate) async fn put(&self, blob: Blob) -> Result<Blob, Failure> {
        match self {
            Self::Ours(client, ..) => Ok(client.put(blob).await?.into_inner()),
            Self::Tonic(client) => client.call("/bench.Bulk/put", blob).await,
        }
    }

    pub(crate) async fn get(&self) -> Result<Blob, Failure> {
        match self {
            Self::Ours(client, ..) => Ok(client.get(Blob::default()).await?.into_inner()),
            Self::Tonic(client) => client.call("/bench.Bulk/get", Blob::default()).await,
        }
    }

    pub(crate) async fn keep(&self, bytes: usize) -> Result<(), Failure> {
        let keep = Keep { bytes: bytes as u64 };
        match self {
            Self::Ours(client, ..) => client.keep(keep).await.map(|_| ())?,
            Self::Tonic(client) => client.call("/bench.Bulk/keep", keep).await.map(|_| ())?,
        }
        Ok(())
    }

    /// A payload as a program that cares would have it: in payload memory, where there is any.
    pub(crate) fn payload(&self, len: usize) -> Result<Bytes, Failure> {
        match self {
            Self::Ours(_, channel, _) => {
                let mut buffer = channel.alloc(len)?;
                buffer.fill(7);
                Ok(buffer.freeze())
            }
            Self::Tonic(..) => Ok(vec![7; len].into()),
        }
    }

    /// Runs loops of calls at once: as tasks where there is something to run tasks, else in this one.
    pub(crate) async fn at_once<L>(&self, loops: Vec<L>) -> Result<u64, Failure>
    where
        L: Future<Output = Result<u64, Failure>> + Send + 'static,
    {
        let mut calls = 0;
        match self {
            Self::Ours(_, _, Some(runtime)) => {
                let tasks: Vec<_> =
                    loops.into_iter().map(|one| runtime.spawn_on(0, move || one)).collect();
                for task in tasks {
                    calls += task.await.map_err(|error| Failure::new(error.to_string()))??;
                }
            }
            _ if tokio::runtime::Handle::try_current().is_ok() => {
                let tasks: Vec<_> = loops.into_iter().map(tokio::spawn).collect();
                for task in tasks {
                    calls += task.await??;
                }
            }
            _ => {
                let mut running: FuturesUnordered<_> = loops.into_iter().collect();
                while let Some(done) = running.next().await {
                    calls += done?;
                }
            }
        }
        Ok(calls)
    }
}
