//! `kv load` and `kv verify`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;

use crate::cli::TransferArgs;
use crate::failure::{Exit, Failure, out};
use crate::files::Stamp;
use crate::kv::{KvClient, StatsRequest};
use crate::ops;
use crate::text::grouped;
use crate::transfer::entry::{Entry, Fate, Sums};
use crate::transfer::journal::Journal;
use crate::transfer::meter::Meter;
use crate::transfer::told::{Told, skipped};
use crate::transfer::walk::{self, Found};
use crate::transfer::window::Window;
use crate::transfer::{Session, load as loading, verify as verifying};

/// Which of the two commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Load,
    Verify,
}

/// `kv load`
pub(crate) fn load(args: &TransferArgs) -> Result<Exit, Failure> {
    run(args, Work::Load)
}

/// `kv verify`
pub(crate) fn verify(args: &TransferArgs) -> Result<Exit, Failure> {
    run(args, Work::Verify)
}

fn run(args: &TransferArgs, work: Work) -> Result<Exit, Failure> {
    let mut found = walk::find(args.dir.as_deref())?;
    if let Some(journal) = &args.resume {
        leave_out(&mut found, journal);
    }
    let mut entries: Vec<Entry> =
        std::mem::take(&mut found.names).into_iter().map(Entry::new).collect();
    let mut meter = Meter::new()?;
    let before = rpc_core::block_on(drive(args, work, &found, &mut entries, &mut meter))?;
    let mut told = Told::default();
    told.files(&entries, &found);
    out(summary(args, work, &found, &meter, before).as_bytes())?;
    Ok(told.end())
}

/// Does the work; how many files the journal says were through before.
async fn drive(
    args: &TransferArgs,
    work: Work,
    found: &Found,
    entries: &mut [Entry],
    meter: &mut Meter,
) -> Result<u64, Failure> {
    let channel = ops::connect(&args.server).await?;
    let session = Session {
        root: &found.root,
        client: KvClient::new(channel.clone()),
        channel,
        window: Window::new(usize::from(args.window.calls), args.window.bytes),
        sums: Sums::default(),
    };
    let mut journal = None;
    if let Some(path) = &args.resume {
        let store = session.client.stats(StatsRequest {}).await?.into_inner().store;
        let id = store.unwrap_or_default().id;
        journal = Some(Journal::open(path, work.name(), &found.root, &id)?);
    }
    let mut which = Vec::with_capacity(entries.len());
    let mut before = 0;
    for (index, entry) in entries.iter_mut().enumerate() {
        let stamp = Stamp::at(&found.root.join(OsStr::from_bytes(&entry.name)));
        match (stamp, &journal) {
            (Ok(stamp), Some(journal)) if journal.has(&entry.name, &stamp) => {
                entry.end(Fate::Verified);
                before += 1;
                continue;
            }
            (Ok(stamp), _) if work == Work::Verify => {
                entry.begin(stamp);
                entry.end(Fate::Loaded); // by whoever did
            }
            (Err(error), _) => entry.end(Fate::Unreadable(error.to_string())),
            (Ok(_), _) => {}
        }
        which.push(index);
    }
    meter.start(work.name(), session.bytes(entries, &which));
    match work {
        Work::Load => load_twice(&session, entries, which, meter, &mut journal).await,
        Work::Verify => {
            verifying::verify(&session, entries, &which, meter, &mut journal).await;
        }
    }
    meter.stop();
    journal.map_or(Ok(()), Journal::close)?;
    Ok(before)
}

/// Loads files, and once more those that changed meanwhile.
async fn load_twice(
    session: &Session<'_>,
    entries: &mut [Entry],
    mut which: Vec<usize>,
    meter: &mut Meter,
    journal: &mut Option<Journal>,
) {
    loading::load(session, entries, &which, meter, journal).await;
    which.retain(|index| entries[*index].fate == Fate::Changed);
    for index in &which {
        entries[*index].fate = Fate::Waiting;
    }
    loading::load(session, entries, &which, meter, journal).await;
    for entry in entries.iter_mut() {
        if entry.fate == Fate::Loaded {
            entry.end(Fate::Verified); // nothing more is to be done with it
        }
    }
}

/// A journal in the folder itself is not one of its files.
fn leave_out(found: &mut Found, journal: &Path) {
    let parent = journal.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(parent) = fs::canonicalize(parent.unwrap_or_else(|| Path::new("."))) else { return };
    let Some(name) = journal.file_name() else { return };
    if let Ok(inside) = parent.join(name).strip_prefix(&found.root) {
        let inside = inside.as_os_str().as_bytes();
        found.names.retain(|name| name != inside);
    }
}

fn summary(args: &TransferArgs, work: Work, found: &Found, meter: &Meter, before: u64) -> String {
    let seconds = meter.elapsed.as_secs_f64();
    if args.json {
        let object = json!({
            "files": meter.files,
            "files_before": before,
            "bytes": meter.bytes,
            "calls": meter.calls,
            "repeats": meter.repeats,
            "seconds": seconds,
        });
        return format!("{object}\n");
    }
    let mut text = format!(
        "{} {} files, {} bytes in {seconds:.2} s, {:.1} MB/s; {}",
        work.done(),
        grouped(meter.files),
        grouped(meter.bytes),
        meter.megabytes_per_second(),
        skipped(found),
    );
    if before > 0 {
        text.push_str(&format!("; {} files were {} before", grouped(before), work.done()));
    }
    text + "\n"
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Verify => "verify",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Load => "loaded",
            Self::Verify => "verified",
        }
    }
}
