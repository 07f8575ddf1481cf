use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use rpc_core::{Execution, Request, block_on};

use super::args::Args;
use super::pattern;
use super::service::{Ask, SoakClient};
use super::tally::Tally;

/// The payload that goes the other way than the drawn one, at most.
const BESIDE_BYTES: u64 = 300;

/// A call that is to be given up waits so long: its REQUEST is on its way then, and often it runs.
const GIVEN_UP_AFTER: Duration = Duration::from_micros(300);

/// Makes `calls` calls from payload `first` on, `args.at_once` at a time, and stops with the first
/// that fails. Calls in flight then come to their own ends, and are counted.
pub(super) fn run(client: &SoakClient, args: &Args, first: u64, calls: u64) -> Tally {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let sum = Mutex::new(Tally::default());
    let work = || {
        let mut tally = Tally::default();
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= calls {
                break;
            }
            if args.cancels && number % 6 == 5 {
                begin_and_drop(client, args, first + number);
                continue;
            }
            call(client, args, first + number, &mut tally);
            if tally.all_right().is_err() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(&tally);
    };
    thread::scope(|scope| {
        (0..args.at_once).for_each(|_| drop(scope.spawn(work)));
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The request of this index, and the payload bytes that go each way.
fn request(args: &Args, index: u64) -> (Request<Ask>, usize, usize) {
    let drawn = pattern::len(args.seed, index, args.bytes_max);
    let word = pattern::mix(index.wrapping_add(args.seed));
    let beside = ((word >> 1) % (BESIDE_BYTES + 1)) as usize;
    let (sent, wanted) = if word.is_multiple_of(2) { (drawn, beside) } else { (beside, drawn) };
    let mut request = Request::new(Ask {
        seed: args.seed,
        index,
        request_bytes: sent as u64,
        answer_bytes: wanted as u64,
        data: pattern::payload(args.seed, index, sent),
    });
    if let Some(timeout) = args.timeout {
        request.set_timeout(timeout);
    }
    (request, sent, wanted)
}

/// Begins a call and gives it up once it is on its way. How it ends nobody hears.
fn begin_and_drop(client: &SoakClient, args: &Args, index: u64) {
    let (request, ..) = request(args, index);
    let mut call = pin!(client.exchange(request));
    let begun = Instant::now();
    block_on(poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Pending if begun.elapsed() < GIVEN_UP_AFTER => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    }));
}

/// One call, with the payload of this index there or back.
pub(super) fn call(client: &SoakClient, args: &Args, index: u64, tally: &mut Tally) {
    let (request, sent, wanted) = request(args, index);
    let began = Instant::now();
    let ended = block_on(client.exchange(request));
    let took = began.elapsed();
    match ended {
        Ok(answer) => match pattern::check(!args.seed, index, wanted, &answer.get_ref().data) {
            Ok(()) => {
                tally.succeeded(sent + wanted, took);
                tally.verdicts.push((index, true));
            }
            Err(wrong) => tally.wrong = Some(wrong),
        },
        Err(status) => {
            tally.failed(&status, took);
            if status.execution() == Execution::NotExecuted {
                tally.verdicts.push((index, false));
            }
        }
    }
}
