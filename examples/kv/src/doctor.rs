use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use rpc_core::bytes::Bytes;
use rpc_core::cm::Address;
use rpc_core::doctor::{Doctor, Report, Severity, failed_here, remedy};
use rpc_core::{Channel, Code, ConnectionInfo, Runtime, Status};
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
/// What a packet of RoCE has beside its payload at most, with room for what drivers keep free (rxe: 80 bytes,
/// others: up to 104).
const PACKET_HEADERS: u32 = 104;
/// What builds this program for RDMA.
const REBUILD: &str = "cargo build --release -p kv --features verbs";
/// A key that nobody uses; no call of the doctor changes it.
const KEY: &[u8] = b"\0kv doctor";
/// A version that no key ever has: a put that expects it stores nothing.
const NO_VERSION: u64 = u64::MAX;

/// `kv doctor`
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let address = args.addr.as_deref().map(Address::parse).transpose();
    let address = address.map_err(|error| Failure::new(error.to_string()))?;
    let mut doctor = Doctor::new().rebuild(REBUILD);
    if let Some(address) = &address {
        doctor = doctor.address(address);
    }
    if let Some(bytes) = args.memory {
        doctor = doctor.budget_bytes(bytes);
    }
    let mut report = doctor.examine();
    if let Some(addr) = &args.addr {
        visit(addr, args, &doctor, &mut report);
    }
    let text = if args.json { format!("{:#}\n", to_json(&report)) } else { to_text(&report) };
    out(text.as_bytes())?;
    Ok(if report.is_healthy() { Exit::Done } else { Exit::Failed })
}

/// Connects to a server, and adds what was agreed and how long calls take.
fn visit(addr: &str, args: &DoctorArgs, doctor: &Doctor, report: &mut Report) {
    let of = "connection";
    let runtime =
        args.memory.map_or_else(Runtime::builder, |bytes| Runtime::builder().budget_bytes(bytes));
    let visited = runtime.build().and_then(|runtime| {
        rpc_core::block_on(async {
            let channel = ops::settings(addr, args.wait).runtime(&runtime).connect().await?;
            if let Some(info) = channel.connection() {
                let device = runtime.stats().devices.into_iter().next().map(|device| device.name);
                agreed(&info, device.as_deref(), report);
                let interface = device.and_then(|device| doctor.interface_of(&device));
                compare_mtus(&info, interface.as_deref(), report);
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
        Err(status) => failed(addr, &status, report),
    }
}

/// No call succeeded: one more error, unless the errors of this machine are why.
fn failed(addr: &str, status: &Status, report: &mut Report) {
    let of = "connection";
    if failed_here(status) && !report.is_healthy() {
        report.problem(
            Severity::Note,
            of,
            format!("{addr} was not asked"),
            status.message(),
            "what mends the error above",
        );
        return;
    }
    let fix = match status.code() {
        Code::Unimplemented => "the address of a kv server: another service answers here".into(),
        _ => remedy(status),
    };
    let what = format!("no call to {addr} succeeds ({:?})", status.code());
    report.problem(Severity::Error, of, what, status.message(), fix);
}

/// Everything that was negotiated. `device`: the name of the RDMA device that carries it.
fn agreed(info: &ConnectionInfo, device: Option<&str>, report: &mut Report) {
    let of = "connection";
    report.fact(of, "carried by", format!("{}: {}", info.device, info.reason));
    if let Some(device) = device.filter(|_| info.device == "rdma") {
        report.fact(of, "device here", device);
    }
    let name = if info.peer.name.is_empty() { "without a name" } else { &info.peer.name };
    let at = info.peer.remote_addr.map_or_else(String::new, |at| format!(", at {at}"));
    report.fact(of, "peer", format!("{name}{at}, boot id {:032x}", info.peer.boot_id));
    report.fact(of, "protocol version", info.version.to_string());
    report.fact(of, "longest SEND", format!("{} bytes", grouped(info.eager_bytes.into())));
    report.fact(of, "longest message", format!("{} bytes", grouped(info.message_bytes_max)));
    report.fact(of, "READs outstanding", info.reads_max.to_string());
    let mtus = format!("{} bytes: {} here, {} there", info.mtu, info.mtu_own, info.mtu_peer);
    report.fact(of, "path MTU", mtus);
    // A build without RDMA is named already.
    let has_rdma =
        cfg!(feature = "verbs") && report.facts.iter().any(|fact| fact.of.starts_with("device "));
    if info.device == "soft" && has_rdma && info.reason.starts_with("auto://") {
        report.problem(
            Severity::Warning,
            of,
            "calls to this server go over the software device, though this machine has RDMA",
            &*info.reason,
            "kv doctor on the server's host says what it lacks; rdma:// in place of auto:// makes this an error",
        );
    }
}

/// `interface`: that of this end's device.
fn compare_mtus(info: &ConnectionInfo, interface: Option<&str>, report: &mut Report) {
    let (own, peer) = (info.mtu_own, info.mtu_peer);
    if own == peer {
        return;
    }
    let wanted = own.max(peer) + PACKET_HEADERS;
    let own_interface = interface.unwrap_or("IFACE");
    let fix = if own < peer {
        format!("ip link set {own_interface} mtu {wanted}")
    } else {
        format!("ip link set IFACE mtu {wanted} on the server's host, where kv doctor names IFACE")
    };
    report.problem(
        Severity::Warning,
        "connection",
        format!("the two ends' MTUs differ: {own} bytes here, {peer} there; {} are used", info.mtu),
        format!(
            "the network interface {} has the smaller MTU; large messages take more packets",
            if own < peer { own_interface } else { "of the server" },
        ),
        format!(
            "{fix}, if the switches between the two pass such packets; else the same at both ends"
        ),
    );
}

/// Medians.
struct Times {
    small: Duration,
    large: Duration,
}

/// Times calls that change nothing.
async fn time_calls(channel: &Channel) -> Result<Times, Status> {
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
            Err(status) if status.code() == Code::Aborted => large.push(began.elapsed()),
            Err(status) => return Err(status),
            Ok(_) => {
                return Err(Status::internal(
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
    let of = |count: usize, name: &str| {
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {name}{plural}"))
    };
    let less_bad = [of(count(Severity::Warning), "warning"), of(count(Severity::Note), "note")];
    let less_bad = less_bad.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    text.push_str(&match (of(count(Severity::Error), "error"), &*less_bad) {
        (None, "") => "\nhealthy: nothing is wrong\n".to_owned(),
        (None, less_bad) => format!("\nhealthy, with {less_bad}\n"),
        (Some(errors), "") => format!("\n{errors}\n"),
        (Some(errors), less_bad) => format!("\n{errors}; {less_bad}\n"),
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
