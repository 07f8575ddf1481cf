//! Instructions per call: two runs of different length under callgrind, and their difference.

mod profile;
mod record;
pub(crate) mod step;

use std::path::{Path, PathBuf};
use std::process::Command;

use self::profile::Profile;
use self::record::Record;
use crate::failure::Failure;

/// Calls of the short run: what is done once, such as growing a table, has happened by then.
const CALLS_SHORT: u64 = 2_000;
/// Calls of the long run; the difference is what is counted.
const CALLS_LONG: u64 = 12_000;
/// How much a figure may grow.
const GROWTH_MAX_PERCENT: f64 = 5.0;
/// How much that of a look may: once in a millisecond a look does more, and a busy machine takes fewer looks in one.
const GROWTH_OF_LOOKS_MAX_PERCENT: f64 = 25.0;
/// Rows of the table of contributors.
const ROWS: usize = 25;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Records the figures as those to compare with from now on.
    #[arg(long)]
    record: bool,
    /// Rows of each table of the functions in which most instructions are.
    #[arg(long, default_value_t = ROWS)]
    rows: usize,
}

/// What is counted.
struct Case {
    /// In the record.
    name: &'static str,
    /// Calls in flight at once. With none, each side looks once for each call that the others make: what comes is
    /// found on average half such a look later.
    outstanding: u64,
    growth_max_percent: f64,
}

const CASES: [Case; 3] = [
    Case { name: "one_outstanding", outstanding: 1, growth_max_percent: GROWTH_MAX_PERCENT },
    Case {
        name: "sixty_four_outstanding",
        outstanding: 64,
        growth_max_percent: GROWTH_MAX_PERCENT,
    },
    Case { name: "idle_look", outstanding: 0, growth_max_percent: GROWTH_OF_LOOKS_MAX_PERCENT },
];

/// The functions whose instructions are counted.
const COUNTED: [&str; 2] = ["counted_calls", "counted_looks"];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("bench-instructions-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let counted = count_all(options, &folder);
    // It lies among temporary files: what cannot be removed does no harm.
    let _ = std::fs::remove_dir_all(&folder);
    let found = Record { rustc: rustc_version()?, figures: counted? };
    let path = record_path();
    if options.record {
        std::fs::write(&path, found.to_string())?;
        println!("recorded in {}", path.display());
        return Ok(());
    }
    compare(&Record::parse(&std::fs::read_to_string(&path)?)?, &found)
}

fn count_all(options: &Options, folder: &Path) -> Result<Vec<(String, u64)>, Failure> {
    let mut figures = Vec::new();
    for case in &CASES {
        let per_call = count(case.outstanding, folder)?;
        let total = per_call.total() as u64;
        let what = match case.outstanding {
            0 => "a look that finds nothing".to_owned(),
            many => format!("64 B unary call, {many} outstanding"),
        };
        println!("{what}, client and server: {total} instructions\n");
        println!("{}", per_call.table(options.rows));
        figures.push((case.name.to_owned(), total));
    }
    Ok(figures)
}

/// The profile of one call. Both runs go at once: a machine that the tests run on has two CPUs.
fn count(outstanding: u64, folder: &Path) -> Result<Profile, Failure> {
    let running = [CALLS_SHORT, CALLS_LONG].map(|calls| {
        let out = folder.join(format!("{outstanding}-{calls}"));
        let child = Command::new("valgrind")
            .args(["--tool=callgrind", "--quiet"])
            .args(COUNTED.map(|name| format!("--toggle-collect=*::{name}*")))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(std::env::current_exe()?)
            .args(["step", "--calls", &calls.to_string()])
            .args(["--outstanding", &outstanding.to_string()])
            .spawn()
            .map_err(|error| Failure::new(format!("valgrind cannot be run: {error}")))?;
        Ok::<_, Failure>((child, out))
    });
    let mut profiles = Vec::new();
    for run in running {
        let (mut child, out) = run?;
        let status = child.wait()?;
        if !status.success() {
            return Err(Failure::new(format!("the calls failed under callgrind: {status}")));
        }
        profiles.push(Profile::parse(&std::fs::read_to_string(out)?)?);
    }
    let [short, long] = &profiles[..] else { return Err(Failure::new("a run is missing")) };
    Ok(long.since(short, CALLS_LONG - CALLS_SHORT))
}

fn compare(recorded: &Record, found: &Record) -> Result<(), Failure> {
    if recorded.rustc != found.rustc {
        println!(
            "recorded with {}, measured with {}: the compiler may be what differs\n",
            recorded.rustc, found.rustc
        );
    }
    let mut grown = Vec::new();
    println!("| instructions per 64 B call | recorded | now | growth |");
    println!("|---|---|---|---|");
    for (case, (name, now)) in CASES.iter().zip(&found.figures) {
        let was = recorded.figure(name)?;
        let growth = (*now as f64 / was as f64 - 1.0) * 100.0;
        println!("| {} | {was} | {now} | {growth:+.1} % |", name.replace('_', " "));
        if growth > case.growth_max_percent {
            grown.push(format!("{name} by {growth:.1} %"));
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "instructions grew beyond {GROWTH_MAX_PERCENT} % (a look: {GROWTH_OF_LOOKS_MAX_PERCENT} %): {}. The tables \
         say where they are. If they are worth it, record them: cargo run --release -p bench -- instructions --record",
        grown.join(", ")
    )))
}

fn record_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.toml")
}

fn rustc_version() -> Result<String, Failure> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
