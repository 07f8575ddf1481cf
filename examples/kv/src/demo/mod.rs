//! `kv demo`: a server in a process of its own, a folder into it and out of it, every byte compared.

mod levels;
mod report;
mod server;

use std::thread;
use std::time::{Duration, Instant};

use rpc_core::{Channel, Runtime};

use crate::cli::{DemoArgs, WaitArgs};
use crate::demo::levels::{Both, Levels, Traffic};
use crate::demo::report::{Ends, Report};
use crate::demo::server::ServerProcess;
use crate::failure::{Exit, Failure, err, out};
use crate::proto::{KvClient, StatsRequest, StatsResponse};
use crate::store::Usage;
use crate::transfer::entry::{Entry, Fate, Sums};
use crate::transfer::meter::Meter;
use crate::transfer::walk::{self, Found, WithoutGit};
use crate::transfer::window::Window;
use crate::transfer::{Session, load, verify};
use crate::{ops, stats};

/// How long memory, leases and credits may take to come back after the last call. Both ends need one
/// exchange for it, which takes microseconds; what is not back after this does not come back.
const SETTLE_SECONDS: u64 = 5;

/// How often that is looked at.
const SETTLE_INTERVAL: Duration = Duration::from_millis(10);

/// `kv demo`
pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let mut found = walk::find(args.dir.as_deref(), WithoutGit::Walk)?;
    let own = match &args.server {
        Some(_) => None,
        None => Some(ServerProcess::start(&args.listen, &args.runtime)?),
    };
    let addr = own.as_ref().map(ServerProcess::addr).or(args.server.as_deref()).unwrap_or_default();
    let runtime = crate::serve::runtime(&args.runtime)?;
    err(format_args!(
        "{} files of {} ({}); the server is {} at {addr}\n",
        found.names.len(),
        found.root.display(),
        found.origin,
        own.as_ref()
            .map_or_else(|| "one that ran already".into(), |own| format!("process {}", own.id())),
    ));
    let names = std::mem::take(&mut found.names);
    let mut entries: Vec<Entry> = names.into_iter().map(Entry::new).collect();
    let work = drive(&runtime, addr, &found, &mut entries, args);
    let done = rpc_core::block_on(work);
    let stopped = own.map_or(Ok(()), ServerProcess::stop);
    let report = done?;
    out(report.table(&found).as_bytes())?;
    let exit = report.problems(&entries, &found);
    stopped?;
    if exit == Exit::Done {
        let files = crate::text::grouped(entries.len() as u64);
        out(format!("{files} files came back, every byte the same\n").as_bytes())?;
    }
    Ok(exit)
}

/// Loads and reads back in two rounds: the second for files that changed meanwhile, once more.
async fn drive(
    runtime: &Runtime,
    addr: &str,
    found: &Found,
    entries: &mut [Entry],
    args: &DemoArgs,
) -> Result<Report, Failure> {
    let channel = connect(runtime, addr, args.wait).await?;
    err(format_args!("carried by {}\n", channel.path()));
    let session = Session {
        root: &found.root,
        client: KvClient::new(channel.clone()),
        channel,
        window: Window::new(usize::from(args.window.calls), args.window.bytes),
        sums: Sums::default(),
    };
    let mut before = both(&session, runtime).await?;
    // Those of a server of our own are all ours.
    let own = args.server.is_some().then(|| Levels::of(&before.client).connections);
    let mut report = Report {
        put: Meter::new()?,
        get: Meter::new()?,
        put_traffic: Traffic::default(),
        get_traffic: Traffic::default(),
        retried: 0,
        server: Ends::begin(Levels::of(&before.server)).shared(own),
        client: Ends::begin(Levels::of(&before.client)),
        server_peak: 0,
    };
    let mut which: Vec<usize> = (0..entries.len()).collect();
    for round in 0..2 {
        before = report.round(&session, runtime, entries, &which, before).await?;
        which.retain(|index| entries[*index].fate == Fate::Changed);
        if round == 0 {
            report.retried = which.len();
            for index in &which {
                entries[*index].fate = Fate::Waiting;
            }
        }
        if which.is_empty() {
            break;
        }
    }
    // A busy connection is lent receives, and has them until it ends. So it ends here, and what is
    // left is looked at over a new one.
    drop(session);
    let client = KvClient::new(connect(runtime, addr, args.wait).await?);
    report.settle(&client, runtime).await?;
    Ok(report)
}

async fn connect(runtime: &Runtime, addr: &str, wait: WaitArgs) -> Result<Channel, Failure> {
    Ok(ops::settings(addr, wait).runtime(runtime).connect().await?)
}

async fn server_stats(client: &KvClient) -> Result<StatsResponse, Failure> {
    Ok(client.stats(StatsRequest {}).await?.into_inner())
}

/// The statistics of both ends now.
async fn both(session: &Session<'_>, runtime: &Runtime) -> Result<Both, Failure> {
    let server = server_stats(&session.client).await?;
    Ok(Both { server, client: stats::snapshot(runtime, Usage::default()) })
}

impl Report {
    /// Loads some files and reads them back; takes and returns the statistics around it.
    async fn round(
        &mut self,
        session: &Session<'_>,
        runtime: &Runtime,
        entries: &mut [Entry],
        which: &[usize],
        before: Both,
    ) -> Result<Both, Failure> {
        self.put.start("loading", session.bytes(entries, which));
        load::load(session, entries, which, &mut self.put, &mut None).await;
        self.put.stop();
        let loaded = both(session, runtime).await?;
        self.put_traffic.add(Traffic::to_server(&before, &loaded));
        let bytes = which.iter().map(|index| entries[*index].len).sum();
        self.get.start("reading", bytes);
        verify::verify(session, entries, which, &mut self.get, &mut None).await;
        self.get.stop();
        let verified = both(session, runtime).await?;
        self.get_traffic.add(Traffic::from_server(&loaded, &verified));
        Ok(verified)
    }

    /// Waits until both ends are at their baseline again, within a bound, and takes the levels.
    async fn settle(&mut self, client: &KvClient, runtime: &Runtime) -> Result<(), Failure> {
        let until = Instant::now() + Duration::from_secs(SETTLE_SECONDS);
        loop {
            let stats = server_stats(client).await?;
            self.server_peak = stats.memory.unwrap_or_default().peak;
            self.server.end = Levels::of(&stats);
            drop(stats);
            self.client.end = Levels::here(runtime);
            if (self.server.is_restored() && self.client.is_restored()) || Instant::now() >= until {
                return Ok(());
            }
            thread::sleep(SETTLE_INTERVAL); // this thread is our own; the cores go on
        }
    }
}
