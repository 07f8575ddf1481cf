//! `kv load` and `kv verify`.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::kv::proto::{
    BatchGetRequest, BatchGetResponse, BatchPutRequest, BatchPutResponse, DeleteRequest,
    DeleteResponse, GetRequest, GetResponse, Kv, KvServer, ListRequest, ListResponse, PutRequest,
    PutResponse, StatsRequest, StatsResponse,
};
use ::kv::{Service, Store};
use common::{Server, assert_ended, kv, stderr};
use rpc_core::{Request, Response, Runtime, Status};
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
    let json = json(&differs);
    assert_eq!(
        (&json["differ"], &json["failed"], &json["skipped"]),
        (&2.into(), &0.into(), &0.into())
    );
    let names: Vec<_> = json["problems"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["new", "plain-000/file-00000.bin"]);
}

/// The keys of a file, in order.
fn keys(server: &Server, name: &str) -> Vec<String> {
    let listed = server.run("list", &[name.as_bytes(), b"--json"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    let key = |line| serde_json::from_str::<Value>(line).unwrap()["key"].as_str().unwrap().into();
    text.lines().map(key).collect()
}

#[test]
fn a_file_that_shrinks_or_grows_leaves_nothing_behind_and_verify_finds_what_is_left() {
    const PART: u64 = 64 << 20;
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("f")).unwrap();
    let load = |len: u64, deleted: u64| {
        file.set_len(len).unwrap();
        let output = run("load", &server, dir.path(), &["--json"]);
        assert_ended(&output, 0);
        assert_eq!(json(&output)["deleted"], deleted, "{len}");
        keys(&server, "f")
    };
    assert_eq!(load(2 * PART + 1, 0), ["f\0part/0", "f\0part/1", "f\0part/2"]);
    assert_eq!(load(PART + 1, 1), ["f\0part/0", "f\0part/1"]);
    // Somebody stores the file as it is now, and not what it was.
    file.set_len(3).unwrap();
    assert_ended(
        &server.run("put", &[b"f", b"--file", dir.path().join("f").to_str().unwrap().as_bytes()]),
        0,
    );
    let verified = run("verify", &server, dir.path(), &["--json"]);
    assert_ended(&verified, 1);
    assert!(stderr(&verified).contains("STRAY: f: a key is stored"), "{}", stderr(&verified));
    assert_eq!((&json(&verified)["strays"], &json(&verified)["differ"]), (&2.into(), &0.into()));
    assert_eq!(load(3, 2), ["f"]);
    // Among so many keys of others, those of the file are asked for and not all listed.
    let others: Vec<String> = (0..300).map(|i| format!("f{i}=x")).collect();
    let others: Vec<&[u8]> = others.iter().map(|pair| pair.as_bytes()).collect();
    assert_ended(&server.run("mput", &others), 0);
    let keys = load(PART + 1, 1);
    assert_eq!(keys[..2], ["f\0part/0", "f\0part/1"]);
    assert_eq!(keys.len(), 302);
    assert_ended(&run("verify", &server, dir.path(), &[]), 0);
}

#[test]
fn without_a_folder_it_is_what_git_tracks_or_nothing() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), b"x").unwrap();
    let load =
        |command: &str| kv(&[command, &server.addr]).current_dir(dir.path()).output().unwrap();
    for command in ["load", "verify"] {
        let refused = load(command);
        assert_ended(&refused, 1);
        assert!(stderr(&refused).contains("git tells of no files"), "{}", stderr(&refused));
    }
    let git = |args: &[&str]| {
        let done = Command::new("git").current_dir(dir.path()).args(args).output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
    };
    git(&["init", "-q"]);
    let refused = load("load");
    assert_ended(&refused, 1);
    assert!(stderr(&refused).contains("git tracks no files"), "{}", stderr(&refused));
    git(&["add", "file"]);
    let loaded = load("load");
    assert_ended(&loaded, 0);
    let told = String::from_utf8(loaded.stdout).unwrap();
    assert!(told.starts_with("loaded 1 file,") && told.contains("(what git tracks)"), "{told}");
}

#[test]
fn a_load_whose_server_answers_nothing_any_more_ends_after_the_first_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (data, tree_dir) = (dir.path().join("data"), dir.path().join("tree"));
    for file in 0..2_000 {
        fs::create_dir_all(&tree_dir).unwrap();
        fs::write(tree_dir.join(format!("{file:04}")), b"x").unwrap();
    }
    let mut server = Server::start(&["--data", data.to_str().unwrap()]);
    // One commit each: long enough for the server to be stopped in the midst of it.
    let mut load = kv(&["load", &server.addr, "--calls", "1", "--timeout", "1", "--json"]);
    load.arg(&tree_dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let load = load.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while server.stats()["store"]["writes"] == 0 {
        assert!(Instant::now() < until);
    }
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
    let began = Instant::now();
    let output = load.wait_with_output().unwrap();
    server.child.kill().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_ended(&output, 1);
    let told = stderr(&output);
    assert!(told.contains("files not sent, because the server answered none"), "{told}");
    assert_eq!(told.lines().count(), 3, "{told}"); // with how to go on
    let json = json(&output);
    let sum = json["files"].as_u64().unwrap() + json["failed"].as_u64().unwrap();
    assert_eq!(sum, 2_000, "{json}");
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
fn a_journal_of_a_store_that_was_put_back_from_a_copy_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (data, tree_dir) = (dir.path().join("data"), dir.path().join("tree"));
    tree(&tree_dir);
    let journal = dir.path().join("journal");
    let resume = ["--json", "--resume", journal.to_str().unwrap()];
    let args = ["--data", data.to_str().unwrap()];
    assert!(Server::start(&args).stop().success());
    let copy = fs::read(data.join("kv.redb")).unwrap();
    let server = Server::start(&args);
    assert_eq!(files(&run("load", &server, &tree_dir, &resume)), (60, 0));
    assert!(server.stop().success());
    fs::write(data.join("kv.redb"), copy).unwrap();
    let server = Server::start(&args);
    let again = run("load", &server, &tree_dir, &resume);
    assert_eq!(files(&again), (60, 0));
    assert!(stderr(&again).contains("put back from a copy"), "{}", stderr(&again));
    assert_ended(&run("verify", &server, &tree_dir, &[]), 0);
}

#[test]
fn a_load_that_was_killed_goes_on_and_passes_over_nothing_that_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (data, tree_dir) = (dir.path().join("data"), dir.path().join("tree"));
    fs::create_dir(&tree_dir).unwrap();
    for file in 0..900 {
        fs::write(tree_dir.join(format!("{file:04}")), format!("the file {file}")).unwrap();
    }
    let journal = dir.path().join("journal");
    let server = Server::start(&["--data", data.to_str().unwrap()]);
    let resume = ["--json", "--calls", "2", "--resume", journal.to_str().unwrap()];
    let lines = || fs::read(&journal).unwrap_or_default().iter().filter(|b| **b == b'\n').count();
    for killed_at in [1, 100, 300] {
        let mut load = kv(&["load", &server.addr]);
        load.arg(&tree_dir).args(resume).stdout(Stdio::piped());
        let mut load = load.spawn().unwrap();
        while lines() < 1 + killed_at {
            assert!(load.try_wait().unwrap().is_none(), "it ended before {killed_at} files");
        }
        load.kill().unwrap();
        load.wait().unwrap();
    }
    let before = lines() as u64 - 1;
    assert!((300..900).contains(&before), "{before}");
    let last = run("load", &server, &tree_dir, &resume);
    assert_ended(&last, 0);
    assert_eq!(files(&last), (900 - before, before));
    let verified = run("verify", &server, &tree_dir, &["--json"]);
    assert_ended(&verified, 0);
    assert_eq!(files(&verified), (900, 0));
}

/// A service that is another store whenever it is asked.
struct Replaced {
    service: Service,
    asked: AtomicU64,
}

impl Kv for Replaced {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        self.service.get(request).await
    }
    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.service.put(request).await
    }
    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        self.service.delete(request).await
    }
    async fn batch_get(
        &self,
        request: Request<BatchGetRequest>,
    ) -> Result<Response<BatchGetResponse>, Status> {
        self.service.batch_get(request).await
    }
    async fn batch_put(
        &self,
        request: Request<BatchPutRequest>,
    ) -> Result<Response<BatchPutResponse>, Status> {
        self.service.batch_put(request).await
    }
    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        self.service.list(request).await
    }
    async fn stats(
        &self,
        request: Request<StatsRequest>,
    ) -> Result<Response<StatsResponse>, Status> {
        let mut stats = self.service.stats(request).await?.into_inner();
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        stats.store.get_or_insert_default().id = asked.to_be_bytes().to_vec().into();
        Ok(Response::new(stats))
    }
}

/// Serves while a function runs, which gets the address.
fn while_served<T: Send>(service: impl Kv, then: impl FnOnce(&str) -> T + Send) -> T {
    let (done, stop) = futures_channel::oneshot::channel::<()>();
    rpc_core::block_on(async {
        let server = rpc_core::Server::builder().add_service(KvServer::new(service));
        let bound = server.bind("soft://127.0.0.1:0").await.unwrap();
        let addr = format!("soft://{}", bound.local_addr());
        thread::scope(|scope| {
            let running = scope.spawn(move || {
                let result = then(&addr);
                drop(done);
                result
            });
            let served = bound.serve_with_shutdown(async {
                _ = stop.await;
            });
            rpc_core::block_on(served).unwrap();
            running.join().unwrap()
        })
    })
}

#[test]
fn a_load_or_verify_whose_store_was_replaced_meanwhile_fails_and_its_journal_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tree_dir = dir.path().join("tree");
    tree(&tree_dir);
    let journal = dir.path().join("journal");
    for command in ["load", "verify"] {
        let store = Arc::new(Store::in_memory(1 << 30).unwrap());
        let runtime = Runtime::builder().build().unwrap();
        let service = Service::new(store, runtime);
        let output = while_served(Replaced { service, asked: AtomicU64::new(0) }, |addr| {
            let mut command = kv(&[command, addr, "--json", "--resume"]);
            command.arg(&journal).arg(&tree_dir).output().unwrap()
        });
        assert_ended(&output, 1);
        assert!(
            stderr(&output).contains("failed: another store answers at"),
            "{}",
            stderr(&output)
        );
        assert_eq!(json(&output)["store_replaced"], true);
        assert_eq!(fs::read(&journal).unwrap(), b"");
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
