use std::time::{Duration, Instant};

use bolero::Engine;
use bolero_engine::input::Bytes;
use bolero_engine::{RunPhase, Test, driver, panic, test_context};

use super::input;
use super::random::Random;

/// How long a failing input may be made smaller.
const SHRINK_TIME: Duration = Duration::from_secs(5);

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// After so many inputs beside the corpus.
    Iterations(u64),
    /// At this moment.
    Until(Instant),
}

impl Limit {
    fn is_reached(self, iterations: u64) -> bool {
        match self {
            Self::Iterations(max) => iterations >= max,
            Self::Until(end) => Instant::now() >= end,
        }
    }
}

/// Inputs that are kept, by name.
#[derive(Default)]
pub(crate) struct Corpus {
    pub(crate) names: Vec<String>,
    pub(crate) inputs: Vec<Vec<u8>>,
}

/// An engine that needs nothing but stable Rust: the corpus as it is, then inputs that are made of
/// it, each of which follows from the seed and its number.
pub(crate) struct Seeded<'a> {
    pub(crate) corpus: &'a Corpus,
    pub(crate) seed: u64,
    pub(crate) limit: Limit,
    pub(crate) len_max: usize,
}

/// An input that breaks a property.
pub(crate) struct Found {
    /// Where it came from.
    pub(crate) origin: String,
    /// What broke.
    pub(crate) error: String,
}

impl<T: Test> Engine<T> for Seeded<'_> {
    /// How many inputs were made, and what the run ended with.
    type Output = (u64, Result<(), Found>);

    fn run(self, mut test: T, options: driver::Options) -> Self::Output {
        panic::set_hook();
        let forwarded = panic::forward_panic(false);
        let options = options.with_shrink_time(SHRINK_TIME);
        let ran = self.all(&mut test, &options);
        panic::forward_panic(forwarded);
        ran
    }
}

impl Seeded<'_> {
    fn all<T: Test>(&self, test: &mut T, options: &driver::Options) -> (u64, Result<(), Found>) {
        for (name, bytes) in self.corpus.names.iter().zip(&self.corpus.inputs) {
            if let Err(error) = one(test, bytes, options) {
                let origin = format!("{name} of the corpus");
                return (0, Err(Found { origin, error }));
            }
        }
        let mut iterations = 0;
        while !self.limit.is_reached(iterations) {
            let mut random =
                Random::new(self.seed ^ iterations.wrapping_mul(0xd134_2543_de82_ef95));
            let bytes = input::make(&mut random, &self.corpus.inputs, self.len_max);
            iterations += 1;
            if let Err(error) = one(test, &bytes, options) {
                let origin = format!("input {iterations} of seed {}", self.seed);
                return (iterations, Err(Found { origin, error }));
            }
        }
        (iterations, Ok(()))
    }
}

/// Runs one input, and if it fails, smaller ones.
fn one<T: Test>(test: &mut T, bytes: &[u8], options: &driver::Options) -> Result<(), String> {
    let Err(error) = test.test(&mut Bytes::new(bytes, options)) else { return Ok(()) };
    if test.shrink(bytes.to_vec(), None, options).is_none() {
        // Nothing smaller fails: the last input run is to be the one that does.
        test_context::update(|context| context.run_phase = RunPhase::Failure);
        let _ = test.test(&mut Bytes::new(bytes, options));
    }
    Err(error.to_string())
}
