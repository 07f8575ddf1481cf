use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use rpc_core::bytes::Bytes;
use rpc_core::cm::{Address, RdmaOptions, Scheme};
use rpc_core::doctor::{Doctor, Report, Severity};
use rpc_core::{Channel, ConnectionInfo, Runtime};
use serde_json::{Value, json};

use crate::cli::DoctorArgs;
use crate::failure::{Exit, Failure, out};
use crate::ops;
use crate::proto::{GetRequest, KvClient, PutRequest};
use crate::text::grouped;

/// Small calls that are timed, and large ones.
const SMALL_CALLS: usize = 64;
const LARGE_CALLS: usize = 8;
/// Bytes of a large one.
const LARGE_BYTES: usize = 1 << 20;
/// A key that nobody uses; no call of the doctor changes it.
const KEY: &[u8] = b"\0kv doctor";
/// A version that no key ever has: a put that expects it stores nothing.
const NO_VERSION: u64 = u64::MAX;

/// `kv doctor`
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let address = args.addr.as_deref().map(Address::parse).transpose();
    let address = address.map_err(|error| Failure::new(error.to_string()))?;
    let options = address.as_ref().map_or_else(RdmaOptions::default, |at| at.options().clone());
    let insists = address.is_some_and(|address| address.scheme() == Scheme::Rdma);
    let mut doctor = Doctor::new().rdma(options).insists_on_rdma(insists);
    if let Some(bytes) = args.memory {
        doctor = doctor.budget_bytes(bytes);
    }
    let mut report = doctor.examine();
    if let Some(addr) = &args.addr {
        visit(addr, args, &mut report);
    }
    let text = if args.json { format!("{:#}\n", to_json(&report)) } else { to_text(&report) };
    out(text.as_bytes())?;
    Ok(if report.is_healthy() { Exit::Done } else { Exit::Failed })
}

/// Connects to a server, and adds what was agreed and how long calls take.
fn visit(addr: &str, args: &DoctorArgs, report: &mut Report) {
    let of = "connection";
    let runtime =
        args.memory.map_or_else(Runtime::builder, |bytes| Runtime::builder().budget_bytes(bytes));
    let visited = runtime.build().and_then(|runtime| {
        rpc_core::block_on(async {
            let channel = ops::settings(addr, args.wait).runtime(&runtime).connect().await?;
            if let Some(info) = channel.connection() {
                agreed(&info, report);
            }
            time_calls(&channel).await
        })
    });
    match visited {
        Ok(times) => {
            let small = format!("{} µs, the median of {SMALL_CALLS}", micros(times.small));
            report.fact(of, "small call", small);
            let speed = LARGE_BYTES as f64 / times.large.as_secs_f64() / 1e6;
            let large =
                format!("{} µs, the median of {LARGE_CALLS}: {speed:.0} MB/s", micros(times.large));
            report.fact(of, "call of 1 MiB", large);
        }
        Err(status) => report.problem(
            Severity::Error,
            of,
            format!("no call to {addr} succeeds ({:?})", status.code()),
            status.message(),
            match status.code() {
                rpc_core::Code::Unavailable => {
                    "kv serve on that host, at this port; the cause says what was found there"
                }
                rpc_core::Code::Unimplemented => {
                    "the address of a kv server: another service answers here"
                }
                _ => "as the cause says",
            },
        ),
    }
}

/// Everything that was negotiated.
fn agreed(info: &ConnectionInfo, report: &mut Report) {
    let of = "connection";
    report.fact(of, "carried by", format!("{}: {}", info.device, info.reason));
    let name = if info.peer.name.is_empty() { "without a name" } else { &info.peer.name };
    let at = info.peer.remote_addr.map_or_else(String::new, |at| format!(", at {at}"));
    report.fact(of, "peer", format!("{name}{at}, boot id {:032x}", info.peer.boot_id));
    report.fact(of, "protocol version", info.version.to_string());
    report.fact(of, "longest SEND", format!("{} bytes", grouped(info.eager_bytes.into())));
    report.fact(of, "longest message", format!("{} bytes", grouped(info.message_bytes_max)));
    report.fact(of, "READs outstanding", info.reads_max.to_string());
    report.fact(of, "path MTU", format!("{} bytes", info.mtu));
    if info.mtu_own != info.mtu_peer {
        report.problem(
            Severity::Warning,
            of,
            format!("the two ends' MTUs differ: {} bytes here, {} there", info.mtu_own, info.mtu_peer),
            "the network interfaces have different MTUs; the smaller one is used, and larger packets may be lost",
            "ip link set IFACE mtu 9000 at both ends, if the switches between them pass it; else the same at both",
        );
    }
    let has_rdma = report
        .facts
        .iter()
        .any(|fact| fact.name == "RDMA devices" && !fact.value.starts_with("none"));
    if info.device == "soft" && has_rdma && info.reason.starts_with("auto://") {
        report.problem(
            Severity::Warning,
            of,
            "calls to this server go over the software device, though this machine has RDMA",
            &*info.reason,
            "kv doctor on the server's host; rdma:// in place of auto:// makes it an error",
        );
    }
}

/// Medians.
struct Times {
    small: Duration,
    large: Duration,
}

/// Times calls that change nothing.
async fn time_calls(channel: &Channel) -> Result<Times, rpc_core::Status> {
    let client = KvClient::new(channel.clone());
    let mut small = Vec::with_capacity(SMALL_CALLS);
    // The first one names its method, and is not counted.
    for _ in 0..=SMALL_CALLS {
        let began = Instant::now();
        client.get(GetRequest { key: Bytes::from_static(KEY) }).await?;
        small.push(began.elapsed());
    }
    let mut buffer = channel.alloc(LARGE_BYTES)?;
    buffer.fill(0x5a);
    let value = buffer.freeze();
    let mut large = Vec::with_capacity(LARGE_CALLS);
    for _ in 0..=LARGE_CALLS {
        let (key, value) = (Bytes::from_static(KEY), value.clone());
        let request = PutRequest { key, value, expected_version: Some(NO_VERSION) };
        let began = Instant::now();
        match client.put(request).await {
            // It was READ, and not stored.
            Err(status) if status.code() == rpc_core::Code::Aborted => large.push(began.elapsed()),
            Err(status) => return Err(status),
            Ok(_) => {
                return Err(rpc_core::Status::internal(
                    "a put that expects a version which is never given was done",
                ));
            }
        }
    }
    Ok(Times { small: median(&mut small), large: median(&mut large) })
}

/// Of all but the first.
fn median(times: &mut [Duration]) -> Duration {
    let times = &mut times[1..];
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> String {
    grouped(time.as_nanos().div_ceil(1_000) as u64)
}

fn to_text(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut last = "";
    for fact in &report.facts {
        let of = if fact.of == last { "" } else { &fact.of };
        last = &fact.of;
        table.add_row([of, fact.name, &fact.value]);
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    for problem in &report.problems {
        text.push_str(&format!("\n{problem}\n"));
    }
    let count =
        |severity| report.problems.iter().filter(|problem| problem.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    text.push_str(&match (errors, warnings) {
        (0, 0) => "\nhealthy: nothing is wrong\n".to_owned(),
        (0, warnings) => format!("\nhealthy, with {warnings} warning(s)\n"),
        (errors, warnings) => format!("\n{errors} error(s), {warnings} warning(s)\n"),
    });
    text
}

fn to_json(report: &Report) -> Value {
    let fact = |fact: &rpc_core::doctor::Fact| json!({ "of": fact.of, "name": fact.name, "value": fact.value });
    let problem = |problem: &rpc_core::doctor::Problem| {
        json!({
            "severity": problem.severity.to_string(),
            "of": problem.of,
            "what": problem.what,
            "cause": problem.cause,
            "fix": problem.fix,
        })
    };
    json!({
        "healthy": report.is_healthy(),
        "facts": report.facts.iter().map(fact).collect::<Vec<_>>(),
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}
