//! What tests of the program share.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests; and not
// every test uses all of them.
#![allow(clippy::unwrap_used, dead_code)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

const SERVE: &[&str] = &["serve", "soft://127.0.0.1:0", "--until-stdin-closes"];

/// A server that goes with this test, however it ends: its standard input closes.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) addr: String,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(args, Stdio::inherit())
    }

    /// One whose log is kept for `wait_with_output`.
    pub(crate) fn start_logged(args: &[&str]) -> Self {
        Self::spawn(args, Stdio::piped())
    }

    /// One whose files may not grow beyond some megabytes: every write after that fails.
    pub(crate) fn start_on_a_failing_disk(args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\""]);
        Self::spawn_as(command.arg(env!("CARGO_BIN_EXE_kv")).args(SERVE), args, Stdio::piped())
    }

    /// One that a command runs, as its last arguments.
    pub(crate) fn start_by(command: &mut Command, args: &[&str]) -> Self {
        Self::spawn_as(command.arg(env!("CARGO_BIN_EXE_kv")).args(SERVE), args, Stdio::inherit())
    }

    /// One with a command line of its own.
    pub(crate) fn start_as(command: &mut Command, stderr: Stdio) -> Self {
        Self::spawn_as(command, &[], stderr)
    }

    /// What it has logged, if that is kept, once it has ended.
    pub(crate) fn log(mut self) -> String {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    }

    fn spawn(args: &[&str], stderr: Stdio) -> Self {
        Self::spawn_as(&mut kv(SERVE), args, stderr)
    }

    fn spawn_as(command: &mut Command, args: &[&str], stderr: Stdio) -> Self {
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addr = line.trim_end().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, addr }
    }

    pub(crate) fn stop(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }

    pub(crate) fn run(&self, what: &str, args: &[&[u8]]) -> Output {
        let args = args.iter().map(|arg| OsStr::from_bytes(arg));
        kv(&[what, &self.addr]).args(args).output().unwrap()
    }

    pub(crate) fn stats(&self) -> serde_json::Value {
        let output = kv(&["stats", &self.addr, "--json"]).output().unwrap();
        assert_ended(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

pub(crate) fn kv(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv"));
    command.args(args);
    command
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub(crate) fn assert_ended(output: &Output, code: i32) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = stderr(output);
    assert_eq!(output.status.code(), Some(code), "stdout: {stdout}\nstderr: {stderr}");
}
