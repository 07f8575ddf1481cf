//! ruapc: requests in RC SENDs; threads that poll hand over to tokio's. It fetches payloads by READ.
//! All settings are its own, but for the device.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::ruapc::rdma::{RdmaPathPolicyConfig, RdmaSocketPoolConfig};
use ::ruapc::{Client, Context, Endpoint, Router, Server, SocketPoolConfig, Transport};
use tokio::runtime::Runtime;

use crate::failure::Failure;
use crate::measure::{
    self, ANSWER_MAX, CONNECT_MAX, OUTSTANDING, SMALL_BYTES, Value, latency, rate, unanswered,
};

/// Bytes of a payload.
const PAYLOAD_BYTES: usize = 1 << 20;
/// Payloads under way at once.
const PAYLOADS: usize = 4;

#[expect(clippy::ptr_arg, reason = "the macro takes requests by reference to their owned type")]
#[::ruapc::service]
trait Calls {
    /// Answers with what was asked.
    async fn echo(&self, context: &Context, request: &String) -> ::ruapc::Result<String>;
    /// Fetches the caller's payload by READ, and answers with its length.
    async fn fetch(&self, context: &Context, request: &()) -> ::ruapc::Result<usize>;
}

struct Service;

impl Calls for Service {
    async fn echo(&self, _: &Context, request: &String) -> ::ruapc::Result<String> {
        Ok(request.clone())
    }

    async fn fetch(&self, context: &Context, _: &()) -> ::ruapc::Result<usize> {
        let buffers = context.remote_read_all().await?;
        Ok(buffers.iter().map(|buffer| buffer.len()).sum())
    }
}

pub(crate) fn serve(device: &str, ip: IpAddr) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let mut router = Router::default();
        Arc::new(Service).ruapc_export(&mut router);
        let server = Server::create(router, &config(device))?;
        let address = server.listen(SocketAddr::new(ip, 0)).await?;
        println!("{address}");
        std::future::pending().await
    })
}

pub(crate) fn drive(
    device: &str,
    server: SocketAddr,
    time: Duration,
) -> Result<Vec<Value>, Failure> {
    let runtime = runtime()?;
    let context = {
        let _entered = runtime.enter();
        Context::create(&config(device))?.with_endpoint(Endpoint::rdma(Transport::TCP, [server])?)
    };
    let client = client();
    let request = "x".repeat(SMALL_BYTES);
    let mut values = latency(time, || runtime.block_on(echo(&client, &context, &request)))?;
    let calls = rate(time, |time| {
        let until = Instant::now() + time;
        at_once(&runtime, OUTSTANDING, || echoes(context.clone(), until))
    })?;
    values.push((measure::rate_name(), calls));
    let payloads = rate(time, |time| {
        let until = Instant::now() + time;
        at_once(&runtime, PAYLOADS, || fetches(context.clone(), until))
    })?;
    let gigabytes = payloads * PAYLOAD_BYTES as f64 / 1e9;
    values.push((format!("1 MiB x{PAYLOADS} GB/s"), gigabytes));
    Ok(values)
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

fn config(device: &str) -> SocketPoolConfig {
    let path =
        RdmaPathPolicyConfig { device_filter: vec![device.to_owned()], ..Default::default() };
    SocketPoolConfig {
        rdma: Some(RdmaSocketPoolConfig { path, ..Default::default() }),
        ..Default::default()
    }
}

fn client() -> Client {
    Client { timeout: ANSWER_MAX, connect_timeout: CONNECT_MAX, ..Default::default() }
}

async fn echo(client: &Client, context: &Context, request: &String) -> Result<(), Failure> {
    let answer = client.echo(context, request).await.map_err(|error| unanswered("echo", error))?;
    if answer == *request {
        return Ok(());
    }
    Err(Failure::new(format!("an answer of {} bytes that is not the request", answer.len())))
}

async fn echoes(context: Context, until: Instant) -> Result<u64, Failure> {
    let (client, request) = (client(), "x".repeat(SMALL_BYTES));
    let mut calls = 0;
    while Instant::now() < until {
        echo(&client, &context, &request).await?;
        calls += 1;
    }
    Ok(calls)
}

async fn fetches(context: Context, until: Instant) -> Result<u64, Failure> {
    let mut payload = context.state.buffer_pool.allocate(PAYLOAD_BYTES)?;
    payload.set_len(PAYLOAD_BYTES);
    payload.fill(7);
    let client = client();
    let source = client.with_read_buffer(payload);
    let mut calls = 0;
    while Instant::now() < until {
        let len = source.fetch(&context, &()).await.map_err(|error| unanswered("fetch", error))?;
        if len != PAYLOAD_BYTES {
            return Err(Failure::new(format!("{len} bytes were fetched, not {PAYLOAD_BYTES}")));
        }
        calls += 1;
    }
    Ok(calls)
}

/// As many tasks as are wanted, and what they did in all.
fn at_once<F>(runtime: &Runtime, tasks: usize, task: impl Fn() -> F) -> Result<u64, Failure>
where
    F: Future<Output = Result<u64, Failure>> + Send + 'static,
{
    let tasks: Vec<_> = (0..tasks).map(|_| runtime.spawn(task())).collect();
    runtime.block_on(async {
        let mut calls = 0;
        for task in tasks {
            calls += task.await??;
        }
        Ok(calls)
    })
}
