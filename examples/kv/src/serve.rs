use std::io::{self, Read};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::{Either, FutureExt, select};
use rpc_core::{Runtime, Server};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{RuntimeArgs, ServeArgs};
use crate::failure::{Exit, Failure, err, out};
use crate::limits::{ENTRY_BYTES, STOP_SECONDS};
use crate::proto::KvServer;
use crate::service::Service;
use crate::stop::Stop;
use crate::store::Store;
use crate::watch::Watch;

/// What `kv serve` prints before its address, once it listens. Programs read this line.
pub(crate) const LISTENING: &str = "listening on ";

/// The store's bound where the machine does not tell how much memory it has.
const STORE_BYTES_FALLBACK: u64 = 1 << 30;

/// `kv serve`
pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let runtime = runtime(&args.runtime)?;
    let store = Arc::new(match &args.data {
        // On a disk, the disk is the bound.
        Some(folder) => Store::in_folder(folder, args.store.unwrap_or(u64::MAX))?,
        None => Store::in_memory(args.store.unwrap_or_else(store_bytes_default))?,
    });
    warn_if_full(&store, args.store);
    let stop = Stop::default();
    stop_on_signal(stop.clone())?;
    if args.until_stdin_closes {
        stop_with_parent(stop.clone())?;
    }
    let core_ended = Stop::default();
    let _watch = Watch::start(&runtime, core_ended.clone())?;
    rpc_core::block_on(async {
        let bound = Server::builder()
            .runtime(&runtime)
            .add_service(KvServer::new(Service::new(Arc::clone(&store), runtime.clone())))
            .bind(&args.addr)
            .await?;
        let scheme = args.addr.split_once("://").map_or("soft", |(scheme, _)| scheme);
        out(format!("{LISTENING}{scheme}://{}\n", bound.local_addr()).as_bytes())?;
        let failed = store.failed();
        let mut failure = None;
        let end = async {
            failure = until_asked(&stop, &failed, &core_ended).await;
            ask(&stop);
        };
        bound.serve_with_shutdown(end).await?;
        let late = failed.is_asked().then(disk_failed);
        failure.or(late).map_or(Ok(Exit::Done), Err)
    })
}

/// A store that was made with more room than it has now takes no put until keys are deleted.
fn warn_if_full(store: &Store, bytes_max: Option<u64>) {
    let usage = store.usage();
    // As the store counts them, but for its keys' own lengths.
    let has = usage.value_bytes.saturating_add(usage.keys.saturating_mul(ENTRY_BYTES));
    if let Some(bytes_max) = bytes_max.filter(|bytes_max| has >= *bytes_max) {
        tracing::warn!(
            has,
            bytes_max,
            "the store has more than --store allows: it takes no puts until keys are deleted"
        );
    }
}

fn disk_failed() -> Failure {
    Failure::new(
        "the disk of --data failed, see above, and nothing can be read or written until the server is started again: ending",
    )
}

/// Ends when somebody asks to stop; with a failure when there is no use in going on.
async fn until_asked(stop: &Stop, failed: &Stop, core_ended: &Stop) -> Option<Failure> {
    let disk = failed.asked().map(|()| disk_failed());
    let core = core_ended.asked().map(|()| {
        Failure::new("a core has ended, see above, and its clients are served no more: ending")
    });
    match select(stop.asked(), select(disk, core)).await {
        Either::Left(_) => None,
        Either::Right((why, _)) => Some(why.factor_first().0),
    }
}

/// A runtime as the command line asks for it.
pub(crate) fn runtime(args: &RuntimeArgs) -> Result<Runtime, Failure> {
    let mut builder = Runtime::builder().cores(usize::from(args.cores));
    if let Some(bytes) = args.memory {
        builder = builder.budget_bytes(bytes);
    }
    if let Some(spin) = args.spin {
        builder = builder.spin(Duration::from_micros(u64::from(spin)));
    }
    Ok(builder.build()?)
}

/// The first SIGINT, SIGTERM or SIGHUP lets calls that run come to their end; the second ends the process.
fn stop_on_signal(stop: Stop) -> Result<(), Failure> {
    let failed = |error| Failure::because("signals cannot be caught in this process", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let wait = move || {
        let mut first = true;
        for signal in signals.forever() {
            if !std::mem::replace(&mut first, false) {
                std::process::exit(128 + signal); // as a shell calls a process that it ended
            }
            ask(&stop);
        }
    };
    let spawned = thread::Builder::new().name("kv-signal".into()).spawn(wait);
    spawned.map(drop).map_err(failed)
}

/// Stops when the process that holds the other end of standard input is gone, however it ended.
fn stop_with_parent(stop: Stop) -> Result<(), Failure> {
    let wait = move || {
        // Whatever comes is dropped; the end of it, or an error, is the sign.
        let mut dropped = [0; 256];
        loop {
            match io::stdin().read(&mut dropped) {
                Ok(0) => break,
                Ok(_) => {}
                // A signal came to this thread: it speaks for itself.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        ask(&stop);
    };
    let spawned = thread::Builder::new().name("kv-parent".into()).spawn(wait);
    spawned.map(drop).map_err(|error| Failure::because("no thread can be started", error))
}

/// Asks to stop, and sees to it that the process ends: in order, or after [`STOP_SECONDS`].
fn ask(stop: &Stop) {
    if !stop.ask() {
        return;
    }
    let late = || {
        // Not to wait for anything: this is the time limit itself.
        thread::sleep(Duration::from_secs(STOP_SECONDS));
        err(format_args!("error: calls still run after {STOP_SECONDS} s; ending without them\n"));
        std::process::exit(1);
    };
    // Without this thread a call that never ends would keep the process; a second signal still ends it.
    _ = thread::Builder::new().name("kv-stop".into()).spawn(late);
}

/// Half of the machine's memory: the rest is for messages on their way, and for everybody else.
fn store_bytes_default() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return STORE_BYTES_FALLBACK };
    memory_total(&text).map_or(STORE_BYTES_FALLBACK, |bytes| bytes / 2)
}

fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_go_on_says_why_and_one_that_is_asked_to_stop_does_not() {
        let until = |stop: &Stop, failed: &Stop, core: &Stop| {
            let why = until_asked(stop, failed, core).now_or_never();
            why.map(|why| why.map(|why| why.to_string()).unwrap_or_default())
        };
        let (stop, failed, core) = (Stop::default(), Stop::default(), Stop::default());
        assert_eq!(until(&stop, &failed, &core), None);
        core.ask();
        let told = until(&stop, &failed, &core).unwrap();
        assert!(told.contains("a core has ended"), "{told}");
        failed.ask();
        let disk = until(&stop, &failed, &core).unwrap();
        assert!(disk.contains("the disk of --data failed"), "{disk}");
        stop.ask();
        assert_eq!(until(&stop, &failed, &core).as_deref(), Some(""));
    }

    #[test]
    fn the_machines_memory_is_read_in_bytes() {
        assert_eq!(memory_total("MemFree: 1 kB\nMemTotal:  2048 kB\n"), Some(2 << 20));
        assert_eq!(memory_total("MemTotal: much\n"), None);
        assert_eq!(memory_total(""), None);
    }
}
