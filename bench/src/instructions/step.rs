//! Calls between a client's core and a server's, both turned by this thread over a link in memory.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rpc_core::bytes::Bytes;
use rpc_core::{Channel, LocalRuntime, Runtime, Server};

use crate::echo::{Blob, EchoClient, EchoServer, Echoing};
use crate::failure::Failure;

/// Bytes of a request and of its answer.
const BLOB_BYTES: usize = 64;

/// Attempts to connect: under callgrind, on a busy machine, a handshake may take longer than it may.
const ATTEMPTS: u32 = 20;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Calls to make.
    #[arg(long)]
    calls: u64,
    /// Calls in flight at once; with 0, each core only looks that often and finds nothing.
    #[arg(long, default_value_t = 1)]
    outstanding: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    timed(options.calls, options.outstanding).map(drop)
}

/// Makes the calls; how long they took, beside what comes before them.
pub(crate) fn timed(calls: u64, outstanding: u64) -> Result<Duration, Failure> {
    let local = || Runtime::builder().budget_bytes(64 << 20).on_this_thread();
    let (mut server, mut client) = (local()?, local()?);
    let serving = Server::builder().runtime(server.runtime()).add_service(EchoServer::new(Echoing));
    let bound = server.block_on(serving.bind("soft://127.0.0.1:0"))?;
    let address = format!("soft://{}", bound.local_addr());
    let runtime = client.runtime().clone();
    let connecting = async move {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match Channel::builder(&address).runtime(&runtime).connect().await {
                Ok(channel) => return Ok(EchoClient::new(channel)),
                Err(status) if attempts == 0 => return Err(status.into()),
                Err(_) => {}
            }
        }
    };
    // While the control thread connects, turns pass that depend on the time; they are not counted.
    let echo_client = turn_until(&mut client, &mut server, connecting)?;
    let began = Instant::now();
    if outstanding == 0 {
        counted_looks(&mut client, &mut server, calls);
        return Ok(began.elapsed());
    }
    counted_calls(&mut client, &mut server, async move {
        echo(&echo_client, calls, outstanding).await
    })?;
    Ok(began.elapsed())
}

/// What callgrind collects, by this name.
#[inline(never)]
fn counted_calls(
    client: &mut LocalRuntime,
    server: &mut LocalRuntime,
    calls: impl Future<Output = Result<(), Failure>> + 'static,
) -> Result<(), Failure> {
    turn_until(client, server, calls)
}

/// Looks of both cores: what callgrind collects by this name.
#[inline(never)]
fn counted_looks(client: &mut LocalRuntime, server: &mut LocalRuntime, looks: u64) {
    for _ in 0..looks {
        step(client);
        step(server);
    }
}

/// Turns both cores until the client's task has ended.
fn turn_until<T: 'static>(
    client: &mut LocalRuntime,
    server: &mut LocalRuntime,
    task: impl Future<Output = Result<T, Failure>> + 'static,
) -> Result<T, Failure> {
    let result = Rc::new(Cell::new(None));
    let ended = Rc::clone(&result);
    let _task = client.spawn_local(async move { ended.set(Some(task.await)) });
    loop {
        step(client);
        step(server);
        if let Some(result) = result.take() {
            return result;
        }
    }
}

fn step(core: &mut LocalRuntime) {
    // What a turn did is not asked for: the other core turns next either way.
    let _ = core.turn();
}

async fn echo(client: &EchoClient, calls: u64, outstanding: u64) -> Result<(), Failure> {
    let data = Bytes::from_static(&[7; BLOB_BYTES]);
    let one = || client.echo(Blob { data: data.clone() });
    if outstanding == 1 {
        for _ in 0..calls {
            one().await?;
        }
        return Ok(());
    }
    let mut begun = outstanding.min(calls);
    let mut running: FuturesUnordered<_> = (0..begun).map(|_| one()).collect();
    while let Some(answer) = running.next().await {
        answer?;
        if begun < calls {
            begun += 1;
            running.push(one());
        }
    }
    Ok(())
}
