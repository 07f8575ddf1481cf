//! System calls of a call: both processes of this framework in a run under strace, which is not timed.
//!
//! strace stops a process twice at each of its system calls, so what that run measures is nothing but their
//! number. `sched_yield` goes by without a stop: it would slow down what it is there for, and cores count it
//! by themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io, process};

use super::child::CELLS;
use super::tool;
use crate::compare::cells::Value;
use crate::failure::Failure;

const PROGRAM: &str = "strace";
/// A file that is nowhere: who asks for it writes a line into its trace.
const MARK: &str = "/bench-verbs-mark";

/// Where the traces of one run go; they go away with it.
pub(super) struct Traces(PathBuf);

/// Both sides, by the names that values have.
const SIDES: [&str; 2] = ["client", "server"];

/// Writes a line into this process's trace, if there is one: between two of them is one cell.
pub(super) fn mark() {
    // It is not there, which is the point of it.
    let _ = fs::metadata(MARK);
}

impl Traces {
    /// A folder for them; `None`: there is no strace.
    pub(super) fn begin() -> io::Result<Option<Self>> {
        if !tool::is_there(PROGRAM) {
            return Ok(None);
        }
        let folder = env::temp_dir().join(format!("bench-verbs-{}", process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Some(Self(folder)))
    }

    fn file(&self, side: &str) -> PathBuf {
        self.0.join(side)
    }

    /// Runs a program so that its system calls are written down.
    pub(super) fn command(&self, side: &str, program: &Path) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["--follow-forks", "--seccomp-bpf", "--quiet=all", "--trace=!sched_yield"]);
        command.arg("--output").arg(self.file(side)).arg(program);
        command
    }

    /// System calls of each call of that run, in which the client measured these values.
    pub(super) fn per_call(&self, values: &[Value]) -> Result<Vec<Value>, Failure> {
        let value =
            |name: String| values.iter().find(|(named, _)| *named == name).map(|(_, value)| *value);
        let mut counts = Vec::new();
        for side in SIDES {
            let text = fs::read(self.file(side))?;
            let text = String::from_utf8_lossy(&text);
            let cells = between_marks(&text);
            if cells.len() != CELLS.len() {
                return Err(Failure::new(format!(
                    "the {side}'s trace has marks for {} cells and not for {}: strace {:?} writes lines of another form \
                     than this program knows",
                    cells.len(),
                    CELLS.len(),
                    tool::version(PROGRAM)
                )));
            }
            for (cell, calls_by_name) in CELLS.iter().zip(&cells) {
                let calls = value(format!("{cell} {side} calls")).unwrap_or(0.0).max(1.0);
                let total: u64 = calls_by_name.values().sum();
                counts.push((format!("{cell} {side} syscalls"), total as f64 / calls));
                let named = calls_by_name.iter();
                counts.extend(named.map(|(name, count)| {
                    (format!("{cell} {side} syscall {name}"), *count as f64 / calls)
                }));
                // Of this run: strace changes how many calls share one.
                let doorbells = value(format!("{cell} {side} doorbells"));
                counts.extend(
                    doorbells.map(|count| (format!("{cell} {side} doorbells traced"), count)),
                );
            }
        }
        Ok(counts)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // What is left of it is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How often each system call was begun between each mark and the next.
fn between_marks(trace: &str) -> Vec<BTreeMap<&str, u64>> {
    let mut cells: Vec<BTreeMap<&str, u64>> = Vec::new();
    let mut begun = false;
    // In quotes: an argument of its own, and not part of a command.
    let mark = format!("{MARK:?}");
    for line in trace.lines() {
        if line.contains(&mark) {
            begun = true;
            cells.push(BTreeMap::new());
        } else if let (Some(name), Some(cell)) = (begun_call(line), cells.last_mut()) {
            *cell.entry(name).or_default() += 1;
        }
    }
    // Behind the last mark it ends.
    if begun {
        cells.pop();
    }
    cells
}

/// The system call that a line tells of, `THREAD name(…`. Not one that goes on, `THREAD <... name resumed>`, which
/// was told of before; nor signals and ends.
fn begun_call(line: &str) -> Option<&str> {
    let (_thread, rest) = line.split_once(' ')?;
    let (name, _) = rest.trim_start().split_once('(')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_counted_between_marks_and_each_once() {
        let trace = "\
100   execve(\"/bench\", [\"bench\"], 0x7ffd /* 20 vars */) = 0
100   statx(AT_FDCWD, \"/bench-verbs-mark\", AT_STATX_SYNC_AS_STAT, STATX_ALL, 0x7ffd) = -1 ENOENT (No such file)
100   write(5, \"\\3\\0\\0\", 24) = 24
101   epoll_wait(6,  <unfinished ...>
100   write(5, \"f(x)\", 24)           = 24
101   <... epoll_wait resumed>[], 64, 0) = 0
101   --- SIGUSR1 {si_signo=SIGUSR1, si_code=SI_USER} ---
100   statx(AT_FDCWD, \"/bench-verbs-mark\", AT_STATX_SYNC_AS_STAT, STATX_ALL, 0x7ffd) = -1 ENOENT (No such file)
100   statx(AT_FDCWD, \"/bench-verbs-mark\", AT_STATX_SYNC_AS_STAT, STATX_ALL, 0x7ffd) = -1 ENOENT (No such file)
100   exit_group(0)                     = ?
100   +++ exited with 0 +++
";
        let expected = [BTreeMap::from([("write", 2), ("epoll_wait", 1)]), BTreeMap::new()];
        assert_eq!(between_marks(trace), expected);
        assert!(between_marks("100   write(5, \"\", 0) = 0\n").is_empty());
    }

    #[test]
    fn a_mark_is_seen_by_the_strace_of_this_machine() {
        let Some(traces) = Traces::begin().unwrap() else {
            println!("skipped a_mark_is_seen: no strace");
            return;
        };
        // As `mark` asks for it.
        let script = format!("test -e {MARK}; test -e /; test -e {MARK}");
        let mut command = traces.command("client", Path::new("/bin/sh"));
        match command.args(["-c", &script]).output() {
            Ok(output) if output.status.code() == Some(1) => {}
            other => {
                println!("skipped a_mark_is_seen: strace may not trace here: {other:?}");
                return;
            }
        }
        let text = fs::read_to_string(traces.file("client")).unwrap();
        let cells = between_marks(&text);
        assert_eq!(cells.len(), 1, "{text}");
        assert!(cells[0].values().sum::<u64>() >= 1, "{text}");
    }
}
