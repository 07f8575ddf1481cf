use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use rpc_core::{Channel, Execution, Request, Runtime, Status, block_on};

use super::child::Process;
use super::service::CrowdClient;
use super::{judge, row, spread};
use crate::compare::machine;
use crate::echo::Blob;
use crate::failure::Failure;

/// All clients are back within this.
const BACK_WITHIN: f64 = 10.0;
/// Attempts of one client for each restart, at most: the time between two grows, so ten are half a minute.
const ATTEMPTS_MAX: f64 = 10.0;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Clients, a connection each.
    #[arg(long, default_value_t = 200)]
    clients: usize,
    /// How often the server is killed.
    #[arg(long, default_value_t = 10)]
    restarts: usize,
    /// How long it is away each time, in milliseconds.
    #[arg(long, default_value_t = 500)]
    away: u64,
}

/// A server that is killed and started again under many clients.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (mut server, address) = Process::server(2, "soft://127.0.0.1:0")?;
    let runtime = Runtime::builder().spin(Duration::ZERO).build()?;
    let connect = |_| block_on(Channel::builder(&address).runtime(&runtime).connect());
    let clients = (0..options.clients.max(1)).map(connect).collect::<Result<Vec<_>, _>>()?;
    let clients: Vec<CrowdClient> = clients.into_iter().map(CrowdClient::new).collect();
    let (mut slowest, mut attempts) = (vec![], vec![]);
    for restart in 0..options.restarts.max(1) {
        let before = opened()?;
        server.kill()?;
        let mut calls: FuturesUnordered<_> = clients.iter().map(until_answered).collect();
        let again = std::thread::spawn({
            let (address, away) = (address.clone(), Duration::from_millis(options.away));
            move || {
                std::thread::sleep(away); // how long the server is away is what is asked for
                Process::server(2, &address).map(|(server, _)| (server, Instant::now()))
            }
        });
        let last = block_on(async {
            while let Some(ended) = calls.next().await {
                ended?;
            }
            Ok::<_, Status>(Instant::now())
        })?;
        let returned = again.join().map_err(|_| Failure::new("starting the server panicked"))?;
        let (back, since) = returned?;
        server = back;
        slowest.push(last.saturating_duration_since(since).as_secs_f64());
        attempts.push((opened()? - before) as f64 / clients.len() as f64);
        eprintln!("restart {} of {}, load {}", restart + 1, options.restarts, machine::load());
    }
    println!("{:<44} {:>10}  [least .. most]", "", "median");
    row("the last client is back after, s", &slowest, 2);
    row("attempts of a client", &attempts, 1);
    judge(&[
        (spread(slowest).2 <= BACK_WITHIN, "a client was back only after more than 10 s"),
        (spread(attempts).2 <= ATTEMPTS_MAX, "clients made more than 10 attempts"),
    ])
}

/// Calls until the server answers. A call that the server may have had when it was killed ends then.
async fn until_answered(client: &CrowdClient) -> Result<(), Status> {
    loop {
        let mut request = Request::new(Blob { data: vec![7; 64].into() });
        request.set_wait_for_ready(true);
        request.set_timeout(Duration::from_secs(60));
        match client.fast(request).await {
            Err(status) if status.execution() == Execution::MaybeExecuted => {}
            ended => return ended.map(drop),
        }
    }
}

/// TCP connections that processes of this network namespace have begun so far.
fn opened() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/net/snmp")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let opened =
        pairs.find(|(name, _)| *name == "ActiveOpens").and_then(|(_, value)| value.parse().ok());
    opened.ok_or_else(|| Failure::new("the kernel does not count connections"))
}
