use comfy_table::{CellAlignment, Table, presets};
use rpc_core::Runtime;
use serde_json::{Value, json};

use crate::cli::StatsArgs;
use crate::failure::{Exit, Failure, out};
use crate::ops;
use crate::proto::{
    CoreStats, DeviceStats, KvClient, MemoryStats, StatsRequest, StatsResponse, StoreStats,
};
use crate::store::Usage;
use crate::text::{self, grouped};

/// `kv stats`
pub(crate) fn run(args: &StatsArgs) -> Result<Exit, Failure> {
    let (stats, path) = rpc_core::block_on(async {
        let channel = ops::connect(&args.server).await?;
        let stats = KvClient::new(channel.clone()).stats(StatsRequest {}).await?.into_inner();
        Ok::<_, Failure>((stats, channel.path()))
    })?;
    let text = if args.json {
        let mut object = to_json(&stats);
        let (device, reason) = path.split_once(": ").unwrap_or((&path, ""));
        object["path"] = json!({ "device": device, "reason": reason });
        format!("{object:#}\n")
    } else {
        format!(
            "{}\n this connection is carried by {path}\n",
            to_text(&stats).trim_end_matches('\n')
        )
    };
    out(text.as_bytes())?;
    Ok(Exit::Done)
}

/// What a runtime and a store have done so far, as a message.
pub(crate) fn snapshot(runtime: &Runtime, usage: Usage) -> StatsResponse {
    let stats = runtime.stats();
    let memory = MemoryStats {
        budget: stats.memory.budget,
        pinned: stats.memory.mapped,
        inbound: stats.memory.inbound,
        outbound: stats.memory.outbound,
        peak: stats.memory.peak,
        held_by_users: stats.memory.held_by_users,
        delivered_as_copies: stats.memory.delivered_as_copies,
    };
    let cores = stats.cores.iter().enumerate();
    let cores = cores.map(|(index, core)| core_stats(index as u32, core));
    StatsResponse {
        cores: cores.collect(),
        memory: Some(memory),
        keys: usage.keys,
        value_bytes: usage.value_bytes,
        devices: stats.devices.iter().map(device_stats).collect(),
        store: Some(StoreStats {
            id: usage.id,
            persistent: usage.persistent,
            writes: usage.writes,
            commits: usage.commits,
            writes_waiting: usage.writes_waiting,
            version: usage.version,
        }),
    }
}

/// One device of libibverbs.
fn device_stats(device: &rpc_core::DeviceStats) -> DeviceStats {
    DeviceStats {
        name: device.name.clone(),
        eager_bytes_sent: device.device.send_bytes,
        eager_bytes_received: device.device.recv_bytes,
        read_bytes: device.device.read_bytes,
        sends: device.device.sends,
        receives: device.device.recvs,
        reads: device.device.reads,
        binds: device.device.binds,
        windows_bound: device.usage.mws_bound,
        queue_pairs: device.usage.qps,
    }
}

/// One core. Bytes, SENDs, READs, windows and receives are the device's own numbers.
fn core_stats(index: u32, core: &rpc_core::CoreStats) -> CoreStats {
    CoreStats {
        core: index,
        calls_served: core.calls_served,
        calls_made: core.calls_made,
        eager_bytes_sent: core.device.send_bytes,
        eager_bytes_received: core.device.recv_bytes,
        read_bytes: core.device.read_bytes,
        read_bytes_served: core.device.read_bytes_served,
        sends: core.device.sends,
        receives: core.device.recvs,
        reads: core.device.reads,
        binds: core.device.binds,
        connections: core.connections,
        receives_posted: core.receives_posted,
        credits_granted: core.credits_granted,
        leases: core.leases,
        windows_bound: core.usage.mws_bound,
        errors: core.errors,
        receives_in_queue: core.usage.srq_wrs,
        rnr_naks_sent: core.device.rnr_naks_sent,
        remote_access_errors: core.device.remote_access_errors,
        credits_recalled: core.credits_recalled,
        credits_returned: core.credits_returned,
        stalls: core.stalls,
        lost_wakeups: core.lost_wakeups,
    }
}

/// A row of a table: its name, and the number of one of the things that have a column.
type Row<T> = (&'static str, fn(&T) -> u64);

const DEVICE_ROWS: [Row<DeviceStats>; 9] = [
    ("eager bytes received", |device| device.eager_bytes_received),
    ("eager bytes sent", |device| device.eager_bytes_sent),
    ("READ bytes fetched", |device| device.read_bytes),
    ("SENDs", |device| device.sends),
    ("receives", |device| device.receives),
    ("READs", |device| device.reads),
    ("windows bound so far", |device| device.binds),
    ("windows bound now", |device| device.windows_bound.into()),
    ("queue pairs", |device| device.queue_pairs.into()),
];

const ROWS: [Row<CoreStats>; 23] = [
    ("calls served", |core| core.calls_served),
    ("calls made", |core| core.calls_made),
    ("eager bytes received", |core| core.eager_bytes_received),
    ("eager bytes sent", |core| core.eager_bytes_sent),
    ("READ bytes fetched", |core| core.read_bytes),
    ("READ bytes served", |core| core.read_bytes_served),
    ("SENDs", |core| core.sends),
    ("receives", |core| core.receives),
    ("READs", |core| core.reads),
    ("windows bound so far", |core| core.binds),
    ("connections", |core| core.connections.into()),
    ("receives posted", |core| core.receives_posted.into()),
    ("credits granted", |core| core.credits_granted.into()),
    ("credits asked back", |core| core.credits_recalled),
    ("credits that came back", |core| core.credits_returned),
    ("receives in the queue", |core| core.receives_in_queue.into()),
    ("leases", |core| core.leases.into()),
    ("windows bound now", |core| core.windows_bound.into()),
    ("errors", |core| core.errors),
    ("RNR NAKs sent", |core| core.rnr_naks_sent),
    ("remote access errors", |core| core.remote_access_errors),
    ("stalls over 10 ms", |core| core.stalls),
    ("lost wakeups", |core| core.lost_wakeups),
];

fn to_text(stats: &StatsResponse) -> String {
    let mut text = columns(&stats.cores, |core| format!("core {}", core.core), &ROWS);
    if !stats.devices.is_empty() {
        // A name of the server's: its control characters are shown, not obeyed.
        let name = |device: &DeviceStats| device.name.escape_debug().to_string();
        text.push_str(&columns(&stats.devices, name, &DEVICE_ROWS));
    }
    let memory = stats.memory.unwrap_or_default();
    let store = stats.store.clone().unwrap_or_default();
    for (name, bytes) in [
        ("payload memory: budget", memory.budget),
        ("pinned", memory.pinned),
        ("inbound in use", memory.inbound),
        ("outbound in use", memory.outbound),
        ("in use at peak", memory.peak),
        ("held by users", memory.held_by_users),
        ("payloads copied instead", memory.delivered_as_copies),
        ("stored: keys", stats.keys),
        ("bytes of values", stats.value_bytes),
        ("writes", store.writes),
        ("commits to disk", store.commits),
        ("writes waiting for one", store.writes_waiting),
        ("last version given", store.version),
    ] {
        text.push_str(&format!(" {name:>24}  {:>16}\n", grouped(bytes)));
    }
    text
}

/// A table with a column for each of `things`.
fn columns<T>(things: &[T], head: impl Fn(&T) -> String, rows: &[Row<T>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([String::new()].into_iter().chain(things.iter().map(head)));
    for (name, of) in rows {
        let numbers = things.iter().map(|thing| grouped(of(thing)));
        table.add_row([(*name).to_owned()].into_iter().chain(numbers));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

fn to_json(stats: &StatsResponse) -> Value {
    let core = |core: &CoreStats| {
        json!({
            "core": core.core,
            "calls_served": core.calls_served,
            "calls_made": core.calls_made,
            "eager_bytes_sent": core.eager_bytes_sent,
            "eager_bytes_received": core.eager_bytes_received,
            "read_bytes": core.read_bytes,
            "read_bytes_served": core.read_bytes_served,
            "sends": core.sends,
            "receives": core.receives,
            "reads": core.reads,
            "binds": core.binds,
            "connections": core.connections,
            "receives_posted": core.receives_posted,
            "credits_granted": core.credits_granted,
            "credits_recalled": core.credits_recalled,
            "credits_returned": core.credits_returned,
            "leases": core.leases,
            "windows_bound": core.windows_bound,
            "errors": core.errors,
            "receives_in_queue": core.receives_in_queue,
            "rnr_naks_sent": core.rnr_naks_sent,
            "remote_access_errors": core.remote_access_errors,
            "stalls": core.stalls,
            "lost_wakeups": core.lost_wakeups,
        })
    };
    let device = |device: &DeviceStats| {
        json!({
            "name": device.name,
            "eager_bytes_sent": device.eager_bytes_sent,
            "eager_bytes_received": device.eager_bytes_received,
            "read_bytes": device.read_bytes,
            "sends": device.sends,
            "receives": device.receives,
            "reads": device.reads,
            "binds": device.binds,
            "windows_bound": device.windows_bound,
            "queue_pairs": device.queue_pairs,
        })
    };
    let memory = stats.memory.unwrap_or_default();
    let store = stats.store.clone().unwrap_or_default();
    json!({
        "cores": stats.cores.iter().map(core).collect::<Vec<_>>(),
        "memory": {
            "budget": memory.budget,
            "pinned": memory.pinned,
            "inbound": memory.inbound,
            "outbound": memory.outbound,
            "peak": memory.peak,
            "held_by_users": memory.held_by_users,
            "delivered_as_copies": memory.delivered_as_copies,
        },
        "keys": stats.keys,
        "value_bytes": stats.value_bytes,
        "devices": stats.devices.iter().map(device).collect::<Vec<_>>(),
        "store": {
            "id": text::hex(&store.id),
            "persistent": store.persistent,
            "writes": store.writes,
            "commits": store.commits,
            "writes_waiting": store.writes_waiting,
            "version": store.version,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_names_and_numbers_of_the_message() {
        let core = CoreStats { read_bytes: 7, leases: 1, ..CoreStats::default() };
        let memory = Some(MemoryStats { peak: 9, ..MemoryStats::default() });
        let devices = vec![DeviceStats { reads: 4, ..DeviceStats::default() }];
        let store = Some(StoreStats { id: vec![0xab].into(), ..StoreStats::default() });
        let stats =
            StatsResponse { cores: vec![core], memory, keys: 3, value_bytes: 5, devices, store };
        let json = to_json(&stats);
        assert_eq!(json["devices"][0]["reads"], 4);
        assert_eq!(json["cores"][0]["read_bytes"], 7);
        assert_eq!(json["cores"][0]["leases"], 1);
        assert_eq!(json["memory"]["peak"], 9);
        assert_eq!(json["keys"], 3);
        assert_eq!(json["store"]["id"], "ab");
    }

    #[test]
    fn the_table_shows_every_core() {
        let core = |core, reads| CoreStats { core, reads, ..CoreStats::default() };
        let stats =
            StatsResponse { cores: vec![core(0, 1_234), core(1, 5)], ..StatsResponse::default() };
        let text = to_text(&stats);
        assert!(text.contains("core 0") && text.contains("core 1"), "{text}");
        assert!(text.contains("1,234"), "{text}");
        assert!(!text.contains("queue pairs"), "{text}");
        let device = DeviceStats { name: "mlx5_0\x1b".into(), ..DeviceStats::default() };
        let text = to_text(&StatsResponse { devices: vec![device], ..stats });
        assert!(text.contains("mlx5_0\\u{1b}") && text.contains("queue pairs"), "{text}");
    }
}
