//! Tests that need a process with fewer rights: the test runs itself again as another user.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Tells a child that it is one.
const CHILD: &str = "RPC_TEST_CHILD";

/// The user of no rights.
const NOBODY: u32 = 65_534;

/// Whether this process is the child of a test.
pub(super) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test of this path again, as a user without rights, and expects it to pass.
pub(super) fn run_as_nobody(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--include-ignored", "--nocapture"])
        .env(CHILD, "yes")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" 1 passed"), "{said}{output:?}");
}
