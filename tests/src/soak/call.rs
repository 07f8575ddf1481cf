use std::time::Instant;

use super::args::Args;
use super::service::SoakClient;
use super::{connect, load, runtime, say};

/// `soak call`
pub(super) fn run(args: &Args) -> Result<(), String> {
    let runtime = runtime(args)?;
    let client = SoakClient::new(connect(&runtime, args)?);
    let began = Instant::now();
    let tally = load::run(&client, args, 0, args.calls);
    say(&format!("{tally} ms={}", began.elapsed().as_millis()));
    tally.all_right()
}
