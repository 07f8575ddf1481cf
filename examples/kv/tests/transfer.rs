//! `kv load` and `kv verify`.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{Server, assert_ended, kv, stderr};
use serde_json::Value;

fn run(command: &str, server: &Server, dir: &Path, args: &[&str]) -> Output {
    kv(&[command, &server.addr]).arg(dir).args(args).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Files done in this run, and before it.
fn files(output: &Output) -> (u64, u64) {
    let json = json(output);
    (json["files"].as_u64().unwrap(), json["files_before"].as_u64().unwrap())
}

fn tree(dir: &Path) {
    let mut make = kv(&["make-tree", "--seed", "3", "--files", "60", "--bytes", "2MB"]);
    assert_ended(&make.arg(dir).output().unwrap(), 0);
}

#[test]
fn a_folder_is_loaded_and_verified_byte_for_byte() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let tree_dir = dir.path().join("tree");
    tree(&tree_dir);
    let loaded = run("load", &server, &tree_dir, &["--json"]);
    assert_ended(&loaded, 0);
    assert_eq!((files(&loaded), json(&loaded)["bytes"].as_u64()), ((60, 0), Some(2_000_000)));
    let verified = run("verify", &server, &tree_dir, &[]);
    assert_ended(&verified, 0);
    let told = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(told.starts_with("verified 60 files, 2,000,000 bytes in "), "{told}");

    assert_ended(&server.run("put", &[b"plain-000/file-00000.bin", b"other"]), 0);
    fs::write(tree_dir.join("new"), b"not loaded").unwrap();
    let differs = run("verify", &server, &tree_dir, &["--json"]);
    assert_ended(&differs, 1);
    let told = stderr(&differs);
    assert!(told.contains("DIFFERS: plain-000/file-00000.bin"), "{told}");
    assert!(told.contains("DIFFERS: new: the key is not there"), "{told}");
    assert_eq!(files(&differs), (59, 0));
}

#[test]
fn a_load_goes_on_where_it_ended_and_does_again_what_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let tree_dir = folder.path().join("tree");
    tree(&tree_dir);
    // In the folder itself, which must not make it one of the files.
    let journal = tree_dir.join("journal");
    let resume = ["--json", "--resume", journal.to_str().unwrap()];
    let server = Server::start(&["--data", data.to_str().unwrap()]);
    let first = run("load", &server, &tree_dir, &resume);
    assert_ended(&first, 0);
    assert_eq!(files(&first), (60, 0));
    assert!(server.stop().success());

    // The store outlives its server, so the journal does too; its last line was cut off meanwhile.
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 3]).unwrap();
    fs::write(tree_dir.join("plain-000/file-00001.bin"), b"changed").unwrap();
    let server = Server::start(&["--data", data.to_str().unwrap()]);
    let second = run("load", &server, &tree_dir, &resume);
    assert_ended(&second, 0);
    let (now, before) = files(&second);
    assert_eq!(now + before, 60);
    assert!((1..=2).contains(&now), "{now}");
    assert_eq!(files(&run("load", &server, &tree_dir, &resume)), (0, 60));
    let other = run("verify", &server, &tree_dir, &resume);
    assert_ended(&other, 1);
    assert!(stderr(&other).contains("another command"), "{}", stderr(&other));
    fs::remove_file(&journal).unwrap();
    assert_ended(&run("verify", &server, &tree_dir, &resume), 0);
    assert_eq!(files(&run("verify", &server, &tree_dir, &resume)), (0, 60));
}

#[test]
fn a_journal_of_another_store_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tree_dir = dir.path().join("tree");
    tree(&tree_dir);
    let journal = dir.path().join("journal");
    let resume = ["--json", "--resume", journal.to_str().unwrap()];
    for _ in 0..2 {
        let server = Server::start(&[]);
        assert_eq!(files(&run("load", &server, &tree_dir, &resume)), (60, 0));
        assert_ended(&run("verify", &server, &tree_dir, &[]), 0);
    }
}

#[test]
fn a_load_whose_server_goes_away_ends_and_says_so() {
    let server = Server::start(&[]);
    let addr = server.addr.clone();
    assert!(server.stop().success());
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), b"x").unwrap();
    let output = kv(&["load", &addr]).arg(dir.path()).output().unwrap();
    assert_ended(&output, 1);
    assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
}
