use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hdrhistogram::Histogram;
use rpc_core::Status;
use rpc_core::bytes::Bytes;

use crate::bench::mix::{Draw, Op};
use crate::failure::{Failure, reason, sentence};
use crate::kv::error_detail::Reason;
use crate::kv::{GetRequest, KvClient, ListRequest, PutRequest};

/// Calls outstanding in an open loop. More are not sent until some have ended; they count from when they
/// should have been sent all the same.
const OPEN_CALLS_MAX: usize = 1024;

/// Keys of a scan.
const SCAN_KEYS: u32 = 100;

/// When calls are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// So many are outstanding all the time.
    Closed(usize),
    /// So many each second, whether earlier ones have ended or not.
    Open(f64),
}

/// What was measured.
pub(crate) struct Measured {
    /// Operations that succeeded.
    pub(crate) done: u64,
    /// Operations that failed, and the first failure.
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    /// Writes refused because another came between.
    pub(crate) conflicts: u64,
    /// From the first start to the last end.
    pub(crate) elapsed: Duration,
    /// How long each took, in nanoseconds; in an open loop from when it should have been sent.
    pub(crate) nanos: Histogram<u64>,
}

impl Measured {
    fn new() -> Result<Self, Failure> {
        let nanos = Histogram::new_with_bounds(1, 600_000_000_000, 3)
            .map_err(|error| Failure::because("a histogram cannot be made", error))?;
        let elapsed = Duration::ZERO;
        Ok(Self { done: 0, failed: 0, first_failure: None, conflicts: 0, elapsed, nanos })
    }

    /// Operations each second.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.done as f64 / seconds } else { 0.0 }
    }

    /// A quantile in microseconds.
    pub(crate) fn micros(&self, quantile: f64) -> f64 {
        self.nanos.value_at_quantile(quantile) as f64 / 1e3
    }

    fn end(&mut self, since: Instant, result: Result<(), Status>) {
        match result {
            Ok(()) => {
                self.done += 1;
                let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.nanos.saturating_record(nanos);
            }
            Err(status) if matches!(reason(&status), Some(Reason::VersionMismatch(_))) => {
                self.conflicts += 1;
            }
            Err(status) => {
                self.failed += 1;
                self.first_failure.get_or_insert_with(|| sentence(&status));
            }
        }
    }
}

/// Makes calls at a pace for a time, and waits for those that are outstanding then.
pub(crate) fn drive(
    client: &KvClient,
    draw: &mut Draw,
    value: &Bytes,
    pace: Pace,
    time: Duration,
) -> Result<Measured, Failure> {
    let mut measured = Measured::new()?;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut flight = FuturesUnordered::new();
    let began = Instant::now();
    let mut started = 0_u64;
    loop {
        let elapsed = began.elapsed();
        // Until when nothing is to be started.
        let wait = match pace {
            Pace::Closed(calls) if elapsed < time && flight.len() < calls => {
                Wait::No(Instant::now())
            }
            Pace::Open(rate) => {
                let due = Duration::from_secs_f64(started as f64 / rate);
                if due >= time || flight.len() >= OPEN_CALLS_MAX {
                    Wait::ForAnEnd
                } else if due <= elapsed {
                    Wait::No(began + due)
                } else {
                    Wait::AtMost(due - elapsed)
                }
            }
            Pace::Closed(_) => Wait::ForAnEnd,
        };
        if let Wait::No(since) = wait {
            started += 1;
            let call = perform(client.clone(), draw.next(), value.clone());
            flight.push(async move { (since, call.await) });
        }
        match flight.poll_next_unpin(&mut context) {
            Poll::Ready(Some((since, result))) => measured.end(since, result),
            Poll::Ready(None) if matches!(wait, Wait::ForAnEnd) => break,
            Poll::Ready(None) | Poll::Pending => match wait {
                Wait::No(_) => {}
                Wait::AtMost(wait) => thread::park_timeout(wait),
                Wait::ForAnEnd => thread::park(),
            },
        }
    }
    measured.elapsed = began.elapsed();
    Ok(measured)
}

/// How long nothing is to be started.
enum Wait {
    /// One is due since then.
    No(Instant),
    AtMost(Duration),
    ForAnEnd,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The key of a record.
pub(crate) fn key(record: u64) -> Bytes {
    format!("bench/{record:012}").into()
}

async fn perform(client: KvClient, op: Op, value: Bytes) -> Result<(), Status> {
    match op {
        Op::Read(record) => client.get(GetRequest { key: key(record) }).await.map(drop),
        Op::Update(record) | Op::Insert(record) => {
            let request = PutRequest { key: key(record), value, expected_version: None };
            client.put(request).await.map(drop)
        }
        Op::Scan(record) => {
            // All whose last two digits may be any: the keys around a record.
            let key = key(record);
            let prefix = key.slice(..key.len() - 2);
            let request = ListRequest { prefix, page_size: SCAN_KEYS, ..ListRequest::default() };
            client.list(request).await.map(drop)
        }
        Op::ReadModifyWrite(record) => {
            let found = client.get(GetRequest { key: key(record) }).await?.into_inner();
            let expected_version = Some(found.version);
            let request = PutRequest { key: key(record), value, expected_version };
            client.put(request).await.map(drop)
        }
    }
}
