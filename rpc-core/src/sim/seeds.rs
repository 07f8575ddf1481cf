use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// The one seed to run.
const SEED: &str = "SIM_SEED";
/// How many seeds to run, whatever the test says.
const COUNT: &str = "SIM_SEEDS";
/// The first of them, 0 if it is not set.
const FROM: &str = "SIM_SEEDS_FROM";
/// Where a process that runs some of the seeds says how many it ran: a name that matches no test is no failure of
/// the harness.
const RAN: &str = "SIM_RAN";
/// Simulations at once at most: more share caches and finish no sooner.
const THREADS_MAX: u64 = 8;
/// Seeds of one process. What a runtime maps is never unmapped, and the kernel gives a process 65,530
/// mappings; a seed with several nodes that are killed takes about 20.
const SEEDS_PER_PROCESS: u64 = 2_000;

/// How many seeds ran, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// Seeds.
    pub count: u64,
    /// Seconds of real time.
    pub seconds: f64,
}

impl Seeds {
    /// Seeds per minute.
    pub fn per_minute(&self) -> f64 {
        60.0 * self.count as f64 / self.seconds
    }
}

/// Runs a test with `count` seeds, 0 and up, on as many threads as there are CPUs. In the environment
/// `SIM_SEEDS=n` runs so many instead, from `SIM_SEEDS_FROM` on, and `SIM_SEED=n` the one alone.
///
/// It is called once in a test, by the thread that the test harness runs it on: more than 2,000 seeds are run
/// by further processes of this program, which are asked for the test of this thread's name.
///
/// # Panics
/// As the test did with one of them, after a line to standard error that repeats that run.
pub fn seeds(count: u64, test: impl Fn(u64) + Sync) -> Seeds {
    let begun = Instant::now();
    let named = thread::current().name().unwrap_or("").to_owned();
    let count = match number(SEED) {
        Some(seed) => {
            if let Err((seed, panic)) = try_seed(seed, &test) {
                fail(seed, &named, panic);
            }
            1
        }
        None => {
            let (from, count) = (number(FROM).unwrap_or(0), number(COUNT).unwrap_or(count));
            if count > SEEDS_PER_PROCESS {
                run_in_processes(from..from + count, &named);
            } else if let Err((seed, panic)) = run(from..from + count, &test) {
                fail(seed, &named, panic);
            }
            count
        }
    };
    if let Some(path) = std::env::var_os(RAN) {
        std::fs::write(path, count.to_string()).expect("who asked for these seeds made the folder");
    }
    Seeds { count, seconds: begun.elapsed().as_secs_f64() }
}

type Failed = (u64, Box<dyn Any + Send>);

fn try_seed(seed: u64, test: &impl Fn(u64)) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(|| test(seed))).map_err(|panic| (seed, panic))
}

/// Runs seeds on all CPUs until one fails.
fn run(seeds: Range<u64>, test: &(impl Fn(u64) + Sync)) -> Result<(), Failed> {
    let threads = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let next = AtomicU64::new(seeds.start);
    let (failed, failure) = (AtomicBool::new(false), Mutex::new(Ok(())));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let tried = try_seed(seed, test);
            if tried.is_err() && !failed.swap(true, Ordering::Relaxed) {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = tried;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.min(THREADS_MAX) {
            scope.spawn(work);
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs seeds in processes of their own, one after the other, until one fails.
fn run_in_processes(seeds: Range<u64>, named: &str) {
    let program = std::env::current_exe().expect("a process knows its program");
    let ran = std::env::temp_dir().join(format!("sim-ran-{}", std::process::id()));
    let mut from = seeds.start;
    while from < seeds.end {
        let count = SEEDS_PER_PROCESS.min(seeds.end - from);
        let ended = Command::new(&program)
            .args([named, "--exact", "--nocapture"])
            .env(FROM, from.to_string())
            .env(COUNT, count.to_string())
            .env(RAN, &ran)
            .status();
        let ended = ended.expect("a process can be started");
        assert!(ended.success(), "a seed from {from} to {} failed: see above", from + count - 1);
        let told = std::fs::read_to_string(&ran).unwrap_or_default();
        let _ = std::fs::remove_file(&ran);
        assert_eq!(
            told,
            count.to_string(),
            "the process that should have run seeds from {from} ran other ones"
        );
        from += count;
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: it is a number")))
}

/// Prints what repeats the run, and fails as it did.
fn fail(seed: u64, named: &str, panic: Box<dyn Any + Send>) -> ! {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    eprintln!("{SEED}={seed} cargo test -p {package} {} {named}", target());
    resume_unwind(panic)
}

/// The test target that this is, as cargo's arguments name it: its file's name without the hash.
fn target() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name).to_owned();
    let library = std::env::var("CARGO_PKG_NAME").unwrap_or_default().replace('-', "_");
    if name == library && !Path::new(&format!("tests/{name}.rs")).exists() {
        "--lib".to_owned()
    } else {
        format!("--test {name}")
    }
}
