//! What every call came to, as its caller and its handlers saw it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpc_core::{Code, Execution, Response, Status};

use crate::service::{Answer, Ask, answer_to};

/// A deadline may be kept so late: the bound of invariant checks.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Calls of one run, by their ids.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Default)]
pub(crate) struct Book {
    next: u64,
    calls: BTreeMap<u64, Entry>,
    wrong: Vec<String>,
}

#[derive(Default)]
struct Entry {
    executed: u32,
    end: Option<End>,
}

#[derive(Clone, Debug)]
enum End {
    Answered,
    Failed(Code, Execution, #[allow(dead_code, reason = "shown")] String),
    /// Its future was dropped.
    Given,
}

/// A call that is being made. Dropped without an end, it counts as given up.
pub(crate) struct Pending {
    ledger: Ledger,
    pub(crate) id: u64,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new call.
    pub(crate) fn begin(&self) -> Pending {
        let mut book = self.book();
        book.next += 1;
        let id = book.next;
        book.calls.insert(id, Entry::default());
        Pending { ledger: self.clone(), id }
    }

    /// A handler began to carry out a call.
    pub(crate) fn executed(&self, id: u64) {
        let mut book = self.book();
        match book.calls.get_mut(&id) {
            Some(entry) => entry.executed += 1,
            None => book.wrong.push(format!("a handler was given call {id}, which nobody made")),
        }
    }

    /// How many calls were made, and how many of them were answered.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let book = self.book();
        let answered = |entry: &&Entry| matches!(entry.end, Some(End::Answered));
        (book.calls.len(), book.calls.values().filter(answered).count())
    }

    /// How many calls failed, by their status.
    pub(crate) fn failures(&self) -> Vec<(Code, Execution, usize)> {
        let mut failures: Vec<(Code, Execution, usize)> = Vec::new();
        for entry in self.book().calls.values() {
            let Some(End::Failed(code, execution, _)) = &entry.end else { continue };
            match failures.iter_mut().find(|(c, e, _)| c == code && e == execution) {
                Some((.., count)) => *count += 1,
                None => failures.push((*code, *execution, 1)),
            }
        }
        failures
    }

    /// Checks what holds of every call once all have ended.
    pub(crate) fn check(&self) {
        let book = self.book();
        let mut wrong = book.wrong.clone();
        for (id, entry) in &book.calls {
            let times = entry.executed;
            let fits = match &entry.end {
                None => false,
                Some(End::Answered) => times == 1,
                Some(End::Failed(_, Execution::NotExecuted, _)) => times == 0,
                Some(End::Failed(_, Execution::Executed, _)) => times == 1,
                Some(_) => times <= 1,
            };
            if !fits {
                wrong.push(format!("call {id}: executed {times} times, and {:?}", entry.end));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

impl Pending {
    /// How it ended; `late` is how long after its deadline, as far as its node was awake.
    pub(crate) fn end(self, ask: &Ask, got: Result<Response<Answer>, Status>, late: Duration) {
        let mut book = self.ledger.book();
        let id = self.id;
        if late > LATE_MAX {
            book.wrong.push(format!("call {id} ended {late:?} after its deadline: {got:?}"));
        }
        let end = match got {
            Ok(answer) => {
                if answer.into_inner() != answer_to(ask) {
                    book.wrong.push(format!("call {id} has the answer of another"));
                }
                End::Answered
            }
            Err(status) => {
                End::Failed(status.code(), status.execution(), status.message().to_owned())
            }
        };
        if let Some(entry) = book.calls.get_mut(&id)
            && let Some(before) = entry.end.replace(end)
        {
            book.wrong.push(format!("call {id} ended twice, first as {before:?}"));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(entry) = self.ledger.book().calls.get_mut(&self.id) {
            entry.end.get_or_insert(End::Given);
        }
    }
}
