//! The commands beyond get and put, as scripts use them.

// Helpers of tests are outside `#[test]` functions, where clippy does not know them for tests.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Server, assert_ended, kv, stderr};
use serde_json::{Value, json};

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The JSON objects of an output, one a line.
fn lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn put(server: &Server, args: &[&[u8]]) -> u64 {
    let output = server.run("put", &[args, &[b"--json"]].concat());
    assert_ended(&output, 0);
    lines(&output)[0]["version"].as_u64().unwrap()
}

#[test]
fn a_write_with_another_version_than_expected_ends_with_4() {
    let server = Server::start(&[]);
    let version = put(&server, &[b"k", b"one", b"--expect", b"0"]);
    let refused = server.run("put", &[b"k", b"two", b"--expect", b"0"]);
    assert_ended(&refused, 4);
    let told = stderr(&refused);
    assert!(told.contains(&format!("it has version {version} now")), "{told}");
    assert_ended(&server.run("delete", &[b"k", b"--expect", b"99"]), 4);
    let told = json!({"written": false, "version": version});
    for (command, args) in [("put", &[&b"k"[..], b"two"][..]), ("delete", &[&b"k"[..]][..])] {
        let refused = server.run(command, &[args, &[b"--expect", b"99", b"--json"]].concat());
        assert_ended(&refused, 4);
        assert_eq!(lines(&refused), std::slice::from_ref(&told), "{command}");
    }
    let none = server.run("put", &[b"none", b"v", b"--expect", b"99", b"--json"]);
    assert_eq!(lines(&none), [json!({"written": false, "version": 0})]);
    let nothing = server.run("get", &[b"none", b"--json"]);
    assert_ended(&nothing, 3);
    assert_eq!(lines(&nothing), [json!({"key": "none", "version": 0})]);
    assert_eq!(server.run("get", &[b"k"]).stdout, b"one");
    let text = version.to_string();
    assert!(put(&server, &[b"k", b"two", b"--expect", text.as_bytes()]) > version);
    assert_eq!(server.run("get", &[b"k"]).stdout, b"two");
}

#[test]
fn a_value_that_the_server_can_never_take_is_refused_at_once() {
    let server = Server::start(&["--memory", "32MiB"]);
    let folder = tempfile::tempdir().unwrap();
    let value = folder.path().join("value");
    fs::write(&value, vec![7; 64 << 20]).unwrap();
    let began = Instant::now();
    let put = kv(&["put", &server.addr, "k", "--file"]).arg(&value).output();
    let put = put.unwrap();
    assert_ended(&put, 1);
    assert!(began.elapsed() < Duration::from_secs(30)); // the default of --timeout is 60
    let told = stderr(&put);
    assert!(told.contains("can never take") && !told.contains("safe to repeat"), "{told}");
    let load = kv(&["load", &server.addr]).arg(folder.path()).arg("--json").output().unwrap();
    assert_ended(&load, 1);
    assert_eq!(lines(&load)[0]["repeats"], 0);
}

#[test]
fn several_values_are_stored_and_read_at_once() {
    let server = Server::start(&[]);
    let stored = server.run("mput", &[b"a=1", b"b==", b"c=\xff", b"--json"]);
    assert_ended(&stored, 0);
    assert_eq!(lines(&stored), [json!({"replaced": 0, "version": 1})]);
    let read = server.run("mget", &[b"c", b"nothing", b"b"]);
    assert_ended(&read, 3);
    let expected = [
        json!({"key": "c", "value_hex": "ff", "version": 1}),
        json!({"key": "b", "value": "=", "version": 1}),
    ];
    assert_eq!(lines(&read), expected);
    assert!(stderr(&read).contains("nothing"));
    let twice = server.run("mput", &[b"a=1", b"a=2"]);
    assert_ended(&twice, 1);
    assert!(stderr(&twice).contains("name each once"), "{}", stderr(&twice));
}

#[test]
fn keys_are_listed_in_order_by_prefix_whatever_the_page() {
    let server = Server::start(&[]);
    let pairs: Vec<String> = (0..25).map(|i| format!("user/{i:02}=x")).collect();
    let pairs: Vec<&[u8]> = pairs.iter().map(|pair| pair.as_bytes()).collect();
    assert_ended(&server.run("mput", &pairs), 0);
    put(&server, &[b"other", b""]);
    for page in [&b"1"[..], b"7", b"25", b"1000"] {
        let output = server.run("list", &[b"user/", b"--page", page]);
        assert_ended(&output, 0);
        let keys: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
        let expected: Vec<String> = (0..25).map(|i| format!("user/{i:02}")).collect();
        assert_eq!(keys, expected);
    }
    let some = server.run("list", &[b"--limit", b"3", b"--json"]);
    let expected = json!({"key": "other", "version": 2, "bytes": 0});
    assert_eq!(lines(&some).len(), 3);
    assert_eq!(lines(&some)[0], expected);
}

#[test]
fn a_server_started_again_on_its_data_has_what_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("new/data");
    let args = ["--data", data.to_str().unwrap()];
    let server = Server::start(&args);
    let version = put(&server, &[b"k", b"one"]);
    let id = server.stats()["store"]["id"].clone();
    assert_eq!(server.stats()["store"]["persistent"], true);
    assert!(server.stop().success());
    let server = Server::start(&args);
    assert_eq!(server.stats()["store"]["id"], id);
    assert_eq!(server.run("get", &[b"k"]).stdout, b"one");
    assert!(put(&server, &[b"k", b"two"]) > version);
    let second = kv(&["serve", "soft://127.0.0.1:0"]).args(args).output().unwrap();
    assert_ended(&second, 1);
    assert!(stderr(&second).contains("is in use"), "{}", stderr(&second));
}

#[test]
fn a_server_that_was_stopped_in_order_does_not_look_through_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--data", folder.path().to_str().unwrap()];
    let server = Server::start(&args);
    put(&server, &[b"k", b"v"]);
    assert!(server.stop().success());
    let told = |kill: bool| {
        let mut server = Server::start_logged(&args);
        if kill {
            put(&server, &[b"k", b"w"]); // who only reads leaves the file as it was
            server.child.kill().unwrap();
        } else {
            drop(server.child.stdin.take());
        }
        stderr(&server.child.wait_with_output().unwrap())
    };
    let first = told(true);
    assert!(!first.contains("looked through"), "{first}");
    let second = told(false);
    assert!(second.contains("looked through"), "{second}");
    let third = told(false);
    assert!(!third.contains("looked through"), "{third}");
}

#[test]
fn a_server_that_does_not_answer_is_given_up_after_the_timeout() {
    // It takes connections and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = format!("soft://{}", listener.local_addr().unwrap());
    for command in [&["get", &addr, "k"][..], &["stats", &addr], &["list", &addr]] {
        let began = Instant::now();
        let output = kv(command).args(["--timeout", "0.2"]).output().unwrap();
        assert_ended(&output, 1);
        assert!(began.elapsed() < Duration::from_secs(5), "{command:?}");
    }
}

#[test]
fn completions_name_the_commands_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = kv(&["completions", shell]).output().unwrap();
        assert_ended(&output, 0);
        assert!(stdout(&output).contains("mget"), "{shell}");
    }
    assert_ended(&kv(&["completions", "tcsh"]).output().unwrap(), 2);
}

#[test]
fn every_command_helps_with_an_example() {
    let help = stdout(&kv(&["--help"]).output().unwrap());
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = commands.lines().filter_map(|line| line.split_whitespace().next());
    let mut count = 0;
    for name in names.filter(|name| *name != "help") {
        let output = kv(&[name, "--help"]).output().unwrap();
        assert!(stdout(&output).contains(&format!("  kv {name}")), "{name}: {}", stdout(&output));
        count += 1;
    }
    assert!(count >= 10, "{help}");
}

#[test]
fn more_is_logged_when_it_is_asked_for() {
    let server = Server::start(&[]);
    let quiet = server.run("get", &[b"k"]);
    assert_eq!(stderr(&quiet), "error: there is no value under the key k\n");
    let mut command: Command = kv(&["-v", "get", &server.addr, "k"]);
    let verbose = command.output().unwrap();
    assert!(stderr(&verbose).lines().count() > 1, "{}", stderr(&verbose));
}

#[test]
fn a_bench_ends_by_itself_and_draws_what_it_measured() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let chart = dir.path().join("chart.svg");
    let mut bench = kv(&["bench", &server.addr, "--records", "200", "--value", "100"]);
    bench.args(["--seconds", "0.2", "--outstanding", "8", "--mix", "f,E,D", "--json", "--svg"]);
    let output = bench.arg(&chart).output().unwrap();
    assert_ended(&output, 0);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 + 7, "{json}");
    for row in rows {
        assert!(row["done"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["failed"], 0, "{row}");
        assert!(row["p99_us"].as_f64().unwrap() >= row["p50_us"].as_f64().unwrap(), "{row}");
    }
    assert!(json["measured_on"].as_str().unwrap().contains("in memory"), "{json}");
    let svg = fs::read_to_string(&chart).unwrap();
    assert_eq!(svg.matches("<circle").count(), 4 * 7, "{svg}");
    let table = kv(&["bench", &server.addr, "--records", "10", "--seconds", "0.1", "--mix", "C"]);
    let table = { table }.output().unwrap();
    assert_ended(&table, 0);
    assert!(stdout(&table).contains("full speed") && stdout(&table).contains(" µs"));
}

#[test]
fn a_server_whose_disk_fails_ends_with_a_sentence_and_has_what_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--data", folder.path().to_str().unwrap()];
    let value = "v".repeat(100_000);
    let mut server = Server::start_on_a_failing_disk(&args);
    let mut acknowledged = Vec::new();
    let failed = (0..100).map(|i| format!("k{i}")).find_map(|key| {
        let put = server.run("put", &[key.as_bytes(), value.as_bytes()]);
        if put.status.success() {
            acknowledged.push(key);
            return None;
        }
        Some(put)
    });
    let failed = stderr(&failed.unwrap());
    assert!(failed.contains("disk failed") && failed.contains("nobody here can know"), "{failed}");
    let input = server.child.stdin.take(); // open: the server ends by itself
    let ended = server.child.wait_with_output().unwrap();
    drop(input);
    assert_ended(&ended, 1);
    assert!(stderr(&ended).contains("the disk of --data failed"), "{}", stderr(&ended));
    let server = Server::start(&args);
    assert!(acknowledged.len() > 3);
    for key in &acknowledged {
        assert_ended(&server.run("get", &[key.as_bytes()]), 0);
    }
}

#[test]
fn a_check_reads_every_value_of_a_store_and_refuses_what_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let check = |args: &[&str]| kv(&["check"]).arg(&data).args(args).output().unwrap();
    let none = check(&[]);
    assert_ended(&none, 1);
    assert!(stderr(&none).contains("there is no store in"), "{}", stderr(&none));
    assert!(!data.exists());
    let server = Server::start(&["--data", data.to_str().unwrap()]);
    let marked = vec![b'#'; 5_000];
    put(&server, &[b"good", b"1"]);
    put(&server, &[b"bad", &marked]);
    let running = check(&[]);
    assert_ended(&running, 1);
    assert!(
        stderr(&running).contains("another server has this --data folder"),
        "{}",
        stderr(&running)
    );
    assert!(server.stop().success());
    let whole = check(&["--json"]);
    assert_ended(&whole, 0);
    let json = &lines(&whole)[0];
    assert_eq!(
        (&json["keys"], &json["value_bytes"], &json["damaged"]),
        (&2.into(), &5_001.into(), &0.into())
    );

    let file = data.join("kv.redb");
    let mut bytes = fs::read(&file).unwrap();
    let at: Vec<usize> =
        (0..bytes.len() - 64).filter(|at| bytes[*at..][..64] == marked[..64]).collect();
    assert!(!at.is_empty());
    for at in at {
        bytes[at + 9] = b'!'; // in each copy that the file has of it
    }
    fs::write(&file, bytes).unwrap();
    let damaged = check(&[]);
    assert_ended(&damaged, 1);
    assert_eq!(stderr(&damaged), "DAMAGED: bad\n");
    assert_eq!(stdout(&damaged), "checked 2 keys, 1 bytes of values: 1 is damaged\n");
    let server = Server::start(&["--data", data.to_str().unwrap()]);
    let told = stderr(&server.run("get", &[b"bad"]));
    assert!(told.contains("under the key bad is damaged") && told.contains("kv check"), "{told}");
    assert_ended(&server.run("get", &[b"good"]), 0);
}

#[test]
fn a_server_whose_folder_is_removed_acknowledges_nothing_more_and_ends() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let args = ["--data", folder.to_str().unwrap()];
    let mut server = Server::start_logged(&args);
    put(&server, &[b"k", b"one"]);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(server.run("get", &[b"k"]).stdout, b"one");
    let refused = server.run("put", &[b"k", b"two"]);
    assert_ended(&refused, 1);
    let told = stderr(&refused);
    assert!(told.contains("it was removed while the server ran"), "{told}");
    let input = server.child.stdin.take(); // open: the server ends by itself
    let ended = server.child.wait_with_output().unwrap();
    drop(input);
    assert_ended(&ended, 1);
    assert!(stderr(&ended).contains("the disk of --data failed"), "{}", stderr(&ended));
}

#[test]
fn an_address_that_cannot_be_one_is_not_understood() {
    for (addr, why) in [("127.0.0.1:7471", "no scheme"), ("soft://127.0.0.1:80000", "port")] {
        for args in [&["get", addr, "k"][..], &["serve", addr], &["demo", "--server", addr]] {
            let output = kv(args).output().unwrap();
            assert_ended(&output, 2);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains(why), "{args:?}: {said}");
        }
    }
}

#[test]
fn a_command_line_without_an_equals_sign_is_not_understood_and_json_is() {
    let server = Server::start(&[]);
    let wrong = server.run("mput", &[b"a=1", b"noequals"]);
    assert_ended(&wrong, 2);
    assert!(stderr(&wrong).contains("no `=`"), "{}", stderr(&wrong));
    assert_ended(&server.run("get", &[b"a"]), 3);
    put(&server, &[b"a", b"1"]);
    let read = server.run("mget", &[b"a", b"--json"]);
    assert_eq!(lines(&read), [json!({"key": "a", "value": "1", "version": 1})]);
}

#[test]
fn a_file_that_tells_no_length_or_a_wrong_one_is_stored_whole() {
    let server = Server::start(&[]);
    for file in ["/proc/version", "/sys/kernel/notes", "/sys/kernel/uevent_seqnum"] {
        let Ok(expected) = fs::read(file) else { continue };
        assert_ended(&server.run("put", &[b"k", b"--file", file.as_bytes()]), 0);
        assert!(server.run("get", &[b"k"]).stdout == expected, "{file}");
    }
}

#[test]
fn a_second_signal_ends_a_server_with_the_exit_code_of_a_signal() {
    for (signals, codes) in [(["HUP", "INT"], [129, 130]), (["INT", "TERM"], [130, 143])] {
        let mut server = Server::start(&[]);
        let id = server.child.id().to_string();
        let send = |signal: &str| {
            let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status();
            assert!(sent.unwrap().success());
        };
        // Both are there before it can end in order; which of them comes first is up to the system.
        send("STOP");
        signals.into_iter().for_each(send);
        send("CONT");
        let ended = server.child.wait().unwrap().code();
        assert!(codes.contains(&ended.unwrap()), "{signals:?}: {ended:?}");
    }
}

#[test]
fn exit_codes_outlive_a_standard_error_that_takes_nothing() {
    let server = Server::start(&[]);
    let run = |args: &[&str]| {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        kv(args).stderr(full).output().unwrap()
    };
    assert_ended(&run(&["get", &server.addr, "k"]), 3);
    assert_ended(&run(&["put", &server.addr, "k", "v", "--expect", "9"]), 4);
    assert_ended(&run(&["get", "soft://127.0.0.1:1", "k", "--timeout", "5"]), 1);
}

/// On a machine without RDMA there is nothing to mend; what an address asks for and is not there is an error, and so
/// is a server that does not answer.
#[test]
fn doctor_lists_what_there_is_and_ends_with_1_if_something_must_be_mended() {
    let server = Server::start(&[]);
    let visited = server.run("doctor", &[b"--json", b"--memory", b"64MiB"]);
    let report: Value = serde_json::from_slice(&visited.stdout).unwrap();
    let facts = report["facts"].as_array().unwrap();
    let fact =
        |name: &str| facts.iter().find(|fact| fact["name"] == name).unwrap()["value"].clone();
    assert_eq!(fact("carried by"), "soft: the address says soft://");
    assert_eq!(fact("longest SEND"), "9,216 bytes");
    assert!(fact("call of 1 MiB").as_str().unwrap().ends_with("MB/s"));
    let errors =
        report["problems"].as_array().unwrap().iter().any(|one| one["severity"] == "error");
    assert_eq!(report["healthy"], !errors);
    assert_ended(&visited, i32::from(errors));
    // Nothing was stored by it.
    assert!(server.run("list", &[]).stdout.is_empty());

    let wrong = ["doctor", "auto://127.0.0.1:1?device=none_0", "--timeout", "2"];
    let output = kv(&wrong).output().unwrap();
    assert_ended(&output, 1);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["no RDMA device \"none_0\"", "nothing listens on 127.0.0.1:1", "cause:", "fix:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_ended(&kv(&["doctor", "nonsense"]).output().unwrap(), 2);
}

/// A script that sees one error has one thing to mend: the device that is missing, or the build.
#[test]
fn doctor_says_once_that_there_is_no_rdma_where_an_address_asks_for_it() {
    let addr = "rdma://127.0.0.1:1?device=none_0";
    let output = kv(&["doctor", addr, "--timeout", "5", "--memory", "1MiB"]).output().unwrap();
    assert_ended(&output, 1);
    let text = stdout(&output);
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{text}");
    assert!(text.contains("was not asked"), "{text}");
    if !cfg!(feature = "verbs") {
        assert!(text.contains("fix:   cargo build --release -p kv --features verbs"), "{text}");
    }
}

/// On a machine without RDMA the software device is what there is, and nothing is wrong with it.
#[test]
fn doctor_of_a_machine_without_rdma_is_healthy_and_says_what_would_bring_it() {
    let output = kv(&["doctor", "--memory", "1MiB"]).output().unwrap();
    if !stdout(&output).contains("soft:// is what there is") {
        return; // This machine has RDMA.
    }
    assert_ended(&output, 0);
    let text = stdout(&output);
    for part in ["note: machine: there is no RDMA device", "rdma link add", "healthy, with 1 note"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 40, "one screen: {text}");
}

/// What answers at an address may be a web server, and a budget may be one that no runtime takes.
#[test]
fn doctor_names_a_server_of_another_protocol_and_a_budget_that_cannot_be() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = format!("soft://{}", listener.local_addr().unwrap());
    let web = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 16];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        // Until the other end has understood, and closes.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let output = kv(&["doctor", &addr, "--timeout", "20"]).output().unwrap();
    web.join().unwrap();
    assert_ended(&output, 1);
    for part in ["does not speak this protocol", "fix:   the port on which the RPC server says"] {
        assert!(stdout(&output).contains(part), "{part}: {}", stdout(&output));
    }

    let output = kv(&["doctor", "--memory", "3"]).output().unwrap();
    assert_ended(&output, 1);
    assert!(stdout(&output).contains("a budget of 262144 bytes or more"), "{}", stdout(&output));
    // No machine has as much.
    let output = kv(&["doctor", "--memory", "900000GiB"]).output().unwrap();
    assert_ended(&output, 1);
    assert!(stdout(&output).contains("a budget of at most "), "{}", stdout(&output));
    let output = kv(&["doctor", "--memory", "-1"]).output().unwrap();
    assert_ended(&output, 2);
    let output = kv(&["doctor", "--memory", "many"]).output().unwrap();
    assert_ended(&output, 2);
    assert!(stderr(&output).contains("many"), "{}", stderr(&output));
}

#[test]
fn serve_says_that_addresses_of_rdma_are_ignored_by_a_build_without_it() {
    let addr = "auto://127.0.0.1:0?rdma_ip=127.0.0.1";
    let mut serve = kv(&["serve", addr, "--until-stdin-closes"]);
    let output = serve.stdin(Stdio::null()).output().unwrap();
    assert_ended(&output, 0);
    let said = stderr(&output).contains("are ignored");
    assert_eq!(said, !cfg!(feature = "verbs"), "{}", stderr(&output));
}

/// It works all the same, over the software device.
#[test]
fn a_device_of_an_address_that_is_not_there_is_said_by_server_and_client() {
    let serve = ["serve", "auto://127.0.0.1:0?device=none_0", "--until-stdin-closes"];
    let mut serve = kv(&serve);
    let server = Server::start_as(&mut serve, Stdio::piped());
    let addr = format!("{}?device=none_0", server.addr);
    let output = kv(&["put", &addr, "k", "v"]).output().unwrap();
    assert_ended(&output, 0);
    let said = if cfg!(feature = "verbs") { "none_0" } else { "are ignored" };
    // A busy machine may have more to say, of other things.
    let warned = |text: &str| text.lines().filter(|line| line.contains(said)).count() == 1;
    assert!(warned(&stderr(&output)), "{}", stderr(&output));
    let stats = kv(&["stats", &addr]).output().unwrap();
    assert!(stdout(&stats).contains(said), "{}", stdout(&stats));
    // And nothing is said where nothing is chosen.
    let output = kv(&["get", &server.addr, "k"]).output().unwrap();
    assert_eq!(stdout(&output), "v");
    assert!(!stderr(&output).contains("software device"), "{}", stderr(&output));
    let log = server.log();
    assert!(warned(&log), "{log}");
}
