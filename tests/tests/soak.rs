//! The load program, over the software device: what the guest runs over libibverbs, in short.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rpc_tests::eventually;

fn soak(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_ended(output: &Output, code: i32) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {out}\nstderr: {err}");
}

/// A server that ends with its test, and its address.
fn server() -> (Child, String) {
    let mut command = soak(&["serve", "soft://127.0.0.1:0"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim_end().strip_prefix("listening on ").unwrap();
    let address = format!("soft://{at}");
    (child, address)
}

#[test]
fn calls_of_every_size_succeed_and_are_counted() {
    let (mut server, address) = server();
    let output = soak(&["call", &address, "--calls", "600", "--seed", "5"]).output().unwrap();
    assert_ended(&output, 0);
    let line = text(&output.stdout);
    assert!(line.starts_with("right=600 not_executed=0 maybe_executed=0 executed=0 "), "{line}");
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_deadline_that_passes_fails_the_program() {
    let (_server, address) = server();
    // A millisecond is not enough for many calls of megabytes, however fast the machine is.
    let args = ["call", &address, "--timeout-ms", "1", "--at-once", "64", "--calls", "20000"];
    let output = soak(&args).output().unwrap();
    assert_ended(&output, 1);
    assert!(text(&output.stdout).contains("DeadlineExceeded="), "{}", text(&output.stdout));
}

#[test]
fn killed_servers_and_clients_leave_nothing_and_the_channel_goes_on() {
    let args = ["kill", "soft://127.0.0.1:0", "--rounds", "2", "--bytes-max", "1000000"];
    let output = soak(&args).output().unwrap();
    assert_ended(&output, 0);
    let out = text(&output.stdout);
    for line in ["server 2 killed: calls ended in", "server 2 is back", "client 2 killed"] {
        assert!(out.contains(line), "{out}");
    }
}

#[test]
fn servers_and_clients_that_stand_still_are_found_and_resumed_go_on_anew() {
    let args = ["stop", "soft://127.0.0.1:0", "--rounds", "1", "--bytes-max", "1000000"];
    let output = soak(&[&args[..], &["--found-ms", "2000"]].concat()).output().unwrap();
    assert_ended(&output, 0);
    let out = text(&output.stdout);
    for line in ["server stopped 1: calls ended in", "server resumed 1", "clients stopped"] {
        assert!(out.contains(line), "{out}");
    }
}

#[test]
fn programs_end_with_their_parent() {
    let (mut served, address) = server();
    let mut rider = soak(&["ride", &address]);
    let mut rider = rider.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    for child in [&mut rider, &mut served] {
        drop(child.stdin.take());
        let ended = || child.try_wait().unwrap().is_some_and(|status| status.success());
        assert!(eventually(Duration::from_secs(30), ended));
    }
}

#[test]
fn a_command_line_that_is_not_understood_says_what_there_is() {
    let output = soak(&["sing", "soft://127.0.0.1:0"]).output().unwrap();
    assert_ended(&output, 2);
    assert!(text(&output.stderr).contains("soak call ADDRESS"));
}

#[test]
fn a_server_that_is_not_there_fails_the_program() {
    let output = soak(&["call", "soft://127.0.0.1:1"]).output().unwrap();
    assert_ended(&output, 1);
    assert!(text(&output.stderr).contains("no connection"), "{}", text(&output.stderr));
}
