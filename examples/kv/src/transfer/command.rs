//! `kv load` and `kv verify`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::TransferArgs;
use crate::failure::{Exit, Failure, err, out, sentence};
use crate::files::Stamp;
use crate::ops;
use crate::proto::{KvClient, StatsRequest};
use crate::text::{counted, grouped, milliseconds, set_bytes, shown};
use crate::transfer::entry::{Entry, Fate, Sums};
use crate::transfer::journal::{Journal, StoreNow};
use crate::transfer::meter::Meter;
use crate::transfer::strays::{self, Stray};
use crate::transfer::told::{Kind, Told, skipped};
use crate::transfer::walk::{self, Found, WithoutGit};
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
    let mut found = walk::find(args.dir.as_deref(), WithoutGit::Refuse)?;
    if let Some(journal) = &args.resume {
        leave_out(&mut found, journal);
    }
    let mut entries: Vec<Entry> =
        std::mem::take(&mut found.names).into_iter().map(Entry::new).collect();
    let mut meter = Meter::new()?;
    let done = rpc_core::block_on(drive(args, work, &found, &mut entries, &mut meter))?;
    let mut told = Told::default();
    told.files(&entries, &found);
    done.tell_strays(&entries, work, &mut told);
    done.tell_replaced(args, &mut told);
    let lost = |entry: &Entry| matches!(entry.fate, Fate::NotSent(_) | Fate::Cut(_));
    if !done.replaced && entries.iter().any(lost) {
        go_on(args);
    }
    let text = if args.json {
        format!("{}\n", to_json(&found, &meter, &done, &told))
    } else {
        to_text(work, &found, &meter, &done, &told)
    };
    out(text.as_bytes())?;
    Ok(told.end())
}

/// What was done beside the files.
struct Done {
    /// How many files the journal says were through before.
    before: u64,
    /// What is left of earlier loads, or why that is not known.
    strays: Result<Vec<Stray>, String>,
    /// How many of them are deleted.
    deleted: u64,
    /// Whether another store answered at the end than at the beginning.
    replaced: bool,
}

/// Does the work.
async fn drive(
    args: &TransferArgs,
    work: Work,
    found: &Found,
    entries: &mut [Entry],
    meter: &mut Meter,
) -> Result<Done, Failure> {
    let channel = ops::connect(&args.server).await?;
    let session = Session {
        root: &found.root,
        client: KvClient::new(channel.clone()),
        channel,
        window: Window::new(usize::from(args.window.calls), args.window.bytes),
        sums: Sums::default(),
    };
    let stats = session.client.stats(StatsRequest {}).await?.into_inner();
    let store = stats.store.unwrap_or_default();
    let mut journal = None;
    if let Some(path) = &args.resume {
        let store = StoreNow { id: &store.id, version: store.version };
        journal = Some(Journal::open(path, work.name(), &found.root, store)?);
    }
    let mut which = Vec::with_capacity(entries.len());
    let mut done = Done { before: 0, strays: Ok(Vec::new()), deleted: 0, replaced: false };
    for (index, entry) in entries.iter_mut().enumerate() {
        let stamp = Stamp::at(&found.root.join(OsStr::from_bytes(&entry.name)));
        match (stamp, &journal) {
            (Ok(stamp), Some(journal)) if journal.has(&entry.name, &stamp) => {
                entry.begin(stamp);
                entry.end(Fate::Verified);
                done.before += 1;
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
    done.replaced = is_another(&session.client, &store.id).await;
    let end = if done.replaced { Journal::discard } else { Journal::close };
    journal.map_or(Ok(()), end)?;
    if !done.replaced && !entries.iter().any(|entry| matches!(entry.fate, Fate::NotSent(_))) {
        done.strays(&session, entries, work, stats.keys).await;
    }
    Ok(done)
}

impl Done {
    /// Looks for what earlier loads left in a store that had so many keys, and deletes it if this is a load.
    async fn strays(&mut self, session: &Session<'_>, entries: &[Entry], work: Work, keys: u64) {
        let strays = match strays::find(&session.client, entries, keys).await {
            Ok(strays) => strays,
            Err(status) => return self.strays = Err(sentence(&status)),
        };
        if work == Work::Load {
            match strays::delete(&session.client, &strays).await {
                Ok(deleted) => self.deleted = deleted,
                Err(status) => return self.strays = Err(sentence(&status)),
            }
        }
        self.strays = Ok(strays);
    }

    /// Tells that another store took the place of the one that this began with. A channel goes on with
    /// whoever answers at its address, and which file went where is known to nobody.
    fn tell_replaced(&self, args: &TransferArgs, told: &mut Told) {
        if self.replaced {
            told.always(format_args!(
                "failed: another store answers at {} than when this began, so its server was replaced meanwhile; run the same command again",
                args.server.addr,
            ));
        }
    }

    /// Tells of strays that are still there.
    fn tell_strays(&self, entries: &[Entry], work: Work, told: &mut Told) {
        match &self.strays {
            Err(why) => told.tell(
                Exit::Failed,
                format_args!("failed: looking for what earlier loads left: {why}"),
            ),
            Ok(strays) if work == Work::Verify => {
                for stray in strays {
                    let how =
                        "a key is stored that it had when it was longer or shorter; load it again";
                    told.file(Kind::Strays, &entries[stray.entry].name, how);
                }
            }
            Ok(_) => {}
        }
    }
}

/// Whether the store that answers now is known not to be this one.
async fn is_another(client: &KvClient, id: &[u8]) -> bool {
    let stats = client.stats(StatsRequest {}).await;
    stats.is_ok_and(|stats| stats.into_inner().store.unwrap_or_default().id != id)
}

/// Says how to do what is left.
fn go_on(args: &TransferArgs) {
    let how = match &args.resume {
        Some(_) => "the same command goes on where this one ended",
        None => "a command with --resume F can be run again, and goes on where it ended",
    };
    err(format_args!("{how}\n"));
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
    if !entries.iter().any(|entry| matches!(entry.fate, Fate::NotSent(_))) {
        for index in &which {
            entries[*index].fate = Fate::Waiting;
        }
        loading::load(session, entries, &which, meter, journal).await;
    }
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

/// One object for a script.
fn to_json(found: &Found, meter: &Meter, done: &Done, told: &Told) -> Value {
    let mut object = json!({
        "files": meter.files,
        "files_before": done.before,
        "bytes": meter.bytes,
        "calls": meter.calls,
        "repeats": meter.repeats,
        "seconds": milliseconds(meter.elapsed),
        "skipped": found.skipped.sum(),
        "deleted": done.deleted,
        "store_replaced": done.replaced,
        "choice": found.origin,
    });
    set_bytes(&mut object, "folder", found.root.as_os_str().as_bytes());
    told.to_json(&mut object);
    object
}

/// One sentence for people.
fn to_text(work: Work, found: &Found, meter: &Meter, done: &Done, told: &Told) -> String {
    let mut text = format!(
        "{} {}, {} bytes in {:.2} s, {:.1} MB/s, of {} ({}); {}",
        work.done(),
        counted(meter.files, "file"),
        grouped(meter.bytes),
        meter.elapsed.as_secs_f64(),
        meter.megabytes_per_second(),
        shown(found.root.as_os_str().as_bytes()),
        found.origin,
        skipped(found),
    );
    let problems = told.counts();
    if !problems.is_empty() {
        text.push_str(&format!("; problems: {problems}"));
    }
    if done.before > 0 {
        text.push_str(&format!("; {} files were {} before", grouped(done.before), work.done()));
    }
    if done.deleted > 0 {
        text.push_str(&format!("; {} keys of earlier loads were deleted", grouped(done.deleted)));
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
