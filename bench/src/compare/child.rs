//! The two processes of a peer.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use rpc_core::{Runtime, RuntimeBuilder, Server};

use super::cells::{self, Span};
use super::client::Client;
use super::peer::Peer;
use super::service::{BulkServer, Handling};
use super::{machine, raw, tonic_peer};
use crate::failure::Failure;

/// Payload memory: what is kept on each side stays below what users may hold.
const BUDGET_BYTES: u64 = 1 << 30;
/// A core that spins never sleeps while it is measured.
const SPINS: Duration = Duration::from_secs(60);
/// Threads of tokio's runtime where it has several.
const TOKIO_THREADS: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Options {
    peer: Peer,
    /// CPUs to keep to.
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// The server's address: this is its client.
    #[arg(long)]
    address: Option<String>,
    /// The server's process.
    #[arg(long, default_value_t = 0)]
    server: u32,
    /// Time for each cell, in milliseconds.
    #[arg(long, default_value_t = 250)]
    millis: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    machine::pin(&options.cpus)?;
    let Some(address) = &options.address else { return serve(options.peer) };
    let span = Span { time: Duration::from_millis(options.millis), server: options.server };
    for (name, value) in drive(options.peer, address, span)? {
        println!("{name} = {value}");
    }
    Ok(())
}

/// Serves until standard input ends: with the process that started it.
fn serve(peer: Peer) -> Result<(), Failure> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match peer {
        Peer::RawSpin | Peer::RawBlocking => raw::serve(peer == Peer::RawSpin),
        _ if peer.is_ours() => {
            let runtime = ours(peer).build()?;
            let service = BulkServer::new(Handling::default());
            let server = Server::builder().runtime(&runtime).add_service(service);
            let bound = rpc_core::block_on(server.bind("soft://127.0.0.1:0"))?;
            println!("soft://{}", bound.local_addr());
            Ok(rpc_core::block_on(bound.serve())?)
        }
        _ => {
            let socket = peer.is_unix().then(|| socket_path(std::process::id()));
            tokio_runtime(peer)?.block_on(tonic_peer::serve(socket.as_deref()))
        }
    }
}

/// Where a server of this process listens, if on a Unix socket.
pub(super) fn socket_path(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("bench-{process}.socket"))
}

fn ours(peer: Peer) -> RuntimeBuilder {
    let spin = if peer == Peer::OursSpin { SPINS } else { Duration::ZERO };
    Runtime::builder().budget_bytes(BUDGET_BYTES).spin(spin)
}

fn tokio_runtime(peer: Peer) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = if peer.is_multi() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    Ok(builder.worker_threads(TOKIO_THREADS).enable_all().build()?)
}

fn drive(peer: Peer, address: &str, span: Span) -> Result<Vec<cells::Value>, Failure> {
    match peer {
        Peer::RawSpin | Peer::RawBlocking => raw::drive(address, peer == Peer::RawSpin, span),
        Peer::OursSpin | Peer::OursSleep => {
            let mut core = ours(peer).on_this_thread()?;
            let runtime = core.runtime().clone();
            core.block_on(async {
                let on_core = Some(runtime.clone());
                cells::all(&Client::ours(address, &runtime, on_core).await?, span).await
            })
        }
        Peer::OursTokio => {
            let runtime = ours(peer).build()?;
            tokio_runtime(peer)?.block_on(async {
                cells::all(&Client::ours(address, &runtime, None).await?, span).await
            })
        }
        Peer::OursBlocking => {
            let runtime = ours(peer).build()?;
            rpc_core::block_on(async {
                cells::all(&Client::ours(address, &runtime, None).await?, span).await
            })
        }
        _ => tokio_runtime(peer)?
            .block_on(async { cells::all(&Client::tonic(address, peer).await?, span).await }),
    }
}
