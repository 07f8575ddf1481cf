use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use rpc_core::prost::Message;
use rpc_core::{Code, Execution, Status};

use crate::proto::error_detail::Reason;
use crate::proto::{DiskFailed, ErrorDetail};

/// How a command ended, as its exit code says it. 2 is the command line parser's, for wrong usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: all was done.
    Done,
    /// 1: it failed, or a byte read back was not the byte stored.
    Failed,
    /// 3: there is no value under the key.
    NoSuchKey,
    /// 4: the key has another version than was expected.
    Mismatch,
    /// 5: what was done is right, but some files could not be read or kept changing.
    Incomplete,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::NoSuchKey => 3,
            Exit::Mismatch => 4,
            Exit::Incomplete => 5,
        })
    }
}

/// Why a command could not be carried out: one sentence for people, and what caused it.
#[derive(Debug)]
pub struct Failure {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that needs no further cause.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// A failure with the error that caused it.
    pub(crate) fn because(
        what: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }

    /// Prints it on standard error with all its causes; the exit code to end with.
    ///
    /// A reader that closed our output early (`kv get … | head`) has what it wanted: no error.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_closed_output() {
            return Exit::Done.into();
        }
        err(format_args!("{self}"));
        if self.status().is_some_and(is_mismatch) { Exit::Mismatch } else { Exit::Failed }.into()
    }

    /// Which version the key has now, 0 for none, where the write expected another one.
    pub(crate) fn current_version(&self) -> Option<u64> {
        match reason(self.status()?)? {
            Reason::VersionMismatch(mismatch) => Some(mismatch.current),
            _ => None,
        }
    }

    fn status(&self) -> Option<&Status> {
        self.source.as_deref().and_then(|source| source.downcast_ref())
    }

    fn is_closed_output(&self) -> bool {
        self.source
            .as_ref()
            .and_then(|source| source.downcast_ref::<io::Error>())
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        let mut told = self.what.clone();
        let mut cause: Option<&dyn Error> = self.source.as_deref().map(|source| source as _);
        if let Some(status) = self.status() {
            // Its message is the sentence above; what is left to say is whether the call ran.
            writeln!(f, "  {:?}: {}", status.code(), execution(status))?;
            cause = status.source();
        }
        // The chain is as long as the layers below are deep; the bound is for a source that is its
        // own source.
        for _ in 0..16 {
            let Some(error) = cause else { break };
            let text = in_our_words(&error.to_string());
            // A sentence that ends with its cause has told it.
            if !told.ends_with(&text) {
                writeln!(f, "  because: {text}")?;
                told = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

impl Error for Failure {}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { what: sentence(&status), source: Some(Box::new(status)) }
    }
}

/// Whether the call behind a status ran, in words. What the service itself refused it has not done, though
/// to the framework its answer is that of a call that ran.
fn execution(status: &Status) -> &'static str {
    match reason(status) {
        Some(Reason::QueueFull(_) | Reason::ReadQueueFull(_)) => {
            return "it was not done, so it is safe to repeat";
        }
        Some(Reason::VersionMismatch(_) | Reason::StoreFull(_)) => return "nothing was written",
        Some(Reason::DiskFailed(DiskFailed { maybe_written: true })) => {
            return "if it was a write, nobody here can know whether it is stored";
        }
        Some(Reason::DiskFailed(_) | Reason::ValueDamaged(_)) => {
            return "if it was a write, nothing was written";
        }
        None => {}
    }
    match status.execution() {
        Execution::NotExecuted if repeating_helps(status) => {
            "it was not executed, so it is safe to repeat"
        }
        Execution::NotExecuted => "it was not executed",
        Execution::MaybeExecuted => "nobody here can know whether it was executed",
        Execution::Executed => "it was executed, and this is the answer",
    }
}

/// Whether the same call may well succeed at another time.
fn repeating_helps(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => true,
        // Memory that is in use comes back; a message over a limit stays over it. Across the network
        // they have one code, and only what is of the first kind says "retry".
        Code::ResourceExhausted => status.message().contains("retry"),
        _ => false,
    }
}

/// What the framework says of a message that no time helps: it is longer than some bound. Across the network
/// such a status has the code of one that waiting mends, and no reason of its own.
const NEVER: [&str; 6] = [
    "can never",
    "are allowed",
    "are accepted",
    "or more, or send less",
    "the longest is",
    "fit into one SEND",
];

/// Whether the same call cannot succeed at any time, because its message is too long for one of both sides.
pub(crate) fn is_too_long(status: &Status) -> bool {
    let says = |words: &&str| status.message().contains(*words);
    status.code() == Code::ResourceExhausted && NEVER.iter().any(says)
}

/// Whether there was no memory for a request on its way, or too much waits for the server's disk. A full
/// store is an answer, and no refusal; nor is one what can never pass.
pub(crate) fn is_refusal(status: &Status) -> bool {
    let on_its_way = status.execution() == Execution::NotExecuted && !is_too_long(status);
    let waits = matches!(reason(status), Some(Reason::QueueFull(_) | Reason::ReadQueueFull(_)));
    status.code() == Code::ResourceExhausted && (on_its_way || waits)
}

/// Whether there was no memory for a read's request or answer, but may be. Reading has no effect, so it may be
/// executed again.
pub(crate) fn is_refusal_of_read(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && !is_too_long(status)
}

/// Why the service refused, if the status tells.
pub(crate) fn reason(status: &Status) -> Option<Reason> {
    ErrorDetail::decode(&status.details()[..]).ok()?.reason
}

fn is_mismatch(status: &Status) -> bool {
    matches!(reason(status), Some(Reason::VersionMismatch(_)))
}

/// A status as a sentence: its message, or what its code means where it has none.
pub(crate) fn sentence(status: &Status) -> String {
    if status.message().is_empty() {
        status.code().description().to_owned()
    } else {
        in_our_words(status.message())
    }
}

/// The framework's names of settings, as options of this program.
fn in_our_words(text: &str) -> String {
    text.replace("the runtime's budget_bytes", "--memory").replace("budget_bytes", "--memory")
}

/// Writes to standard error. What cannot be written is dropped: `eprintln!` would panic, and the exit code
/// that a script waits for would be lost.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    _ = io::stderr().write_fmt(text);
}

/// Writes to standard output. A closed pipe is an error here, not a panic as with `println!`.
pub(crate) fn out(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::because("writing to standard output failed", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{QueueFull, ReadQueueFull, StoreFull};

    #[test]
    fn a_failure_names_all_its_causes() {
        let inner = Failure::because("inner", io::Error::other("innermost"));
        let text = inner.to_string();
        assert_eq!(text, "error: inner\n  because: innermost\n");
    }

    #[test]
    fn a_cause_that_the_sentence_ends_with_is_not_told_again() {
        let text = Failure::because("no memory: too little", io::Error::other("too little"));
        assert_eq!(text.to_string(), "error: no memory: too little\n");
    }

    #[test]
    fn a_status_without_a_message_is_told_by_its_code() {
        let failure = Failure::from(Status::data_loss(""));
        let text = failure.to_string();
        assert!(text.starts_with("error: data is lost or damaged\n  DataLoss: "), "{text}");
    }

    #[test]
    fn only_what_repeating_can_mend_is_called_safe_to_repeat() {
        let helps = |status: Status| repeating_helps(&status);
        assert!(helps(Status::unavailable("the server cannot be reached")));
        assert!(helps(Status::resource_exhausted("1 byte is not free now: retry when calls end")));
        assert!(!helps(Status::resource_exhausted(
            "the message is 9 bytes long and 8 are allowed"
        )));
        assert!(!helps(Status::unimplemented("no such method")));
        assert!(!helps(Status::invalid_argument("no address")));
    }

    #[test]
    fn what_can_never_pass_is_told_from_what_waiting_mends() {
        let too_long = |message: &str| is_too_long(&Status::resource_exhausted(message));
        for passes in [
            "there was no memory for the message in time",
            "9 calls of this connection are in work, as many as may be",
            "as many messages as possible are being fetched on this connection",
            "9 bytes of inbound memory are not free now (1 of 8 are in use): retry when calls in progress have ended",
        ] {
            assert!(!too_long(passes), "{passes}");
        }
        let share = "a message of 9 bytes needs 9 bytes of inbound memory, but that share of the budget is \
                     8 bytes: set the runtime's budget_bytes to 99 or more, or send less";
        for never in [
            share,
            &format!("the receiver can never take the message: {share}"),
            &format!("the request cannot be sent: {share}"),
            "the request has 9 bytes, and at most 8 are accepted",
            "the message is 9 bytes long and 8 are allowed: send it in parts",
        ] {
            assert!(too_long(never), "{never}");
        }
    }

    #[test]
    fn what_the_service_refused_is_not_called_executed() {
        let words = |reason: Reason| {
            let detail = ErrorDetail { reason: Some(reason) }.encode_to_vec();
            let status = Status::resource_exhausted("no").with_details(detail);
            execution(&status)
        };
        assert!(words(Reason::QueueFull(QueueFull::default())).contains("safe to repeat"));
        assert!(words(Reason::ReadQueueFull(ReadQueueFull::default())).contains("safe to repeat"));
        assert_eq!(words(Reason::StoreFull(StoreFull::default())), "nothing was written");
        let disk = |maybe_written| words(Reason::DiskFailed(DiskFailed { maybe_written }));
        assert!(disk(true).contains("nobody here can know"));
        assert!(disk(false).contains("nothing was written"));
    }

    #[test]
    fn settings_have_the_names_of_this_programs_options() {
        let status = Status::resource_exhausted(
            "retry when calls in progress have ended, or raise the runtime's budget_bytes",
        );
        let text = Failure::from(status).to_string();
        assert!(text.contains("or raise --memory") && !text.contains("budget_bytes"), "{text}");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let pipe = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(Failure::because("writing", pipe).is_closed_output());
        assert!(!Failure::new("writing").is_closed_output());
    }
}
