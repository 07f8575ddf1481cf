//! The connection's state machine: an owner that keeps to its part and a peer that says anything, in
//! any order. What must hold after each step is written where it is checked:
//!
//! - `owner`: calls, transfers, leases and the connection itself end as promised, each once;
//! - `peer`: what the connection sends can be decoded, is due, and spends no credit that it has not;
//! - `world`: nothing exceeds its bound, the heap among them, and at the end nothing is left.

mod metered;
mod owner;
mod peer;
mod say;
mod seen;
mod world;

use crate::recipe::Recipe;
use world::World;

/// Steps of one script: a loop in it ends here.
const STEPS_MAX: u32 = 2000;

/// Steps within a loop.
const LOOP_STEPS_MAX: usize = 4;

pub(crate) fn run(input: &[u8]) {
    let mut r = Recipe::new(input);
    let mut world = World::new(&mut r);
    let mut steps = 0;
    while !r.is_done() && steps < STEPS_MAX && !world.is_over() {
        if r.u8() % 32 != 31 {
            world.step(&mut r);
            steps += 1;
            continue;
        }
        // Again and again the same: what grows without a bound grows here.
        let (length, times) = (1 + r.below(LOOP_STEPS_MAX), u32::from(r.u8()));
        let begin = r.clone();
        for _ in 0..times {
            r = begin.clone();
            for _ in 0..length {
                world.step(&mut r);
                steps += 1;
            }
            if steps >= STEPS_MAX || world.is_over() {
                break;
            }
        }
    }
    world.end();
}
