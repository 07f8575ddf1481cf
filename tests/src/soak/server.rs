use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rpc_core::{Server, block_on};

use super::args::Args;
use super::log::Log;
use super::service::{Checking, SoakServer};
use super::{runtime, say};
use crate::quiescence::left_of;

/// What a server says before its address, once it listens.
pub(super) const LISTENING: &str = "listening on ";

/// What a server says that holds nothing of any client.
pub(super) const REST: &str = "rest";

/// `soak serve`
pub(super) fn run(args: &Args) -> Result<(), String> {
    let runtime = runtime(args)?;
    let log =
        args.log.as_deref().map(Log::append).transpose().map_err(|error| error.to_string())?;
    let checking = Arc::new(Checking { log, ..Checking::default() });
    let service = SoakServer::from_arc(Arc::clone(&checking));
    let server = Server::builder().runtime(&runtime).add_service(service);
    let bound = block_on(server.bind(&args.address)).map_err(|status| status.to_string())?;
    say(&format!("{LISTENING}{}", bound.local_addr()));
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        let left = left_of(&runtime.stats());
        say(&if left.is_empty() { REST.to_owned() } else { left.join("; ") });
    }
    let wrong = checking.wrong.load(Ordering::Relaxed);
    let right = checking.right.load(Ordering::Relaxed);
    say(&format!("served right={right} wrong={wrong}"));
    let done = block_on(bound.serve_with_shutdown(std::future::ready(())));
    done.map_err(|status| format!("it does not end in order: {status}"))?;
    if wrong > 0 { Err(format!("{wrong} requests came with wrong bytes")) } else { Ok(()) }
}
