//! A server on a file system that is full, and has room again.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{Server, assert_ended, kv, stderr};

/// Runs a command in a mount namespace of its own, with a small file system at its first argument. As long
/// as it runs, others find that below `/proc/PID/root`.
const MOUNT: &str = "mount -t tmpfs -o size=24m tmpfs \"$1\" && shift && exec \"$@\"";

/// How a mount namespace is had here: as root, or as root of a user namespace. `None`, and said, if not at
/// all.
fn namespace() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];
    let folder = tempfile::tempdir().unwrap();
    let mut why = String::new();
    for way in ways {
        let mut mount = Command::new("unshare");
        mount.args(way).args(["sh", "-c", MOUNT, "sh"]).arg(folder.path()).arg("true");
        match mount.output() {
            Ok(output) if output.status.success() => return Some(way),
            Ok(output) => why = stderr(&output),
            Err(error) => why = error.to_string(),
        }
    }
    let why = why.trim_end().replace('\n', " ");
    if std::env::var("CI").is_ok_and(|ci| ci == "true") {
        panic!("no mount namespace, and under CI=true nothing is skipped: {why}");
    }
    println!("| SKIPPED: no server on a full file system, for want of a mount namespace | {why} |");
    None
}

#[test]
fn a_server_on_a_full_file_system_refuses_puts_and_takes_them_again_when_there_is_room() {
    let Some(way) = namespace() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(way).args(["sh", "-c", MOUNT, "sh"]).arg(folder.path());
    let data = folder.path().join("data");
    let server = Server::start_by(&mut unshare, &["--data", data.to_str().unwrap()]);
    // All of it is one process, which became the server.
    let inside = PathBuf::from(format!("/proc/{}/root", server.child.id()));
    let mounted = inside.join(folder.path().strip_prefix("/").unwrap());
    let filler = mounted.join("filler");
    fs::write(&filler, vec![1; 8 << 20]).unwrap();
    let value = folder.path().join("value");
    fs::write(&value, vec![7; 1_000_000]).unwrap();
    let put = |key: usize| {
        let put = kv(&["put", &server.addr, &format!("k{key}"), "--file"]).arg(&value).output();
        put.unwrap()
    };
    let mut key = 0;
    let refused = loop {
        let output = put(key);
        if !output.status.success() {
            break output;
        }
        key += 1;
        assert!(key < 24, "24 MB do not fit into 24 MiB");
    };
    assert!(key > 2, "{key}: {}", stderr(&refused));
    assert_ended(&refused, 1);
    let told = stderr(&refused);
    assert!(told.contains("disk is full") && told.contains("nothing was written"), "{told}");
    // It serves what it has, and does not end.
    assert_eq!(server.run("get", &[b"k0"]).stdout, fs::read(&value).unwrap());
    assert_ended(&put(key), 1);

    fs::remove_file(&filler).unwrap();
    assert_ended(&put(key), 0);

    let mut more = key + 1;
    while put(more).status.success() {
        more += 1;
        assert!(more < 24);
    }
    assert_ended(&server.run("get", &[format!("k{more}").as_bytes()]), 3);
    // Deletes are done on a full disk, and what they free is room within the file.
    for key in 0..more {
        assert_ended(&server.run("delete", &[format!("k{key}").as_bytes()]), 0);
    }
    assert_ended(&put(0), 0);
    assert_eq!(server.stats()["keys"], 1);
    assert!(server.stop().success());
}
