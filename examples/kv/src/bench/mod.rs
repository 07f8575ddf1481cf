//! `kv bench`: the mixes of YCSB at full speed, then one of them at steps of offered load.

mod chart;
mod drive;
pub(crate) mod mix;

use std::thread;

use comfy_table::{CellAlignment, Table, presets};
use futures_util::stream::{self, StreamExt};
use rpc_core::Channel;
use rpc_core::bytes::Bytes;
use serde_json::{Value, json};

use crate::bench::chart::Line;
use crate::bench::drive::{Measured, Pace, drive, key};
use crate::bench::mix::{Draw, Mix};
use crate::cli::BenchArgs;
use crate::failure::{Exit, Failure, err, out};
use crate::kv::{KvClient, PutRequest, StatsRequest, StatsResponse};
use crate::ops;
use crate::random::Random;
use crate::text::grouped;

/// Offered load, as parts of what full speed was. Beyond it, an open loop only shows its own queue.
const STEPS: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9];

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// One row of what came out.
struct Row {
    mix: Mix,
    /// Operations offered each second; `None` at full speed.
    offered: Option<f64>,
    measured: Measured,
}

/// `kv bench`
pub(crate) fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let channel = rpc_core::block_on(ops::connect(&args.server))?;
    let client = KvClient::new(channel.clone());
    let value = value(args);
    rpc_core::block_on(fill(&client, args, &value))?;
    let stats = rpc_core::block_on(client.stats(StatsRequest {}))?.into_inner();
    let on = measured_on(args, &channel, &stats);
    let mut rows = Vec::new();
    let mut records = args.records;
    for mix in &args.mix {
        let mut draw = Draw::new(*mix, args.distribution, records, args.seed);
        let pace = Pace::Closed(usize::from(args.outstanding));
        let measured = drive(&client, &mut draw, &value, pace, args.seconds)?;
        records = draw.records();
        rows.push(Row { mix: *mix, offered: None, measured });
    }
    if let (Some(path), Some(first)) = (&args.svg, rows.first()) {
        let (mix, full) = (first.mix, first.measured.rate());
        for step in STEPS.into_iter().filter(|_| full > 0.0) {
            let rate = (full * step).max(1.0);
            let mut draw = Draw::new(mix, args.distribution, records, args.seed);
            let measured = drive(&client, &mut draw, &value, Pace::Open(rate), args.seconds)?;
            records = draw.records();
            rows.push(Row { mix, offered: Some(rate), measured });
        }
        let svg = chart::draw(&format!("mix {mix:?}: {on}"), &lines(&rows));
        std::fs::write(path, svg).map_err(|error| {
            Failure::because(format!("writing the chart to {} failed", path.display()), error)
        })?;
    }
    let text = if args.json { format!("{:#}\n", to_json(&on, &rows)) } else { to_text(&on, &rows) };
    out(text.as_bytes())?;
    Ok(problems(&rows))
}

/// Bytes that do not repeat, so that nothing on the way can make less of them.
fn value(args: &BenchArgs) -> Bytes {
    let mut random = Random(args.seed);
    let bytes = std::iter::repeat_with(|| random.next().to_le_bytes()).flatten();
    bytes.take(args.value as usize).collect::<Vec<u8>>().into()
}

/// Stores the records that the mixes ask for.
async fn fill(client: &KvClient, args: &BenchArgs, value: &Bytes) -> Result<(), Failure> {
    let puts = (0..args.records).map(|record| {
        let request = PutRequest { key: key(record), value: value.clone(), expected_version: None };
        client.put(request)
    });
    let mut puts = stream::iter(puts).buffer_unordered(usize::from(args.outstanding));
    while let Some(stored) = puts.next().await {
        stored?;
    }
    Ok(())
}

/// What the numbers are of, in one sentence.
fn measured_on(args: &BenchArgs, channel: &Channel, stats: &StatsResponse) -> String {
    let store = stats.store.clone().unwrap_or_default();
    format!(
        "{} records of {} bytes, {:?}, {} outstanding, {} s each; a server with {} core(s), values {}, {}; this machine has {} processors, and this program was built {}",
        args.records,
        args.value,
        args.distribution,
        args.outstanding,
        args.seconds.as_secs_f64(),
        stats.cores.len(),
        if store.persistent { "on disk" } else { "in memory" },
        channel.path(),
        thread::available_parallelism().map_or(0, usize::from),
        if cfg!(debug_assertions) {
            "without optimisation: no measure of speed"
        } else {
            "for release"
        },
    )
}

/// Latencies against load, a line for each quantile.
fn lines(rows: &[Row]) -> Vec<Line> {
    let point = |row: &Row, quantile| Some((row.offered?, row.measured.micros(quantile)));
    let line = |(name, quantile): (&str, f64)| Line {
        name: name.to_owned(),
        points: rows.iter().filter_map(|row| point(row, quantile)).collect(),
    };
    QUANTILES.map(line).into()
}

fn to_text(on: &str, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let heads = ["mix", "offered/s", "done/s"].into_iter().chain(QUANTILES.map(|(name, _)| name));
    table.set_header(heads.chain(["conflicts", "failed"]));
    for Row { mix, offered, measured } in rows {
        let offered = offered.map_or("full speed".into(), |rate| grouped(rate as u64));
        let mut cells = vec![format!("{mix:?}"), offered, grouped(measured.rate() as u64)];
        let micros = |(_, quantile)| format!("{} µs", grouped(measured.micros(quantile) as u64));
        cells.extend(QUANTILES.map(micros));
        cells.extend([grouped(measured.conflicts), grouped(measured.failed)]);
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{on}\n{table}\nAt full speed, calls wait for earlier ones; where load is offered, a latency counts from when the call was due.\n",
    )
}

fn to_json(on: &str, rows: &[Row]) -> Value {
    let row = |Row { mix, offered, measured }: &Row| {
        let mut object = json!({
            "mix": format!("{mix:?}"),
            "offered_per_second": offered,
            "done_per_second": measured.rate(),
            "done": measured.done,
            "conflicts": measured.conflicts,
            "failed": measured.failed,
            "seconds": measured.elapsed.as_secs_f64(),
        });
        for (name, quantile) in QUANTILES {
            object[format!("{name}_us")] = measured.micros(quantile).into();
        }
        object
    };
    json!({ "measured_on": on, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

/// Tells what failed; how to end.
fn problems(rows: &[Row]) -> Exit {
    let mut exit = Exit::Done;
    for row in rows {
        if let Some(failure) = &row.measured.first_failure {
            err(format_args!(
                "error: mix {:?}: {} failed, the first: {failure}\n",
                row.mix, row.measured.failed
            ));
            exit = Exit::Failed;
        }
    }
    exit
}
