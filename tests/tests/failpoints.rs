//! Processes that kill themselves at one point of the protocol after the other, as `kill -9` does.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::process::Command;

use rpc_core::failpoint::Point;

/// Twice each point of either side.
const ROUNDS: u32 = 22;

#[test]
fn whoever_dies_at_whatever_point_is_found_at_once_judged_rightly_and_leaves_nothing() {
    let rounds = std::env::var("FAILPOINT_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.args(["failpoints", "soft://127.0.0.1:0", "--bytes-max", "1000000"]);
    let output = command.args(["--rounds", &rounds.to_string()]).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "stdout: {out}\nstderr: {err}");
    print!("{out}");
    if rounds >= ROUNDS {
        for point in Point::ALL {
            assert!(
                out.contains(&format!(" died at {} (", point.name())),
                "{}: {out}",
                point.name()
            );
        }
    }
}
