use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::log::Log;
use rpc_core::{Code, Execution, Status};

/// How calls ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Calls that succeeded, with every byte right.
    pub(super) right: u64,
    /// Failed calls whose method surely did not run.
    pub(super) not_executed: u64,
    /// Failed calls whose method may have run.
    pub(super) maybe_executed: u64,
    /// Failed calls whose method answered: with the failure, or with a payload that was lost while it
    /// was read.
    pub(super) executed: u64,
    /// Bytes of payloads of calls that succeeded, there and back.
    pub(super) bytes: u64,
    /// The longest that a call took.
    pub(super) slowest: Duration,
    /// The longest that one took which failed.
    pub(super) slowest_failure: Duration,
    /// Which calls succeeded, and of which the framework says that they were not carried out.
    pub(super) verdicts: Vec<(u64, bool)>,
    /// Failed calls by the number of their code.
    codes: BTreeMap<u32, u64>,
    /// Words of the first call that failed.
    pub(super) first_failure: Option<String>,
    /// An answer that was not what it should be.
    pub(super) wrong: Option<String>,
}

impl Tally {
    /// Counts a call that succeeded.
    pub(super) fn succeeded(&mut self, bytes: usize, took: Duration) {
        self.right += 1;
        self.bytes += bytes as u64;
        self.slowest = self.slowest.max(took);
    }

    /// Counts a call that failed.
    pub(super) fn failed(&mut self, status: &Status, took: Duration) {
        self.slowest = self.slowest.max(took);
        self.slowest_failure = self.slowest_failure.max(took);
        *self.codes.entry(status.code() as u32).or_default() += 1;
        *match status.execution() {
            Execution::NotExecuted => &mut self.not_executed,
            Execution::MaybeExecuted => &mut self.maybe_executed,
            Execution::Executed => &mut self.executed,
        } += 1;
        self.first_failure.get_or_insert_with(|| status.to_string());
    }

    /// Adds the counts of another.
    pub(super) fn add(&mut self, other: &Self) {
        self.right += other.right;
        self.not_executed += other.not_executed;
        self.maybe_executed += other.maybe_executed;
        self.executed += other.executed;
        self.bytes += other.bytes;
        self.slowest = self.slowest.max(other.slowest);
        self.slowest_failure = self.slowest_failure.max(other.slowest_failure);
        self.verdicts.extend(&other.verdicts);
        for (code, count) in &other.codes {
            *self.codes.entry(*code).or_default() += count;
        }
        self.first_failure = self.first_failure.take().or_else(|| other.first_failure.clone());
        self.wrong = self.wrong.take().or_else(|| other.wrong.clone());
    }

    /// Calls that failed.
    pub(super) fn failures(&self) -> u64 {
        self.not_executed + self.maybe_executed + self.executed
    }

    /// Every call succeeded.
    ///
    /// # Errors
    /// The first that did not.
    pub(super) fn all_right(&self) -> Result<(), String> {
        self.bytes_right()?;
        match &self.first_failure {
            None => Ok(()),
            Some(words) => Err(format!("{} calls failed, the first: {words}", self.failures())),
        }
    }

    /// What failed is UNAVAILABLE, as with a server that was lost. Each verdict can be true then.
    ///
    /// # Errors
    /// What is not.
    pub(super) fn lost_only(&self) -> Result<(), String> {
        self.bytes_right()?;
        let unavailable = self.codes.get(&(Code::Unavailable as u32)).copied().unwrap_or(0);
        if unavailable != self.failures() {
            let words = self.first_failure.as_deref().unwrap_or_default();
            return Err(format!("not every loss is UNAVAILABLE: {self}; the first: {words}"));
        }
        Ok(())
    }

    /// What succeeded was carried out, and what is said not to be was not.
    ///
    /// # Errors
    /// The first of which that is not so.
    pub(super) fn is_true(&self, seed: u64, log: &Path) -> Result<(), String> {
        let carried_out = Log::read(log)?;
        for (index, succeeded) in &self.verdicts {
            match (carried_out.contains(&(seed, *index)), succeeded) {
                (false, true) => {
                    return Err(format!("call {index} was answered and not carried out"));
                }
                (true, false) => {
                    return Err(format!(
                        "call {index} is said not to be executed, and was carried out"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn bytes_right(&self) -> Result<(), String> {
        self.wrong.as_ref().map_or(Ok(()), |wrong| Err(format!("wrong bytes came back: {wrong}")))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "right={} not_executed={} maybe_executed={} executed={} bytes={} slowest_ms={} slowest_failure_ms={}",
            self.right,
            self.not_executed,
            self.maybe_executed,
            self.executed,
            self.bytes,
            self.slowest.as_millis(),
            self.slowest_failure.as_millis()
        )?;
        for (code, count) in &self.codes {
            write!(f, " {:?}={count}", Code::from_u32(*code))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Duration = Duration::from_millis(3);

    #[test]
    fn one_failed_call_is_not_all_right() {
        let mut tally = Tally::default();
        tally.succeeded(10, SOME);
        assert_eq!(tally.all_right(), Ok(()));
        tally.failed(&Status::unavailable("gone"), SOME);
        assert!(tally.all_right().unwrap_err().contains("gone"));
        assert_eq!(
            tally.to_string(),
            "right=1 not_executed=0 maybe_executed=0 executed=1 bytes=10 slowest_ms=3 slowest_failure_ms=3 Unavailable=1"
        );
    }

    #[test]
    fn another_code_than_unavailable_is_no_loss_of_the_server() {
        let mut tally = Tally::default();
        tally.failed(&Status::unavailable("gone"), SOME);
        assert_eq!(tally.lost_only(), Ok(()));
        tally.failed(&Status::internal("broken"), SOME);
        assert!(tally.lost_only().is_err());
    }

    #[test]
    fn wrong_bytes_are_never_right() {
        let mut tally = Tally::default();
        let wrong = Tally { wrong: Some("byte 3".into()), ..Tally::default() };
        tally.add(&wrong);
        assert!(tally.all_right().unwrap_err().contains("byte 3"));
        assert!(tally.lost_only().is_err());
    }
}
