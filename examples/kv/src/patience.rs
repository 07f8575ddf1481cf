use std::future::Future;
use std::thread;
use std::time::{Duration, Instant};

use rpc_core::{Response, Status};

use crate::failure::{is_refusal, is_refusal_of_read};

/// How long the first repetition waits; each further one waits twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// The longest wait between two repetitions: a queue of the disk empties in less.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Repeats a call that was refused because too much waits, until a time is over.
struct Patience {
    /// Whether a call that ended so may be made again.
    helps: fn(&Status) -> bool,
    until: Instant,
    pause: Duration,
}

impl Patience {
    /// Patience for so long from now.
    fn new(time: Duration, helps: fn(&Status) -> bool) -> Self {
        Self { helps, until: Instant::now() + time, pause: PAUSE_MIN }
    }

    /// Whether a call that ended so is to be made again, and has waited for that. The thread waits: it is
    /// a command's own, which has nothing else to do.
    fn again(&mut self, status: &Status) -> bool {
        if !(self.helps)(status) || Instant::now() + self.pause >= self.until {
            return false;
        }
        thread::sleep(self.pause); // however long: the server refuses again if it is too early
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }

    /// Makes a call as often as that helps.
    async fn spend_on<T, F>(mut self, mut call: impl FnMut() -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        loop {
            match call().await {
                Err(status) if self.again(&status) => {}
                ended => return ended.map(Response::into_inner),
            }
        }
    }
}

/// Makes a call, and again while it is refused because too much waits, for so long.
pub(crate) async fn repeated<T, F>(time: Duration, call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    Patience::new(time, is_refusal).spend_on(call).await
}

/// As [`repeated`], for a call that only reads: it is made again too where it was carried out and there was no
/// memory for its answer.
pub(crate) async fn repeated_read<T, F>(
    time: Duration,
    call: impl FnMut() -> F,
) -> Result<T, Status>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    Patience::new(time, is_refusal_of_read).spend_on(call).await
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use rpc_core::prost::Message;

    use super::*;
    use crate::proto::error_detail::Reason;
    use crate::proto::{ErrorDetail, QueueFull, StoreFull};

    fn status(reason: Reason) -> Status {
        let detail = ErrorDetail { reason: Some(reason) }.encode_to_vec();
        Status::resource_exhausted("no").with_details(detail)
    }

    #[test]
    fn only_what_waiting_mends_is_repeated_and_only_for_a_time() {
        let waits = status(Reason::QueueFull(QueueFull::default()));
        let mut patience = Patience::new(Duration::from_millis(40), is_refusal);
        let began = Instant::now();
        let repeated = std::iter::repeat_with(|| patience.again(&waits)).take_while(|again| *again);
        let count = repeated.count();
        assert!((1..=4).contains(&count), "{count}"); // 2, 4, 8 and 16 ms; 32 would be too late
        assert!(began.elapsed() < Duration::from_millis(40) * 20);
        let mut patience = Patience::new(Duration::from_secs(600), is_refusal);
        assert!(!patience.again(&status(Reason::StoreFull(StoreFull::default()))));
        assert!(!patience.again(&Status::deadline_exceeded("late")));
        assert!(patience.again(&waits));
    }

    #[test]
    fn a_read_that_had_no_memory_for_its_answer_is_made_again_and_a_write_is_not() {
        let no_memory = Status::resource_exhausted("9 bytes of outbound memory are not free now");
        assert_eq!(no_memory.execution(), rpc_core::Execution::Executed);
        let long = Duration::from_secs(600);
        assert!(Patience::new(long, is_refusal_of_read).again(&no_memory));
        assert!(!Patience::new(long, is_refusal).again(&no_memory));
    }

    #[test]
    fn a_call_that_waits_for_the_disk_is_made_until_it_is_done() {
        let mut calls = 0;
        let mut call = |status: Status| {
            calls += 1;
            ready(if calls < 4 { Err(status) } else { Ok(Response::new(calls)) })
        };
        let waits = || status(Reason::QueueFull(QueueFull::default()));
        let long = Duration::from_secs(600);
        assert_eq!(rpc_core::block_on(repeated(long, || call(waits()))).unwrap(), 4);
        let full = || ready(Err::<Response<()>, _>(Status::resource_exhausted("full")));
        assert_eq!(rpc_core::block_on(repeated(long, full)).unwrap_err().message(), "full");
    }
}
