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

/// Steps of one script: a loop in it ends here. Enough to pass every bound of `world`.
const STEPS_MAX: u32 = 300;

/// Bytes that the peer sends in one script: as much as a bound needs to be passed, and no more, since
/// it is what a script's time goes into.
const SENT_BYTES_MAX: usize = 256 << 10;

/// Steps within a loop.
const LOOP_STEPS_MAX: usize = 4;

pub(crate) fn run(input: &[u8]) {
    let mut r = Recipe::new(input);
    let mut world = World::new(&mut r);
    let mut steps = 0;
    let is_over = |world: &World, steps| {
        steps >= STEPS_MAX || world.is_over() || world.received_bytes() >= SENT_BYTES_MAX
    };
    while !r.is_done() && !is_over(&world, steps) {
        if r.u8() % 32 != 31 {
            world.step(&mut r);
            steps += 1;
            continue;
        }
        // Again and again the same: what grows without a bound grows here.
        let (length, times) = (1 + r.below(LOOP_STEPS_MAX), 4 * u32::from(r.u8()));
        let begin = r.clone();
        for _ in 0..times {
            r = begin.clone();
            for _ in 0..length {
                world.step(&mut r);
                steps += 1;
            }
            if is_over(&world, steps) {
                break;
            }
        }
    }
    world.end();
}
