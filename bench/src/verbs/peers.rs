//! Other frameworks over verbs: `bench-peers`, a program of its own package, beside this one.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::place::Place;
use super::tool::spawn;
use super::values_of;
use crate::compare::cells::Value;
use crate::failure::Failure;

/// Who is in it.
pub(super) const PEERS: [&str; 2] = ["rrppcc", "ruapc"];

/// The program, where it is built.
pub(super) fn program() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("bench-peers");
    beside.exists().then_some(beside)
}

/// Their address, if they can be measured there: they take a device's first port, and find each other by the
/// port's own address.
pub(super) fn address(place: &Place) -> Option<IpAddr> {
    place.address.filter(|address| address.is_ipv4() && place.port == 1)
}

/// One round of a peer: a server, a client, and what the client measured, by this peer's name.
pub(super) fn run(
    program: &PathBuf,
    peer: &str,
    (device, address): (&str, IpAddr),
    [client, server]: [usize; 2],
    millis: u64,
) -> Result<Vec<Value>, Failure> {
    let command = |cpu: usize, address: &str| {
        let mut command = Command::new(program);
        command.args(["--peer", peer, "--device", device, "--address", address]);
        command.args(["--cpus", &cpu.to_string()]).stdout(Stdio::piped());
        command
    };
    let mut serve = command(server, &address.to_string());
    let mut serving = spawn(serve.arg("--server").stdin(Stdio::piped()), server)?;
    let output = serving.0.stdout.take().ok_or_else(|| Failure::new("a peer has no output"))?;
    let mut address = String::new();
    BufReader::new(output).read_line(&mut address)?;
    let mut call = command(client, address.trim());
    call.args(["--millis", &millis.to_string()]).stdin(Stdio::null());
    let values = values_of(spawn(&mut call, client)?)?;
    Ok(values.into_iter().map(|value| named(peer, value)).collect())
}

/// A value of a peer, by its name and in the units of the others.
fn named(peer: &str, (name, value): Value) -> Value {
    match name.strip_suffix(" x4 GB/s") {
        Some(payload) => (format!("{peer} {payload} MB/s"), value * 1e3),
        None => (format!("{peer} {name}"), value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_carry_their_peers_name_and_the_units_of_the_report() {
        assert_eq!(
            named("ruapc", ("1 MiB x4 GB/s".into(), 0.5)),
            ("ruapc 1 MiB MB/s".into(), 500.0)
        );
        assert_eq!(
            named("rrppcc", ("64 B p50 us".into(), 7.0)),
            ("rrppcc 64 B p50 us".into(), 7.0)
        );
    }
}
