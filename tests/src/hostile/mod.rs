//! A hostile peer, and what it is let loose on.
//!
//! - [`World`]: a server in a process of its own, an honest client that calls it the whole time, and
//!   the checks that every case ends with.
//! - [`Attacker`]: a peer that shakes hands as it should and then says what it likes, through a device
//!   of its own.
//! - [`raw`]: peers that do not even shake hands.
//! - [`serve`]: what the server's process does.

mod attacker;
mod heard;
mod honest;
pub mod raw;
mod server;
mod service;
mod station;
mod world;

pub use attacker::{Attacker, Call, End, PATIENCE};
pub use heard::Heard;
pub use honest::{Honest, call_until_killed};
pub use server::{Server, Stats, serve};
pub use service::{Blob, Size, Target, TargetClient, Tree};
pub use world::World;
