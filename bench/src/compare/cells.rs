//! What is measured of each peer, by its client.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rpc_core::bytes::Bytes;

use super::client::Client;
use super::machine::{cache_bytes, cpu_nanos};
use super::service::{Blob, Ring};
use crate::failure::Failure;

/// Bytes of a small request and of its answer.
pub(crate) const SMALL_BYTES: usize = 64;
/// Payload memory in use, as a multiple of the cache: what is used next has left the cache.
const CACHES: usize = 3;
/// Calls between looks at the clock, where many are in flight.
const CALLS_PER_LOOK: u64 = 16;
/// The part of a cell's time that warms it up and is not counted.
pub(crate) const WARM_UP_DIVISOR: u32 = 5;

/// A measured value: its cell and unit in one name.
pub(crate) type Value = (String, f64);

/// A time to measure for, and the server whose CPU time counts.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) time: Duration,
    pub(crate) server: u32,
}

/// CPU time of both sides since some moment.
struct Cpu {
    server: u32,
    at: [u64; 2],
}

impl Cpu {
    fn now(server: u32) -> Result<Self, Failure> {
        Ok(Self { server, at: [cpu_nanos(std::process::id())?, cpu_nanos(server)?] })
    }

    /// Microseconds of CPU for each of `calls`: this side, the server.
    fn per_call(&self, cell: &str, calls: u64) -> Result<[Value; 2], Failure> {
        let now = Self::now(self.server)?.at;
        let micros =
            |side: usize| now[side].saturating_sub(self.at[side]) as f64 / calls as f64 / 1e3;
        Ok([
            (format!("{cell} client CPU us"), micros(0)),
            (format!("{cell} server CPU us"), micros(1)),
        ])
    }
}

/// Every cell of a peer that makes calls.
pub(crate) async fn all(client: &Client, span: Span) -> Result<Vec<Value>, Failure> {
    let mut values = latency(client, span).await?;
    for outstanding in [64, 256] {
        values.extend(rate(client, span, outstanding).await?);
    }
    let cold = CACHES * cache_bytes();
    for (len, name, outstanding) in [(1 << 20, "1 MiB", 8), (16 << 20, "16 MiB", 2)] {
        for (bytes, memory) in [(cold, ""), (0, " cached")] {
            values.extend(
                bulk(client, span, len, outstanding, bytes, &format!("{name}{memory}")).await?,
            );
        }
    }
    Ok(values)
}

/// Times of calls one after the other.
pub(crate) fn summary(cell: &str, nanos: &Histogram<u64>, took: Duration) -> Vec<Value> {
    let at = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e3;
    vec![
        (format!("{cell} p50 us"), at(0.5)),
        (format!("{cell} p99 us"), at(0.99)),
        (format!("{cell} p99.9 us"), at(0.999)),
        (format!("{cell} calls/s"), nanos.len() as f64 / took.as_secs_f64()),
    ]
}

pub(crate) async fn latency(client: &Client, span: Span) -> Result<Vec<Value>, Failure> {
    let data = Bytes::from(vec![7; SMALL_BYTES]);
    let one = || client.echo(Blob { data: data.clone() });
    let warm = Instant::now() + span.time / WARM_UP_DIVISOR;
    while Instant::now() < warm {
        one().await?;
    }
    let mut nanos = Histogram::new(3)?;
    let cpu = Cpu::now(span.server)?;
    let began = Instant::now();
    let mut last = began;
    while last - began < span.time {
        one().await?;
        let now = Instant::now();
        nanos.record((now - last).as_nanos() as u64)?;
        last = now;
    }
    let mut values = summary("1 outstanding", &nanos, last - began);
    values.extend(cpu.per_call("1 outstanding", nanos.len())?);
    Ok(values)
}

pub(crate) async fn rate(
    client: &Client,
    span: Span,
    outstanding: usize,
) -> Result<Vec<Value>, Failure> {
    let data = Bytes::from(vec![7; SMALL_BYTES]);
    let run = async |time: Duration| {
        let until = Instant::now() + time;
        let loops = (0..outstanding).map(|_| {
            let (client, data) = (client.clone(), data.clone());
            async move {
                let mut calls = 0;
                while Instant::now() < until {
                    for _ in 0..CALLS_PER_LOOK {
                        client.echo(Blob { data: data.clone() }).await?;
                    }
                    calls += CALLS_PER_LOOK;
                }
                Ok(calls)
            }
        });
        client.at_once(loops.collect()).await
    };
    run(span.time / WARM_UP_DIVISOR).await?;
    let cpu = Cpu::now(span.server)?;
    let began = Instant::now();
    let calls = run(span.time).await?;
    let cell = format!("{outstanding} outstanding");
    let mut values =
        vec![(format!("{cell} calls/s"), calls as f64 / began.elapsed().as_secs_f64())];
    values.extend(cpu.per_call(&cell, calls)?);
    Ok(values)
}

/// Requests that carry `len` bytes, then answers that do. Sources and what is received cycle through
/// `bytes` of memory; 0: one buffer, which stays in the cache.
async fn bulk(
    client: &Client,
    span: Span,
    len: usize,
    outstanding: usize,
    bytes: usize,
    name: &str,
) -> Result<Vec<Value>, Failure> {
    client.keep(bytes).await?;
    let sources = Arc::new(Mutex::new(Ring::new(bytes)));
    for _ in 0..(bytes / len).max(1) {
        let payload = client.payload(len)?;
        sources.lock().unwrap_or_else(PoisonError::into_inner).push(payload.clone());
        client.put(Blob { data: payload }).await?;
    }
    let (own, from) = (client.clone(), Arc::clone(&sources));
    let requests = gigabytes(client, span, len, outstanding, move || {
        let (client, sources) = (own.clone(), Arc::clone(&from));
        async move {
            let data = sources.lock().unwrap_or_else(PoisonError::into_inner).next();
            client.put(Blob { data }).await.map(|_| ())
        }
    })
    .await?;
    // What is received takes the place of what was sent.
    *sources.lock().unwrap_or_else(PoisonError::into_inner) = Ring::new(bytes);
    let own = client.clone();
    let answers = gigabytes(client, span, len, outstanding, move || {
        let (client, received) = (own.clone(), Arc::clone(&sources));
        async move {
            let data = client.get().await?.data;
            received.lock().unwrap_or_else(PoisonError::into_inner).push(data);
            Ok(())
        }
    })
    .await?;
    client.keep(0).await?;
    Ok(vec![(format!("{name} requests GB/s"), requests), (format!("{name} answers GB/s"), answers)])
}

pub(crate) async fn gigabytes<C, F>(
    client: &Client,
    span: Span,
    len: usize,
    outstanding: usize,
    call: C,
) -> Result<f64, Failure>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Result<(), Failure>> + Send,
{
    let run = async |time: Duration| {
        let until = Instant::now() + time;
        let loops = (0..outstanding).map(|_| {
            let call = call.clone();
            async move {
                let mut calls = 0;
                while Instant::now() < until {
                    call().await?;
                    calls += 1;
                }
                Ok(calls)
            }
        });
        client.at_once(loops.collect()).await
    };
    run(span.time / WARM_UP_DIVISOR).await?;
    let began = Instant::now();
    let calls = run(span.time).await?;
    Ok(calls as f64 * len as f64 / began.elapsed().as_secs_f64() / 1e9)
}
