use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// What one direction of the demo did: counts, times and a progress bar.
pub(crate) struct Meter {
    /// Files all of whose parts went well.
    pub(crate) files: u64,
    /// Calls that succeeded.
    pub(crate) calls: u64,
    /// How often a call was repeated for want of memory at one of its ends.
    pub(crate) repeats: u64,
    /// Bytes of values in them.
    pub(crate) bytes: u64,
    /// How long it all took.
    pub(crate) elapsed: Duration,
    /// How long each call took, in nanoseconds, as the caller saw it: three digits, at a fixed size.
    pub(crate) nanos: Histogram<u64>,
    bar: ProgressBar,
    since: Instant,
}

impl Meter {
    /// A meter with nothing on it yet.
    pub(crate) fn new() -> Result<Self, Failure> {
        let nanos = Histogram::new_with_bounds(1, 600_000_000_000, 3)
            .map_err(|error| Failure::because("a histogram cannot be made", error))?;
        let (bar, since) = (ProgressBar::hidden(), Instant::now());
        let elapsed = Duration::ZERO;
        Ok(Self { files: 0, calls: 0, repeats: 0, bytes: 0, elapsed, nanos, bar, since })
    }

    /// Starts the clock and, where standard error is a terminal, shows a bar.
    pub(crate) fn start(&mut self, what: &'static str, bytes: u64) {
        let style = "{msg:7} {wide_bar} {bytes:>11} of {total_bytes}  {bytes_per_sec}  {eta}";
        self.bar = ProgressBar::new(bytes).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(style) {
            self.bar.set_style(style);
        }
        self.since = Instant::now();
    }

    /// Stops the clock and removes the bar.
    pub(crate) fn stop(&mut self) {
        self.elapsed += self.since.elapsed();
        self.bar.finish_and_clear();
    }

    /// A call has succeeded.
    pub(crate) fn call(&mut self, len: usize, took: Duration, repeats: u32) {
        self.calls += 1;
        self.repeats += u64::from(repeats);
        self.bytes += len as u64;
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.saturating_record(nanos);
        self.bar.inc(len as u64);
    }

    /// A file is through; `well` if all of it went well.
    pub(crate) fn file(&mut self, well: bool) {
        self.files += u64::from(well);
    }

    /// Megabytes (of 10⁶ bytes) in each second, over all the time.
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.bytes as f64 / 1e6 / seconds } else { 0.0 }
    }
}
