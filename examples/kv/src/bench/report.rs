use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::bench::chart::Line;
use crate::bench::drive::Measured;
use crate::bench::mix::Mix;
use crate::failure::{Exit, err};
use crate::text::{grouped, milliseconds};

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// One row of what came out.
pub(crate) struct Row {
    pub(crate) mix: Mix,
    /// Operations offered each second; `None` at full speed.
    pub(crate) offered: Option<f64>,
    pub(crate) measured: Measured,
}

impl Row {
    /// Which one it is, in words.
    fn name(&self) -> String {
        match self.offered {
            None => format!("mix {:?}", self.mix),
            Some(rate) => format!("mix {:?} at {}/s", self.mix, grouped(rate as u64)),
        }
    }
}

/// Latencies against load, a line for each quantile. A step in which nothing was timed has no point.
pub(crate) fn lines(rows: &[Row]) -> Vec<Line> {
    let point = |row: &Row, quantile| Some((row.offered?, row.measured.micros(quantile)?));
    let line = |(name, quantile): (&str, f64)| Line {
        name: name.to_owned(),
        points: rows.iter().filter_map(|row| point(row, quantile)).collect(),
    };
    QUANTILES.map(line).into()
}

/// The rows as a table.
pub(crate) fn to_text(on: &str, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let heads = ["mix", "offered/s", "done/s"].into_iter().chain(QUANTILES.map(|(name, _)| name));
    table.set_header(heads.chain(["not found", "conflicts", "failed"]));
    for Row { mix, offered, measured } in rows {
        let offered = offered.map_or("full speed".into(), |rate| grouped(rate as u64));
        let mut cells = vec![format!("{mix:?}"), offered, grouped(measured.rate() as u64)];
        let micros = |(_, quantile)| match measured.micros(quantile) {
            Some(micros) => format!("{} µs", grouped(micros as u64)),
            None => "-".into(),
        };
        cells.extend(QUANTILES.map(micros));
        let counts = [measured.not_found, measured.conflicts, measured.failed];
        cells.extend(counts.map(grouped));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{on}\n{table}\nAt full speed, calls wait for earlier ones; where load is offered, a latency counts from when the call was due. What was given up counts with the time that it waited, what was refused does not. Mix D reads what it has just inserted, and with many calls outstanding some come before the insert that they are about: these are not found.\n",
    )
}

/// The rows as JSON.
pub(crate) fn to_json(on: &str, rows: &[Row]) -> Value {
    let row = |Row { mix, offered, measured }: &Row| {
        let mut object = json!({
            "mix": format!("{mix:?}"),
            "offered_per_second": offered,
            "done_per_second": measured.rate(),
            "done": measured.done,
            "not_found": measured.not_found,
            "conflicts": measured.conflicts,
            "failed": measured.failed,
            "unsent": measured.unsent,
            "seconds": milliseconds(measured.elapsed),
        });
        for (name, quantile) in QUANTILES {
            // `p99.9` would have to be quoted wherever a script names it.
            object[format!("{}_us", name.replace('.', "_"))] = measured.micros(quantile).into();
        }
        object
    };
    json!({ "measured_on": on, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

/// Tells what failed; how to end.
pub(crate) fn problems(rows: &[Row]) -> Exit {
    let mut exit = Exit::Done;
    for row in rows {
        if let Some(failure) = &row.measured.first_failure {
            let (name, failed) = (row.name(), grouped(row.measured.failed));
            err(format_args!("error: {name}: {failed} failed, the first: {failure}\n"));
            exit = Exit::Failed;
        }
    }
    exit
}

/// Tells that this row is the last one.
pub(crate) fn ended_early(row: &Row) {
    let why = if row.measured.gone {
        "the server could not be reached any more"
    } else {
        "the server did nothing of what it was asked"
    };
    err(format_args!("error: the run ends early, with {}: {why}\n", row.name()));
}
