//! What is measured of each peer, and what its values are called.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::failure::Failure;

/// Bytes of a small request and of its answer.
pub(crate) const SMALL_BYTES: usize = 64;
/// Calls in flight where many are.
pub(crate) const OUTSTANDING: usize = 64;
/// Longest wait for one answer. ruapc had an answer that took more than 5 s, on an emulated machine whose host
/// was busy.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest wait for a connection.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The part of a cell's time that warms it up and is not counted.
const WARM_UP_DIVISOR: u32 = 5;

/// A measured value: its cell and unit in one name.
pub(crate) type Value = (String, f64);

/// Times of small calls one after the other.
pub(crate) fn latency(
    time: Duration,
    mut one: impl FnMut() -> Result<(), Failure>,
) -> Result<Vec<Value>, Failure> {
    let warm = Instant::now() + time / WARM_UP_DIVISOR;
    while Instant::now() < warm {
        one()?;
    }
    let mut nanos = Histogram::<u64>::new(3)?;
    let began = Instant::now();
    let mut last = began;
    while last - began < time {
        one()?;
        let now = Instant::now();
        nanos.record((now - last).as_nanos() as u64)?;
        last = now;
    }
    let at = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e3;
    let cell = format!("{SMALL_BYTES} B");
    Ok(vec![
        (format!("{cell} p50 us"), at(0.5)),
        (format!("{cell} p99 us"), at(0.99)),
        (format!("{cell} calls/s"), nanos.len() as f64 / (last - began).as_secs_f64()),
    ])
}

/// Calls for each second, by `run`, which makes them for a time and says how many it made.
pub(crate) fn rate(
    time: Duration,
    mut run: impl FnMut(Duration) -> Result<u64, Failure>,
) -> Result<f64, Failure> {
    run(time / WARM_UP_DIVISOR)?;
    let began = Instant::now();
    let calls = run(time)?;
    Ok(calls as f64 / began.elapsed().as_secs_f64())
}

/// The name of the rate of small calls.
pub(crate) fn rate_name() -> String {
    format!("{OUTSTANDING} outstanding calls/s")
}

/// A call that failed, with what it probably means.
pub(crate) fn unanswered(cell: &str, error: impl fmt::Display) -> Failure {
    Failure::new(format!(
        "{cell}: a call failed: {error}; its server is gone, or this machine has too much else to do"
    ))
}
