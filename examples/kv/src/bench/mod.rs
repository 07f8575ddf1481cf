//! `kv bench`: the mixes of YCSB at full speed, then one of them at steps of offered load.

mod chart;
mod drive;
pub(crate) mod mix;
mod records;
mod report;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use rpc_core::Channel;
use rpc_core::bytes::Bytes;

use crate::bench::drive::{Pace, drive};
use crate::bench::mix::{Draw, Mix, Records};
use crate::bench::records::{end, fill, perform};
use crate::bench::report::{Row, ended_early, lines, problems, to_json, to_text};
use crate::cli::BenchArgs;
use crate::failure::{Exit, Failure, err, out};
use crate::ops;
use crate::proto::{KvClient, StatsRequest, StatsResponse};
use crate::random::Random;

/// Offered load, as parts of what full speed was. Beyond it, an open loop only shows its own queue.
const STEPS: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9];

/// Calls outstanding in an open loop. More are not sent until some have ended; they count from when they
/// should have been sent all the same.
const OPEN_CALLS_MAX: usize = 1024;

/// `kv bench`
pub(crate) fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let svg = args.svg.as_deref().map(Svg::open).transpose()?;
    let channel = rpc_core::block_on(ops::connect(&args.server))?;
    let client = KvClient::new(channel.clone());
    let value = value(args);
    let (stats, first_insert) = rpc_core::block_on(prepare(&client, args, &value))?;
    let on = measured_on(args, &channel, &stats);
    let mut bench = Bench {
        client,
        args,
        value,
        records: Records::new(args.records, first_insert),
        rows: Vec::new(),
    };
    bench.measure(svg.is_some())?;
    let rows = &bench.rows;
    let text = if args.json { format!("{:#}\n", to_json(&on, rows)) } else { to_text(&on, rows) };
    out(text.as_bytes())?;
    let exit = problems(rows);
    match (svg, rows.first()) {
        (Some(svg), Some(first)) if rows.iter().any(|row| row.offered.is_some()) => {
            svg.write(&chart::draw(&format!("mix {:?}: {on}", first.mix), &lines(rows)))?;
        }
        (Some(svg), _) => {
            let path = svg.path.display();
            err(format_args!(
                "error: no chart was drawn to {path}: no step of load was measured\n"
            ));
            return Ok(Exit::Failed);
        }
        (None, _) => {}
    }
    Ok(exit)
}

/// What is measured, and what came out so far.
struct Bench<'a> {
    client: KvClient,
    args: &'a BenchArgs,
    value: Bytes,
    records: Records,
    rows: Vec<Row>,
}

impl Bench<'_> {
    /// All mixes at full speed, and then the steps of the first, as long as there is a server.
    fn measure(&mut self, with_steps: bool) -> Result<(), Failure> {
        for mix in &self.args.mix {
            let pace = Pace::Closed(outstanding(self.args, self.args.outstanding.into()));
            if !self.row(*mix, None, pace)? {
                return Ok(());
            }
        }
        let first = self.rows.first().map(|row| (row.mix, row.measured.rate()));
        let Some((mix, full)) = first.filter(|(_, full)| with_steps && *full > 0.0) else {
            return Ok(());
        };
        for step in STEPS {
            let rate = (full * step).max(1.0);
            let pace = Pace::Open { rate, calls_max: outstanding(self.args, OPEN_CALLS_MAX) };
            if !self.row(mix, Some(rate), pace)? {
                break;
            }
        }
        Ok(())
    }

    /// Measures one row. False, and told, if there is no use in another.
    fn row(&mut self, mix: Mix, offered: Option<f64>, pace: Pace) -> Result<bool, Failure> {
        let args = self.args;
        let mut draw = Draw::new(mix, args.distribution, self.records, args.seed);
        let call = || perform(self.client.clone(), draw.next(), self.value.clone());
        let measured = drive(pace, args.seconds, call)?;
        self.records = draw.records();
        let row = Row { mix, offered, measured };
        let goes_on = row.measured.is_alive();
        if !goes_on {
            ended_early(&row);
        }
        self.rows.push(row);
        Ok(goes_on)
    }
}

/// How many calls are outstanding, as many as `calls` if their values are not too long together.
fn outstanding(args: &BenchArgs, calls: usize) -> usize {
    let fit = args.bytes / args.value.max(1);
    usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, calls)
}

/// Bytes that do not repeat, so that nothing on the way can make less of them.
fn value(args: &BenchArgs) -> Bytes {
    let mut random = Random(args.seed);
    let bytes = std::iter::repeat_with(|| random.next().to_le_bytes()).flatten();
    bytes.take(args.value as usize).collect::<Vec<u8>>().into()
}

/// Stores the records; what the server is, and where inserts begin.
async fn prepare(
    client: &KvClient,
    args: &BenchArgs,
    value: &Bytes,
) -> Result<(StatsResponse, u64), Failure> {
    let calls = outstanding(args, args.outstanding.into());
    fill(client, args.records, value, calls, args.server.wait.timeout).await?;
    let first_insert = end(client).await?;
    Ok((client.stats(StatsRequest {}).await?.into_inner(), first_insert))
}

/// What the numbers are of, in one sentence.
fn measured_on(args: &BenchArgs, channel: &Channel, stats: &StatsResponse) -> String {
    let store = stats.store.clone().unwrap_or_default();
    format!(
        "{} records of {} bytes, {:?}, {} outstanding, {} s each; a server with {} core(s), values {}, {}; this machine has {} processors, and this program was built {}",
        args.records,
        args.value,
        args.distribution,
        outstanding(args, args.outstanding.into()),
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

/// The file of a chart, opened before anything is measured: a path that cannot be written costs nothing
/// then.
struct Svg {
    path: PathBuf,
    /// It was made for this, and goes if nothing is drawn.
    fresh: bool,
}

impl Svg {
    fn open(path: &Path) -> Result<Self, Failure> {
        let fresh = fs::symlink_metadata(path).is_err();
        File::options().write(true).create(true).truncate(false).open(path).map_err(|error| {
            Failure::because(format!("a chart cannot be written to {}", path.display()), error)
        })?;
        Ok(Self { path: path.to_owned(), fresh })
    }

    fn write(mut self, svg: &str) -> Result<(), Failure> {
        self.fresh = false;
        fs::write(&self.path, svg).map_err(|error| {
            Failure::because(format!("writing the chart to {} failed", self.path.display()), error)
        })
    }
}

impl Drop for Svg {
    fn drop(&mut self) {
        if self.fresh {
            _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(args: &[&str]) -> BenchArgs {
        let cli = Cli::try_parse_from([&["kv", "bench", "soft://h:1"], args].concat()).unwrap();
        match cli.command {
            Command::Bench(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_outstanding_is_bounded_in_bytes_and_is_at_least_one_call() {
        let calls = |given: &[&str]| {
            let args = args(given);
            (outstanding(&args, args.outstanding.into()), outstanding(&args, OPEN_CALLS_MAX))
        };
        assert_eq!(calls(&[]), (32, 1024));
        assert_eq!(calls(&["--value", "64MiB", "--outstanding", "64"]), (1, 1));
        assert_eq!(calls(&["--value", "1MiB", "--outstanding", "100"]), (64, 64));
        assert_eq!(calls(&["--value", "0", "--outstanding", "7"]), (7, 1024));
        assert_eq!(calls(&["--value", "2MB", "--bytes", "1MB"]), (1, 1));
    }

    #[test]
    fn a_chart_that_was_not_drawn_leaves_no_file_and_touches_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "old").unwrap();
        drop((Svg::open(&new).unwrap(), Svg::open(&old).unwrap()));
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        Svg::open(&old).unwrap().write("svg").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "svg");
        assert!(Svg::open(&dir.path().join("no/folder")).is_err());
    }
}
