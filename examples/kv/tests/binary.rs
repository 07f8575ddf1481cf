//! Runs the program as a user does: a server in a process of its own, and commands that call it.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Server, assert_ended, kv, stderr};

#[test]
fn a_value_is_stored_read_replaced_and_removed() {
    let server = Server::start(&[]);
    let key = b"not \xff utf-8";
    let absent = server.run("get", &[key]);
    assert_ended(&absent, 3);
    assert!(stderr(&absent).contains("no value under the key"));
    for value in [&b"value \xfe"[..], b"", b"another"] {
        assert_ended(&server.run("put", &[key, value]), 0);
        let got = server.run("get", &[key]);
        assert_ended(&got, 0);
        assert_eq!(got.stdout, value);
    }
    assert_eq!(server.stats()["keys"], 1);
    assert_ended(&server.run("delete", &[key]), 0);
    assert_ended(&server.run("delete", &[key]), 3);
    assert_eq!(server.stats()["keys"], 0);
    assert!(server.stop().success());
}

#[test]
fn values_come_from_files_and_standard_input_and_go_to_files() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let value: Vec<u8> = (0..300_001_u32).map(|i| (i % 251) as u8).collect();
    fs::write(&from, &value).unwrap();
    assert_ended(&server.run("put", &[b"file", b"--file", from.as_os_str().as_bytes()]), 0);
    assert_ended(&server.run("get", &[b"file", b"--file", to.as_os_str().as_bytes()]), 0);
    assert!(fs::read(&to).unwrap() == value);

    let mut put = kv(&["put", &server.addr, "input", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(&value).unwrap();
    assert!(put.wait().unwrap().success());
    assert!(server.run("get", &[b"input"]).stdout == value);
}

#[test]
fn the_longest_value_travels_by_read_and_not_in_messages() {
    const LONGEST: u64 = 64 << 20;
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longest");
    let value: Vec<u8> = (0..LONGEST).map(|i| (i % 253) as u8).collect();
    fs::write(&path, &value).unwrap();
    assert_ended(&server.run("put", &[b"k", b"--file", path.as_os_str().as_bytes()]), 0);
    assert!(server.run("get", &[b"k"]).stdout == value);
    let stats = server.stats();
    let core = &stats["cores"][0];
    assert_eq!(core["read_bytes"], LONGEST);
    assert_eq!(core["read_bytes_served"], LONGEST);
    assert!(core["eager_bytes_received"].as_u64().unwrap() < 64 << 10, "{stats}");
    assert!(core["eager_bytes_sent"].as_u64().unwrap() < 64 << 10, "{stats}");
}

#[test]
fn a_value_over_the_limit_is_refused_in_a_sentence() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("too-long");
    fs::File::create(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    let output = server.run("put", &[b"k", b"--file", path.as_os_str().as_bytes()]);
    assert_ended(&output, 1);
    assert!(stderr(&output).contains("67108865; store it in parts"), "{}", stderr(&output));
}

#[test]
fn a_full_store_says_so_and_what_to_do() {
    let server = Server::start(&["--store", "1kB"]);
    assert_ended(&server.run("put", &[b"k", b"small"]), 0);
    let output = server.run("put", &[b"l", &[b'x'; 1_000]]);
    assert_ended(&output, 1);
    assert!(stderr(&output).contains("--store"), "{}", stderr(&output));
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let server = Server::start(&[]);
    let output = kv(&["serve", &server.addr]).output().unwrap();
    assert_ended(&output, 1);
    let port = server.addr.rsplit_once(':').unwrap().1;
    assert!(stderr(&output).starts_with("error: ") && stderr(&output).contains(port));
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_says_so() {
    let server = Server::start(&[]);
    let addr = server.addr.clone();
    assert!(server.stop().success());
    let output = kv(&["get", &addr, "k"]).output().unwrap();
    assert_ended(&output, 1);
    assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
}

#[test]
fn a_name_that_does_not_resolve_is_an_error_that_names_it() {
    let output = kv(&["get", "soft://no-such-host.invalid:7471", "k"]).output().unwrap();
    assert_ended(&output, 1);
    assert!(stderr(&output).contains("no-such-host.invalid"), "{}", stderr(&output));
}

#[test]
fn wrong_usage_ends_with_2() {
    assert_ended(&kv(&["put", "soft://127.0.0.1:1", "k"]).output().unwrap(), 2);
    assert_ended(&kv(&["nonsense"]).output().unwrap(), 2);
    assert_ended(&kv(&["--help"]).output().unwrap(), 0);
}

#[test]
fn a_server_stops_in_order_on_sigterm_and_sigint() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start(&[]);
        assert_ended(&server.run("put", &[b"k", b"v"]), 0);
        let id = server.child.id().to_string();
        // Waiting for a child closes its input, which would stop it too.
        let _input = server.child.stdin.take();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let status = server.child.wait().unwrap();
        assert!(status.success(), "{signal}: {status}");
    }
}

fn demo(dir: &Path) -> Output {
    kv(&["demo"]).arg(dir).output().unwrap()
}

#[test]
fn the_demo_verifies_files_of_the_hard_sizes_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let mut make = kv(&["make-tree", "--seed", "7", "--files", "150", "--bytes", "5MB"]);
    assert_ended(&make.arg(&tree).output().unwrap(), 0);
    std::os::unix::fs::symlink("plain-000", tree.join("link")).unwrap();
    fs::create_dir_all(tree.join("target/debug")).unwrap();
    let output = demo(&tree);
    assert_ended(&output, 0);
    let table = String::from_utf8_lossy(&output.stdout);
    let row = |name: &str| {
        let mut lines = table.lines().map(|line| line.trim_matches(['│', ' ']));
        let numbers = lines.find_map(|line| line.strip_prefix(name)).unwrap();
        numbers.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("files"), ["150", "150"], "{table}");
    assert_eq!(row("bytes"), ["5,000,000", "5,000,000"], "{table}");
    assert_eq!(row("server: payload bytes in use"), ["0", "0"], "{table}");
    assert_eq!(row("server: leases"), ["0", "0"], "{table}");
    let by_read = row("values by READ");
    assert_eq!(by_read[0], by_read[1], "{table}");
    assert_ne!(by_read[0], "0", "{table}");
    assert!(table.contains("skipped: 1 symbolic links, 1 target"), "{table}");
    let id = stderr(&output);
    let id = id.split_once("process ").unwrap().1.split_whitespace().next().unwrap();
    assert!(!Path::new("/proc").join(id).exists(), "the server is still there");
}

#[test]
fn the_demo_can_use_a_server_that_runs_already() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("large"), vec![7; 100_000]).unwrap();
    fs::write(dir.path().join("small"), b"small").unwrap();
    let output = kv(&["demo", "--server", &server.addr]).arg(dir.path()).output().unwrap();
    assert_ended(&output, 0);
    assert!(stderr(&output).contains(&server.addr), "{}", stderr(&output));
    assert_eq!(server.run("get", &[b"small"]).stdout, b"small");
    assert!(server.stop().success());
}

#[test]
fn the_demo_of_an_empty_folder_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(dir.path());
    assert_ended(&output, 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("skipped: nothing"));
}

#[test]
fn a_file_that_is_being_written_is_never_taken_for_a_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("busy");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    fs::write(dir.path().join("quiet"), b"quiet").unwrap();
    let done = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u8;
            while !done.load(Ordering::Relaxed) {
                round = round.wrapping_add(1);
                fs::write(&path, vec![round; (1 << 20) - usize::from(round)]).unwrap();
            }
        });
        let output = demo(dir.path());
        done.store(true, Ordering::Relaxed);
        output
    });
    let told = stderr(&output);
    assert!(!told.contains("DIFFERS") && !told.contains("failed"), "{told}");
    assert!(matches!(output.status.code(), Some(0 | 5)), "{told}");
    assert_eq!(
        told.contains("changed whenever it was read: busy"),
        output.status.code() == Some(5)
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let output = demo(Path::new("/no/such/folder"));
    assert_ended(&output, 1);
    assert!(stderr(&output).contains("/no/such/folder"));
}

#[test]
fn a_server_whose_log_nobody_reads_goes_on_after_a_stranger_called() {
    let mut server = Server::start_logged(&[]);
    drop(server.child.stderr.take());
    for _ in 0..3 {
        let mut stranger = TcpStream::connect(server.addr.trim_start_matches("soft://")).unwrap();
        stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        // The end of it, or an error: the server has seen what this is.
        _ = stranger.read_to_end(&mut Vec::new());
    }
    assert_ended(&server.run("put", &[b"k", b"v"]), 0);
    assert!(server.stop().success());
}
