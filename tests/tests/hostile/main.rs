//! A server under attack: each rule of the protocol broken in turn by a peer of its own device, while
//! an honest client makes calls that must all succeed.

#![allow(
    clippy::type_complexity,
    clippy::unwrap_used,
    reason = "tables of cases are read in place, and what fails in a fixture fails its test"
)]

mod calls;
mod control;
mod frames;
mod link;
mod resources;

use rpc_tests::hostile::World;

const SERVER: &str = env!("CARGO_BIN_EXE_hostile-target");

/// Why some are left out over libibverbs.
const ABOUT_LINKS: &str = "it is about the links of the software device";

/// Code numbers that statuses and refusals carry.
const INVALID_ARGUMENT: u32 = 3;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNIMPLEMENTED: u32 = 12;

fn world() -> World {
    World::start(SERVER)
}
