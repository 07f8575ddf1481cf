//! The two processes of this framework: one serves, the other calls and counts.

use std::io::Read;
use std::time::Duration;

use rpc_core::bytes::Bytes;
use rpc_core::{Channel, Runtime, RuntimeBuilder, Server};

use super::service::{self, Counted, CountsClient, CountsOf, CountsServer, Nothing};
use crate::compare::cells::{self, Span, Value};
use crate::compare::client::Client;
use crate::compare::machine;
use crate::compare::service::{Blob, BulkServer, Handling};
use crate::failure::Failure;
use crate::instructions::step;

/// Bytes of a large payload.
const LARGE_BYTES: usize = 1 << 20;
/// Large calls at once: as many as the issue of READs is worth comparing at.
const LARGE_AT_ONCE: usize = 4;
/// Calls that show what the CPU takes for one.
const SOFTWARE_CALLS: u64 = 4_000;
/// Such calls, one outstanding and many, and the part of their instructions that is not the software device's:
/// `bench -- instructions` lists which are.
const SOFTWARE: [(u64, f64); 2] = [(1, 0.67), (64, 0.96)];
/// Connecting takes hundreds of system calls: under strace, in an emulated machine, many seconds.
const CONNECT_WITHIN: Duration = Duration::from_secs(60);
/// What is measured, in this order.
pub(super) const CELLS: [&str; 4] =
    ["1 outstanding", "64 outstanding", "1 MiB requests", "1 MiB answers"];
/// A core that spins never sleeps while it is measured, as perftest's processes do not.
const SPINS: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Serves at this address.
    #[arg(long, conflicts_with = "call")]
    serve: Option<String>,
    /// Calls the server at this address, as the client of server process `--server`.
    #[arg(long)]
    call: Option<String>,
    #[arg(long, default_value_t = 0)]
    server: u32,
    /// What of a call is no device's work, on this machine's CPU.
    #[arg(long)]
    software: bool,
    /// CPUs to keep to.
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Time for each cell, in milliseconds.
    #[arg(long, default_value_t = 500)]
    millis: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    machine::pin(&options.cpus)?;
    if options.software {
        return software();
    }
    if let Some(address) = &options.serve {
        return serve(address);
    }
    let address = options.call.as_ref().ok_or_else(|| Failure::new("--serve or --call"))?;
    let span = Span { time: Duration::from_millis(options.millis), server: options.server };
    let mut core = spinning().on_this_thread()?;
    let runtime = core.runtime().clone();
    for (name, value) in core.block_on(measure(address, &runtime, span))? {
        println!("{name} = {value}");
    }
    Ok(())
}

fn spinning() -> RuntimeBuilder {
    Runtime::builder().spin(SPINS)
}

/// Serves until standard input ends: with the process that started it.
fn serve(address: &str) -> Result<(), Failure> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = spinning().build()?;
    let server = Server::builder()
        .runtime(&runtime)
        .add_service(BulkServer::new(Handling::default()))
        .add_service(CountsServer::new(CountsOf(runtime.clone())));
    let bound = rpc_core::block_on(server.bind(address))?;
    println!("{}", bound.local_addr().port());
    Ok(rpc_core::block_on(bound.serve())?)
}

/// Calls over a link in memory, both cores turned by this thread: CPU time and nothing else.
fn software() -> Result<(), Failure> {
    for (outstanding, share) in SOFTWARE {
        step::timed(SOFTWARE_CALLS / 4, outstanding)?;
        let took = step::timed(SOFTWARE_CALLS, outstanding)?;
        let micros = took.as_secs_f64() * 1e6 / SOFTWARE_CALLS as f64;
        println!("software {outstanding} outstanding us = {}", micros * share);
    }
    Ok(())
}

/// Both sides' counts.
struct Counting {
    server: CountsClient,
    runtime: Runtime,
    before: [Counted; 2],
}

impl Counting {
    async fn start(channel: &Channel, runtime: &Runtime) -> Result<Self, Failure> {
        let server = CountsClient::new(channel.clone());
        let mut counting = Self { server, runtime: runtime.clone(), before: Default::default() };
        counting.before = counting.now().await?;
        Ok(counting)
    }

    async fn now(&self) -> Result<[Counted; 2], Failure> {
        let server = self.server.counted(Nothing {}).await?.into_inner();
        Ok([service::look(&self.runtime), server])
    }

    /// What was counted of each call since the last look.
    async fn look(&mut self, cell: &str) -> Result<Vec<Value>, Failure> {
        let now = self.now().await?;
        let mut values = Vec::new();
        for (side, name) in ["client", "server"].into_iter().enumerate() {
            let counts = now[side].per_call_since(&self.before[side]);
            values.extend(counts.map(|(what, count)| (format!("{cell} {name} {what}"), count)));
        }
        self.before = now;
        Ok(values)
    }
}

async fn measure(address: &str, runtime: &Runtime, span: Span) -> Result<Vec<Value>, Failure> {
    let channel = Channel::builder(address)
        .runtime(runtime)
        .connect_timeout(CONNECT_WITHIN)
        .connect()
        .await?;
    let client = Client::on_core(channel.clone(), runtime);
    let mut counting = Counting::start(&channel, runtime).await?;
    let [one, many, requests, answers] = CELLS;
    let mut values = cells::latency(&client, span).await?;
    values.extend(counting.look(one).await?);
    values.extend(cells::rate(&client, span, 64).await?);
    values.extend(counting.look(many).await?);
    for (name, answers) in [(requests, false), (answers, true)] {
        let rate = large(&client, span, answers).await?;
        values.push((format!("{name} MB/s"), rate * 1e3));
        values.extend(counting.look(name).await?);
    }
    Ok(values)
}

/// Large payloads one way, GB/s. Each call in flight has one of its own that it sends again and again.
async fn large(client: &Client, span: Span, answers: bool) -> Result<f64, Failure> {
    let payloads: Result<Vec<Bytes>, _> =
        (0..LARGE_AT_ONCE).map(|_| client.payload(LARGE_BYTES)).collect();
    let payloads = payloads?;
    // What the server answers with.
    client.put(Blob { data: payloads[0].clone() }).await?;
    let next = std::sync::atomic::AtomicUsize::new(0);
    let next = std::sync::Arc::new(next);
    let own = client.clone();
    cells::gigabytes(client, span, LARGE_BYTES, LARGE_AT_ONCE, move || {
        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % LARGE_AT_ONCE;
        let (client, data) = (own.clone(), payloads[at].clone());
        async move {
            if answers {
                client.get().await.map(|_| ())
            } else {
                client.put(Blob { data }).await.map(|_| ())
            }
        }
    })
    .await
}
