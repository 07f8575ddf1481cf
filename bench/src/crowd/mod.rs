//! What many do to one: a flood beside a call that should not notice it, a thousand connections, and a server
//! that comes back to all its clients at once.

pub(crate) mod child;
mod peers;
mod restarts;
mod service;
mod share;

pub(crate) use peers::{Options as PeersOptions, run as peers};
pub(crate) use restarts::{Options as RestartsOptions, run as restarts};
pub(crate) use share::{Options as ShareOptions, run as share};

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use self::service::CrowdClient;
use crate::echo::Blob;
use crate::failure::Failure;

/// Latencies of calls in turn over some clients, one outstanding, for so long.
async fn measure(clients: &[CrowdClient], time: Duration) -> Result<Histogram<u64>, Failure> {
    let mut nanos = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
    let began = Instant::now();
    for client in clients.iter().cycle() {
        let sent = Instant::now();
        client.fast(Blob { data: vec![7; 64].into() }).await?;
        let took = sent.elapsed();
        nanos.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if began.elapsed() >= time {
            break;
        }
    }
    Ok(nanos)
}

fn micros(nanos: &Histogram<u64>, quantile: f64) -> f64 {
    nanos.value_at_quantile(quantile) as f64 / 1e3
}

/// The middle of some figures, the least and the most.
fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    (at(figures.len() / 2), at(0), at(figures.len().saturating_sub(1)))
}

/// A line of a table: what, its median and range.
fn row(what: &str, figures: &[f64], digits: usize) {
    let (middle, least, most) = spread(figures.to_vec());
    println!("{what:<44} {middle:>10.digits$}  [{least:.digits$} .. {most:.digits$}]");
}

/// The end of a measurement with aims: a failure that names those that were missed.
fn judge(aims: &[(bool, &str)]) -> Result<(), Failure> {
    let missed: Vec<&str> = aims.iter().filter(|(met, _)| !met).map(|(_, aim)| *aim).collect();
    if missed.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!("missed: {}", missed.join("; "))))
    }
}
