//! What a runtime takes from the world around it: the time, and numbers that nobody can guess.
//!
//! Every clock read and every random number of the crate comes through here, so that a simulation can
//! give both: a thread that [`enter`]s a simulated world sees its time and its numbers instead of the
//! system's. Without the feature `test-util` there is no other world, and nothing is looked up.

use std::time::Instant;

#[cfg(any(test, feature = "test-util"))]
pub(crate) use simulated::{Entered, World, enter};

/// The monotonic clock.
pub(crate) fn now() -> Instant {
    #[cfg(any(test, feature = "test-util"))]
    if let Some(now) = simulated::now() {
        return now;
    }
    Instant::now()
}

/// Fills `bytes` from the system's CSPRNG.
///
/// # Errors
/// The system has none, or not yet.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(any(test, feature = "test-util"))]
    if simulated::fill_random(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes)
}

/// A number from the same source.
///
/// # Errors
/// As [`fill_random`].
pub(crate) fn random_u64() -> Result<u64, getrandom::Error> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(any(test, feature = "test-util"))]
mod simulated {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    /// The time and the random numbers of one simulation.
    pub(crate) struct World {
        base: Instant,
        passed: Cell<Duration>,
        random: Cell<u64>,
    }

    thread_local! {
        static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
    }

    /// This thread is back in the world it came from when this is dropped.
    pub(crate) struct Entered {
        before: Option<Rc<World>>,
    }

    /// Until the guard is dropped, this thread sees `world`.
    pub(crate) fn enter(world: &Rc<World>) -> Entered {
        Entered { before: WORLD.with(|current| current.replace(Some(Rc::clone(world)))) }
    }

    impl Drop for Entered {
        fn drop(&mut self) {
            WORLD.with(|current| current.replace(self.before.take()));
        }
    }

    impl World {
        /// A world whose time stands at its start and whose numbers follow from `seed`.
        pub(crate) fn new(seed: u64) -> Rc<Self> {
            Rc::new(Self {
                base: Instant::now(),
                passed: Cell::new(Duration::ZERO),
                random: Cell::new(seed),
            })
        }

        /// Time since its start.
        pub(crate) fn passed(&self) -> Duration {
            self.passed.get()
        }

        /// Lets time go on to `passed` since its start; never back.
        pub(crate) fn advance_to(&self, passed: Duration) {
            self.passed.set(self.passed.get().max(passed));
        }

        /// The next number: SplitMix64.
        pub(crate) fn random(&self) -> u64 {
            let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
            self.random.set(state);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }
    }

    fn with<R>(f: impl FnOnce(&World) -> R) -> Option<R> {
        WORLD.try_with(|world| world.borrow().as_deref().map(f)).ok().flatten()
    }

    pub(super) fn now() -> Option<Instant> {
        with(|world| world.base + world.passed.get())
    }

    /// Whether there was a world to take them from.
    pub(super) fn fill_random(bytes: &mut [u8]) -> bool {
        let filled = with(|world| {
            for chunk in bytes.chunks_mut(8) {
                let number = world.random().to_le_bytes();
                chunk.copy_from_slice(&number[..chunk.len()]);
            }
        });
        filled.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn in_a_simulated_world_time_stands_until_it_is_moved_and_numbers_follow_from_the_seed() {
        let draw = |seed| {
            let world = World::new(seed);
            let _entered = enter(&world);
            let begun = now();
            assert_eq!(now(), begun);
            world.advance_to(Duration::from_secs(3600));
            world.advance_to(Duration::from_secs(1));
            assert_eq!(world.passed(), Duration::from_secs(3600));
            assert_eq!(now() - begun, Duration::from_secs(3600));
            let mut bytes = [0; 13];
            fill_random(&mut bytes).unwrap();
            (bytes, random_u64().unwrap())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn outside_it_the_system_gives_both_again() {
        drop(enter(&World::new(1)));
        let begun = now();
        while now() == begun {
            std::hint::spin_loop();
        }
        let mut both = [[0; 32]; 2];
        for bytes in &mut both {
            fill_random(bytes).unwrap();
        }
        assert_ne!(both[0], both[1]);
    }
}
