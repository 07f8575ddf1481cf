//! Simulations: nodes of the whole stack in one thread, on a clock of their own, with faults (feature
//! `test-util`).
//!
//! A [`Sim`] is made from a seed and a plan of [`Faults`]. Each of its nodes is a runtime as any other:
//! core, engine, software device, handshakes, servers and channels are the same code. Only what is
//! around them is simulated: the time, the random numbers, the sockets of control connections and the
//! links between devices. So a run takes as long as its work takes, however long its timeouts are, and the
//! same seed is the same run.
//!
//! ```
//! use std::time::Duration;
//!
//! use rpc_core::sim::{self, Faults, Sim};
//! use rpc_core::{Channel, Request, Response, Server, Status};
//!
//! #[derive(Clone, PartialEq, rpc_core::prost::Message)]
//! # #[prost(prost_path = "::rpc_core::prost")]
//! struct Text {
//!     #[prost(string, tag = "1")]
//!     text: String,
//! }
//!
//! #[rpc_core::service(name = "example.Echo")]
//! trait Echo {
//!     async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status>;
//! }
//!
//! struct Mirror;
//! impl Echo for Mirror {
//!     async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
//!         sim::sleep(Duration::from_secs(3)).await; // no real time passes
//!         Ok(Response::new(request.into_inner()))
//!     }
//! }
//!
//! // One run of each seed; a seed that fails prints the line that repeats it.
//! sim::seeds(10, |seed| {
//!     let mut sim = Sim::new(seed, Faults::none().slow(50_000));
//!     sim.node("b", |node| {
//!         node.spawn(async {
//!             let server = Server::builder().add_service(EchoServer::new(Mirror));
//!             server.bind("soft://b:7400").await.unwrap().serve().await.unwrap();
//!         })
//!     });
//!     let (tell, told) = std::sync::mpsc::channel();
//!     sim.node("a", move |node| {
//!         let tell = tell.clone();
//!         node.spawn(async move {
//!             sim::sleep(Duration::from_millis(1)).await; // b listens by then
//!             let echo = EchoClient::new(Channel::connect("soft://b:7400").await.unwrap());
//!             let answer = echo.echo(Text { text: "hello".to_owned() }).await.unwrap();
//!             tell.send(answer.into_inner().text).unwrap();
//!         })
//!     });
//!     sim.run_for(Duration::from_secs(4));
//!     assert_eq!(told.try_recv().unwrap(), "hello");
//! });
//! ```
//!
//! What a test keeps to, so that its runs repeat:
//! - Its tasks ask [`now`] for the time and [`sleep`] to wait; they start no threads, and draw random
//!   numbers from the seed.
//! - What the order of a `HashMap` decides differs from run to run, as everywhere.
//! - A task that panics fails the run. A handler that does is an answer, as on any server.
//!
//! Threads run a simulation each: [`seeds()`] uses all CPUs. `SIM_TRACE=1` prints every step.
//!
//! What is not simulated: threads (a node has one core and no control thread beside it, which is turned
//! with the core), the time that code takes (a turn takes 1 to 3 µs), and full descriptors or memory of
//! the host. The streams between nodes keep their order, as those of TCP and of reliable queue pairs do.

mod clock;
mod dice;
mod faults;
mod host;
mod net;
mod node;
mod plan;
mod seeds;
mod trace;
mod wire;
mod world;

pub use clock::{Sleep, now, sleep};
pub use faults::{FaultCounts, Faults};
pub use node::Node;
pub use seeds::{Seeds, seeds};
pub use trace::TraceSum;
pub use world::Sim;

pub use crate::verbs::soft::Verb;
