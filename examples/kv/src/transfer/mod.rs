//! Files into a server and out of it: what `kv demo`, `kv load` and `kv verify` have in common.

pub(crate) mod command;
pub(crate) mod entry;
pub(crate) mod journal;
pub(crate) mod load;
pub(crate) mod meter;
mod parts;
pub(crate) mod strays;
pub(crate) mod told;
pub(crate) mod verify;
pub(crate) mod walk;
pub(crate) mod window;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rpc_core::{Channel, Code, Status};

use crate::proto::KvClient;
use crate::transfer::entry::{Entry, Fate, Sums};
use crate::transfer::journal::Journal;
use crate::transfer::window::{Ended, Window};

/// Why files were left when the server was gone.
const GONE: &str = "the server could not be reached any more";

/// Why files were left when it answered nothing.
const SILENT: &str = "the server answered none of the calls before them within --timeout";

/// What loading and reading back have in common.
pub(crate) struct Session<'a> {
    /// The folder that names are relative to.
    pub(crate) root: &'a Path,
    pub(crate) channel: Channel,
    pub(crate) client: KvClient,
    /// How much may be in flight.
    pub(crate) window: Window,
    /// Hashes values.
    pub(crate) sums: Sums,
}

impl Session<'_> {
    /// The bytes that these files have now, for a progress bar; it need not be exact.
    pub(crate) fn bytes(&self, entries: &[Entry], which: &[usize]) -> u64 {
        let len = |index: &usize| {
            let path = self.root.join(OsStr::from_bytes(&entries[*index].name));
            path.symlink_metadata().map_or(0, |meta| meta.len())
        };
        which.iter().map(len).fold(0, u64::saturating_add)
    }
}

/// Whether there is no server any more.
fn is_gone(status: &Status) -> bool {
    status.code() == Code::Unavailable
}

/// Whether a call had no answer in its time.
fn is_late(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded
}

/// How a call ended, as the window is to know it.
fn ended<T>(result: &Result<T, Status>, refused: bool) -> Ended {
    match result {
        Err(_) if refused => Ended::Refused,
        Err(status) if is_late(status) => Ended::Late,
        _ => Ended::Answered,
    }
}

/// A part of a file went well, and has this version. If that was the last one it ends so, and the journal, if there is one,
/// has it.
fn part_done(entry: &mut Entry, fate: Fate, version: u64, journal: &mut Option<Journal>) {
    if !entry.part_done(version) {
        return;
    }
    entry.end(fate);
    if let (Some(journal), Some(stamp)) = (journal, &entry.stamp) {
        journal.note(&entry.name, stamp, entry.version);
    }
}
