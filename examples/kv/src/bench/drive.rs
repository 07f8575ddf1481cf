use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hdrhistogram::Histogram;
use rpc_core::{Code, Status};

use crate::failure::{Failure, reason, sentence};
use crate::proto::error_detail::Reason;

/// How long a step waits for its calls after its time, if that is longer than the time itself. A server
/// that answers at all has done so by then; what it has not answered counts as failed.
const LATE: Duration = Duration::from_secs(10);

/// After a failed call nothing is sent for so long at full speed, and twice as long after each further
/// one: a server that refuses at once would else be asked as fast as a processor can.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// When calls are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// So many are outstanding all the time.
    Closed(usize),
    /// So many each second, whether earlier ones have ended or not, as long as not more than `calls_max`
    /// are outstanding. What is due then is sent later, and counts from when it was due.
    Open { rate: f64, calls_max: usize },
}

/// How an operation went that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// It met a key without a value.
    NotFound,
}

/// What was measured.
pub(crate) struct Measured {
    /// Operations that succeeded.
    pub(crate) done: u64,
    /// Reads that found nothing.
    pub(crate) not_found: u64,
    /// Operations that failed, and the first failure.
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    /// Those of the failed ones that were due and not sent when the step ended.
    pub(crate) unsent: u64,
    /// Writes refused because another came between.
    pub(crate) conflicts: u64,
    /// The server could not be reached any more, so the step ended before its time.
    pub(crate) gone: bool,
    /// From the first start to the last end.
    pub(crate) elapsed: Duration,
    /// How long each took, in nanoseconds; in an open loop from when it should have been sent. What was
    /// given up counts with the time it had waited; what was refused is left out.
    pub(crate) nanos: Histogram<u64>,
}

impl Measured {
    fn new() -> Result<Self, Failure> {
        let nanos = Histogram::new_with_bounds(1, 600_000_000_000, 3)
            .map_err(|error| Failure::because("a histogram cannot be made", error))?;
        Ok(Self {
            done: 0,
            not_found: 0,
            failed: 0,
            first_failure: None,
            unsent: 0,
            conflicts: 0,
            gone: false,
            elapsed: Duration::ZERO,
            nanos,
        })
    }

    /// Operations each second.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.done as f64 / seconds } else { 0.0 }
    }

    /// A quantile in microseconds; `None` if nothing was timed.
    pub(crate) fn micros(&self, quantile: f64) -> Option<f64> {
        let timed = !self.nanos.is_empty();
        timed.then(|| self.nanos.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// Whether the server did what it was asked, at least once.
    pub(crate) fn is_alive(&self) -> bool {
        !self.gone && (self.failed == 0 || self.done + self.not_found + self.conflicts > 0)
    }

    fn time(&mut self, took: Duration) {
        self.nanos.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn fail(&mut self, why: impl FnOnce() -> String) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(why);
    }

    fn end(&mut self, since: Instant, result: Result<Outcome, Status>) {
        match result {
            Ok(Outcome::Done) => {
                self.done += 1;
                self.time(since.elapsed());
            }
            Ok(Outcome::NotFound) => self.not_found += 1,
            Err(status) if matches!(reason(&status), Some(Reason::VersionMismatch(_))) => {
                self.conflicts += 1;
            }
            Err(status) => {
                self.gone |= status.code() == Code::Unavailable;
                if status.code() == Code::DeadlineExceeded {
                    self.time(since.elapsed());
                }
                self.fail(|| sentence(&status));
            }
        }
    }
}

/// Makes calls at a pace for a time, and waits for those that are outstanding then, within a bound: as
/// long again, or [`LATE`].
pub(crate) fn drive<F>(
    pace: Pace,
    time: Duration,
    call: impl FnMut() -> F,
) -> Result<Measured, Failure>
where
    F: Future<Output = Result<Outcome, Status>>,
{
    drive_until(pace, time, time + time.max(LATE), call)
}

/// The same; all ends at `end`, counted from now.
fn drive_until<F>(
    pace: Pace,
    time: Duration,
    end: Duration,
    mut call: impl FnMut() -> F,
) -> Result<Measured, Failure>
where
    F: Future<Output = Result<Outcome, Status>>,
{
    let mut measured = Measured::new()?;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut flight = FuturesUnordered::new();
    let mut pacer =
        Pacer { pace, time, end, began: Instant::now(), started: 0, pause: None, gone: false };
    loop {
        let wait = pacer.wait(flight.len());
        if let Wait::No(since) = wait {
            pacer.started += 1;
            flight.push(Call { since, future: Box::pin(call()) });
        }
        match flight.poll_next_unpin(&mut context) {
            Poll::Ready(Some((since, result))) => {
                let failed = measured.failed;
                measured.end(since, result);
                pacer.gone = measured.gone;
                pacer.saw(measured.failed > failed);
            }
            Poll::Ready(None) if matches!(wait, Wait::ForAnEnd(_)) => break,
            Poll::Ready(None) | Poll::Pending => match wait {
                Wait::No(_) => {}
                Wait::ForAnEnd(left) if left.is_zero() => break,
                Wait::AtMost(left) | Wait::ForAnEnd(left) => thread::park_timeout(left),
            },
        }
    }
    measured.elapsed = pacer.began.elapsed();
    for call in &flight {
        measured.time(call.since.elapsed());
        measured.fail(|| "it had no answer when its step ended".to_owned());
    }
    for since in pacer.unsent() {
        measured.unsent += 1;
        measured.time(since.elapsed());
        measured.fail(|| {
            "it was due and not sent when its step ended, because so many others had no answer"
                .to_owned()
        });
    }
    Ok(measured)
}

/// A call on its way.
struct Call<F> {
    /// From when it counts.
    since: Instant,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Call<F> {
    type Output = (Instant, F::Output);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let since = self.since;
        self.future.as_mut().poll(context).map(|output| (since, output))
    }
}

/// Says when the next call is to be started.
struct Pacer {
    pace: Pace,
    time: Duration,
    end: Duration,
    began: Instant,
    started: u64,
    /// Until when nothing is sent, and for how long that was.
    pause: Option<(Instant, Duration)>,
    gone: bool,
}

/// How long nothing is to be started.
enum Wait {
    /// One is due since then.
    No(Instant),
    /// For so long, unless a call ends.
    AtMost(Duration),
    /// Until a call ends, and for so long at most: then all ends.
    ForAnEnd(Duration),
}

impl Pacer {
    fn wait(&self, outstanding: usize) -> Wait {
        let now = Instant::now();
        let elapsed = now - self.began;
        let for_an_end = Wait::ForAnEnd(self.end.saturating_sub(elapsed));
        if self.gone || elapsed >= self.end {
            return for_an_end;
        }
        match self.pace {
            Pace::Closed(calls) if elapsed < self.time && outstanding < calls => match self.pause {
                Some((until, _)) if until > now => Wait::AtMost(until - now),
                _ => Wait::No(now),
            },
            Pace::Closed(_) => for_an_end,
            Pace::Open { rate, calls_max } => {
                let due = Duration::from_secs_f64(self.started as f64 / rate);
                if due >= self.time || outstanding >= calls_max {
                    for_an_end
                } else if due <= elapsed {
                    Wait::No(self.began + due)
                } else {
                    Wait::AtMost(due - elapsed)
                }
            }
        }
    }

    /// A call has ended.
    fn saw(&mut self, failed: bool) {
        self.pause = failed.then(|| {
            let pause = self.pause.map_or(PAUSE_MIN, |(_, pause)| (pause * 2).min(PAUSE_MAX));
            (Instant::now() + pause, pause)
        });
    }

    /// Since when calls are due that were not sent. None if there is no server to send them to.
    fn unsent(&self) -> impl Iterator<Item = Instant> {
        let rate = match self.pace {
            Pace::Open { rate, .. } if !self.gone => Some(rate),
            _ => None,
        };
        let (began, time) = (self.began, self.time);
        rate.into_iter().flat_map(move |rate| {
            let due = (self.started..).map(move |call| Duration::from_secs_f64(call as f64 / rate));
            due.take_while(move |due| *due < time).map(move |due| began + due)
        })
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const TIME: Duration = Duration::from_millis(50);
    const END: Duration = Duration::from_millis(120);

    type Boxed = Pin<Box<dyn Future<Output = Result<Outcome, Status>>>>;

    #[test]
    fn a_step_against_a_server_that_says_nothing_ends_in_its_bound_and_counts_all_that_was_due() {
        let pace = Pace::Open { rate: 1_000.0, calls_max: 10 };
        let measured = drive_until(pace, TIME, END, pending).unwrap();
        assert!(measured.elapsed >= END && measured.elapsed < END * 20, "{:?}", measured.elapsed);
        assert_eq!((measured.failed, measured.done), (50, 0));
        assert!(measured.unsent >= 40, "{}", measured.unsent);
        assert!(measured.micros(1.0).unwrap() >= 119_000.0, "{:?}", measured.micros(1.0));
        assert!(measured.micros(0.0).unwrap() >= 70_000.0, "{:?}", measured.micros(0.0));
        assert!(!measured.is_alive());
        let closed = drive_until(Pace::Closed(4), TIME, END, pending).unwrap();
        assert_eq!((closed.failed, closed.unsent), (4, 0));
    }

    #[test]
    fn a_step_ends_at_once_when_the_server_cannot_be_reached() {
        let end = Duration::from_secs(600);
        let gone = || ready(Err(Status::unavailable("the connection is closing")));
        for pace in [Pace::Closed(4), Pace::Open { rate: 1e6, calls_max: 4 }] {
            let measured = drive_until(pace, end, end, gone).unwrap();
            assert!(measured.gone && !measured.is_alive());
            assert_eq!((measured.failed, measured.unsent), (1, 0));
            assert_eq!(measured.micros(0.5), None);
        }
    }

    #[test]
    fn a_server_that_refuses_is_not_asked_as_fast_as_can_be() {
        let refused = || ready(Err(Status::resource_exhausted("no")));
        let measured = drive_until(Pace::Closed(8), TIME, END, refused).unwrap();
        // 1, 2, 4, 8, 16 and 32 ms are longer together than the step.
        assert!((1..8).contains(&measured.failed), "{}", measured.failed);
        assert_eq!(measured.micros(0.5), None);
    }

    #[test]
    fn what_is_done_what_finds_nothing_and_what_is_given_up_are_counted_apart() {
        let mut count = 0;
        let call = || -> Boxed {
            count += 1;
            Box::pin(match count % 3 {
                0 => ready(Ok(Outcome::Done)),
                1 => ready(Ok(Outcome::NotFound)),
                _ => ready(Err(Status::deadline_exceeded("late"))),
            })
        };
        let pace = Pace::Open { rate: 600.0, calls_max: 4 };
        let measured = drive_until(pace, TIME, Duration::from_secs(600), call).unwrap();
        assert_eq!((measured.done, measured.not_found, measured.failed), (10, 10, 10));
        assert_eq!(measured.nanos.len(), 20);
        assert!(measured.is_alive());
        assert!(measured.elapsed < Duration::from_secs(600));
    }
}
