//! `kv bench` where something goes wrong, and what it leaves.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Server, assert_ended, kv, stderr};
use serde_json::Value;

/// A bench with few records, which goes on for longer than a test waits.
fn start(server: &Server, args: &[&str]) -> Child {
    let mut bench = kv(&["bench", &server.addr, "--records", "50", "--json"]);
    bench.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the server has served so many calls: then the bench is in its first mix.
fn wait_for_calls(server: &Server, calls: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    while server.stats()["cores"][0]["calls_served"].as_u64().unwrap() < calls {
        assert!(Instant::now() < until);
    }
}

fn rows(output: &Output) -> Vec<Value> {
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    json["rows"].as_array().unwrap().clone()
}

#[test]
fn a_bench_ends_when_its_server_is_gone_and_prints_what_it_has() {
    let mut server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let chart = dir.path().join("chart.svg");
    let svg = chart.to_str().unwrap();
    let bench = start(&server, &["--mix", "C,A", "--seconds", "600", "--svg", svg]);
    wait_for_calls(&server, 1_000);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let output = bench.wait_with_output().unwrap();
    assert_ended(&output, 1);
    let rows = rows(&output);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0]["done"].as_u64().unwrap() > 0, "{rows:?}");
    assert!(rows[0]["failed"].as_u64().unwrap() <= 32, "{rows:?}");
    let told = stderr(&output);
    assert!(told.contains("the run ends early, with mix C"), "{told}");
    assert!(told.contains("no chart was drawn") && !chart.exists(), "{told}");
}

#[test]
fn a_server_that_stops_answering_costs_a_bench_no_more_than_its_bounds() {
    let mut server = Server::start(&[]);
    let bench = start(&server, &["--mix", "C,A,B", "--seconds", "2", "--timeout", "1"]);
    wait_for_calls(&server, 1_000);
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
    let began = Instant::now();
    let output = bench.wait_with_output().unwrap();
    // Two mixes of two seconds each, with a second for their last calls.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    server.child.kill().unwrap();
    assert_ended(&output, 1);
    let rows = rows(&output);
    let [.., stopped, last] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(last["done"], 0, "{rows:?}");
    // Given up after a second each: the least of them too, but for the histogram's three digits.
    assert!(last["p50_us"].as_f64().unwrap() > 990_000.0, "{rows:?}");
    assert!(stopped["max_us"].as_f64().unwrap() > 990_000.0, "{rows:?}");
    let told = stderr(&output);
    assert!(told.contains("the run ends early, with mix"), "{told}");
}

#[test]
fn a_chart_that_cannot_be_written_is_refused_before_anything_is_measured() {
    // There is no server at this address: whoever asked it would say so.
    let svg = ["bench", "soft://127.0.0.1:1", "--svg", "/no/such/folder/x.svg"];
    let output = kv(&svg).output().unwrap();
    assert_ended(&output, 1);
    let told = stderr(&output);
    assert!(told.contains("a chart cannot be written to /no/such/folder/x.svg"), "{told}");
}

#[test]
fn reads_that_find_nothing_are_a_count_of_their_own() {
    let server = Server::start(&[]);
    let bench = start(&server, &["--mix", "C", "--seconds", "3"]);
    wait_for_calls(&server, 1_000);
    for record in 0..3 {
        let key = format!("bench/{record:012}");
        assert_ended(&server.run("delete", &[key.as_bytes()]), 0);
    }
    let output = bench.wait_with_output().unwrap();
    assert_ended(&output, 0);
    let row = &rows(&output)[0];
    assert!(row["not_found"].as_u64().unwrap() > 0, "{row}");
    assert!(row["done"].as_u64().unwrap() > 0 && row["failed"] == 0, "{row}");
}

/// The versions of all records.
fn versions(server: &Server) -> BTreeMap<String, u64> {
    let listed = server.run("list", &[b"bench/", b"--json"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| (line["key"].as_str().unwrap().to_owned(), line["version"].as_u64().unwrap()))
        .collect()
}

#[test]
fn what_a_bench_inserts_no_later_mix_or_run_replaces() {
    let server = Server::start(&[]);
    let run = || {
        let bench = start(&server, &["--mix", "D,E", "--seconds", "0.7", "--outstanding", "4"]);
        assert_ended(&bench.wait_with_output().unwrap(), 0);
        versions(&server)
    };
    let mut before = run();
    assert!(before.len() > 50, "{}", before.len());
    for _ in 0..2 {
        let after = run();
        assert!(after.len() > before.len());
        let (first, inserted) = (before.clone(), before.split_off("bench/000000000050"));
        assert_eq!(first.len() - inserted.len(), 50);
        for (key, version) in &inserted {
            assert_eq!(after[key], *version, "{key}");
        }
        before = after;
    }
}
