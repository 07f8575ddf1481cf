//! Runs of targets, and what is printed of them.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bolero::TestTarget;

use super::engine::{Corpus, Found, Limit, Seeded};
use super::targets::Target;

thread_local! {
    /// The last input that was run: after a failure, the smallest that fails.
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How targets are run.
pub(crate) struct Run {
    pub(crate) seed: u64,
    /// How long each; `None`: a fixed number of inputs.
    pub(crate) each: Option<Duration>,
}

impl Run {
    /// Runs targets one after the other and prints a table. Whether every property held.
    pub(crate) fn all(&self, targets: &[&Target]) -> bool {
        println!(
            "| {:<12} | {:>6} | {:>10} | {:>7} |",
            "target", "corpus", "iterations", "seconds"
        );
        println!("|{:-<14}|{:->7}:|{:->11}:|{:->8}:|", "", "", "", "");
        let (mut passed, mut failed) = (0, 0);
        for target in targets {
            let began = Instant::now();
            let (corpus, iterations, result) = self.one(target);
            let seconds = began.elapsed().as_secs_f64();
            println!("| {:<12} | {corpus:>6} | {iterations:>10} | {seconds:>7.1} |", target.name);
            match result {
                Ok(()) => passed += 1,
                Err(found) => {
                    failed += 1;
                    report(target, &found);
                }
            }
        }
        // The form that summaries of tests have, so that it is counted with them.
        let verdict = if failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {verdict}. {passed} passed; {failed} failed");
        failed == 0
    }

    fn one(&self, target: &Target) -> (usize, u64, Result<(), Found>) {
        let corpus = match corpus(target) {
            Ok(corpus) => corpus,
            Err(error) => return (0, 0, Err(Found { origin: "the corpus".into(), error })),
        };
        let limit = match self.each {
            Some(each) => Limit::Until(Instant::now() + each),
            None => Limit::Iterations(target.iterations),
        };
        let (seed, len_max) = (self.seed, target.len_max);
        let engine = Seeded { corpus: &corpus, seed, limit, len_max };
        let (iterations, result) = TestTarget::new(engine).for_each(recorded(target.run));
        (corpus.inputs.len(), iterations, result)
    }
}

/// The target, with each input kept.
fn recorded(run: fn(&[u8])) -> impl FnMut(&[u8]) {
    move |input: &[u8]| {
        LAST.with_borrow_mut(|last| {
            last.clear();
            last.extend_from_slice(input);
        });
        run(input);
    }
}

/// Says what was found, and keeps the input.
fn report(target: &Target, found: &Found) {
    let bytes = LAST.with_borrow(Clone::clone);
    println!("{}: {}: {}", target.name, found.origin, found.error);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("the input, made smaller, has {} bytes: {hex}", bytes.len());
    let folder = home().join("found").join(target.name);
    let file = folder.join(format!("{:016x}", hash(&bytes)));
    match fs::create_dir_all(&folder).and_then(|()| fs::write(&file, &bytes)) {
        Ok(()) => println!(
            "it is kept in {}; run it again by `cargo run -p rpc-fuzz -- --replay {} FILE`, and move \
             it to fuzz/corpus/{} with the fix",
            file.display(),
            target.name,
            target.name
        ),
        Err(error) => println!("it could not be kept in {}: {error}", file.display()),
    }
}

/// FNV-1a: a name that follows from the bytes.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a target's corpus, by name.
fn corpus(target: &Target) -> Result<Corpus, String> {
    let folder = home().join("corpus").join(target.name);
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        // A target that is new has none, and git keeps no empty folder.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Corpus::default()),
        Err(error) => return Err(told(error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<PathBuf>, _>>().map_err(told)?;
    paths.sort();
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = paths.iter().map(name).collect();
    let inputs = paths.iter().map(fs::read).collect::<Result<_, _>>().map_err(told)?;
    Ok(Corpus { names, inputs })
}

/// Runs files, one by one, and lets their panics through.
pub(crate) fn replay(name: &str, files: &[&str]) -> Result<bool, String> {
    let target = Target::named(name)?;
    for file in files {
        let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        (target.run)(&bytes);
        println!("{file}: {} bytes, every property holds", bytes.len());
    }
    Ok(true)
}

/// A seed that no run had before: the time. What matters is that it is printed.
pub(crate) fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

/// Hands a target to libFuzzer, which ends the process.
#[cfg(fuzzing_libfuzzer)]
pub(crate) fn libfuzzer(name: &str) -> std::process::ExitCode {
    match Target::named(name) {
        Ok(target) => {
            fuzz(target);
            std::process::ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("rpc-fuzz: {message}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(fuzzing_libfuzzer)]
fn fuzz(target: &'static Target) {
    bolero::check!(name = target.name).for_each(target.run);
}
