use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// The one seed to run.
const SEED: &str = "SIM_SEED";
/// How many seeds to run, whatever the test says.
const COUNT: &str = "SIM_SEEDS";
/// Simulations at once at most: more share caches and finish no sooner.
const THREADS_MAX: usize = 8;

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

/// Runs a test with `count` seeds, 0 and up, on as many threads as there are CPUs. `SIM_SEEDS=n` in the
/// environment runs so many instead, `SIM_SEED=n` the one alone.
///
/// # Panics
/// As the test did with one of them, after a line to standard error that repeats that run.
pub fn seeds(count: u64, test: impl Fn(u64) + Sync) -> Seeds {
    let begun = Instant::now();
    let done = |count| Seeds { count, seconds: begun.elapsed().as_secs_f64() };
    let named = thread::current().name().unwrap_or("").to_owned();
    if let Some(seed) = number(SEED) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            fail(seed, &named, panic);
        }
        return done(1);
    }
    let count = number(COUNT).unwrap_or(count);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
                        failed.store(true, Ordering::Relaxed);
                        let mut failure = failure.lock().unwrap_or_else(|e| e.into_inner());
                        failure.get_or_insert((seed, panic));
                    }
                }
            });
        }
    });
    if let Some((seed, panic)) = failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        fail(seed, &named, panic);
    }
    done(count)
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
