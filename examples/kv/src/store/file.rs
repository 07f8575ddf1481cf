use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::{Database, DatabaseError, ReadableDatabase, TableHandle};
use rpc_core::bytes::Bytes;
use rustix::fs::FlockOperation;

use super::format::{ENTRIES, FORMAT, FORMAT_MIN, META, PIECES};
use super::random_id;
use super::writer::Totals;
use crate::failure::Failure;
use crate::limits::DISK_CACHE_BYTES;

/// The file in the folder that `--data` names.
pub(super) const FILE: &str = "kv.redb";

/// What it is called until it is whole.
const UNFINISHED: &str = "kv.redb.new";

/// A store's file, open.
pub(super) struct Opened {
    pub(super) database: Database,
    /// The store's id.
    pub(super) id: Bytes,
    /// The format that the file was made with.
    pub(super) first: u8,
    pub(super) totals: Totals,
}

/// What a look at a file's tables says.
enum Kind {
    Ours {
        id: Bytes,
        first: u8,
        totals: Totals,
    },
    /// No table: a file of redb in which nothing was ever stored.
    Empty,
    OtherFormat,
    Foreign,
}

/// Opens the file of a folder, and makes both if need be. What was made is on the disk when this returns.
pub(super) fn open(folder: &Path) -> Result<Opened, Failure> {
    let named = |error: io::Error| {
        Failure::because(format!("the data folder {} cannot be used", folder.display()), error)
    };
    if folder.exists() && !folder.is_dir() {
        let folder = folder.display();
        return Err(Failure::new(format!(
            "the data folder {folder} cannot be used: it is no folder; name one, which is made if need be"
        )));
    }
    make_folder(folder).map_err(named)?;
    let path = folder.join(FILE);
    let folder = File::open(folder).map_err(named)?;
    if is_missing(&path).map_err(named)? {
        if path.exists() {
            tracing::warn!(file = %path.display(), "the data file was empty: a new store is made in its place");
        }
        make_file(&folder, &path)?;
    }
    folder.sync_all().map_err(named)?;
    let database = open_file(&path)?;
    let refused = |what: &str| Failure::new(format!("{} {what}", path.display()));
    match look(&database).map_err(|error| unusable(&path, error))? {
        Kind::Ours { id, first, totals } => Ok(Opened { database, id, first, totals }),
        Kind::Empty => {
            let id = prepare(&database).map_err(|error| unusable(&path, error))?;
            Ok(Opened { database, id, first: FORMAT, totals: Totals::default() })
        }
        Kind::OtherFormat => Err(refused(
            "was written by another version of kv, whose format this one does not know; it was left as it is",
        )),
        Kind::Foreign => Err(refused(
            "was written by another program; name another folder, it was left as it is",
        )),
    }
}

/// Makes the folder and those above it. Each name is on the disk before anything in it is called durable,
/// also where an earlier start made the folder and was killed.
fn make_folder(folder: &Path) -> io::Result<()> {
    let existed = folder.is_dir();
    let missing = folder.ancestors().take_while(|above| !above.is_dir()).count();
    fs::create_dir_all(folder)?;
    for made in folder.ancestors().take(missing.max(1)) {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
        match File::open(parent.unwrap_or_else(|| Path::new("."))) {
            Ok(parent) => parent.sync_all()?,
            // Whoever made it for us may have kept us from reading what is above.
            Err(error) if existed && error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether there is no file, or one that somebody made and never wrote to.
fn is_missing(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_file() && found.len() == 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Makes an empty store under another name and gives it its own when it is whole: a start that is killed
/// or finds the disk full leaves nothing that the next one could take for a damaged file.
fn make_file(folder: &File, path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| unusable(path, error.into());
    // Two first starts at once would work on one file. The lock goes with the handle.
    if let Err(rustix::io::Errno::WOULDBLOCK) =
        rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive)
    {
        return Err(in_use(path));
    }
    if !is_missing(path).map_err(failed)? {
        return Ok(()); // another start was faster
    }
    let unfinished = path.with_file_name(UNFINISHED);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let made = Database::create(&unfinished).map_err(redb::Error::from);
    made.and_then(|database| prepare(&database)).map_err(|error| unusable(path, error))?;
    File::open(&unfinished).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)
}

fn open_file(path: &Path) -> Result<Database, Failure> {
    let mut builder = Database::builder();
    let shown = path.display().to_string();
    builder.set_cache_size(DISK_CACHE_BYTES).set_repair_callback(move |repair| {
        let percent = (repair.progress() * 100.0) as u32;
        tracing::warn!(file = %shown, percent, "the last server was not stopped in order: the file is looked through");
    });
    // redb may panic on a file that was damaged after an end in order.
    let Ok(opened) = catch_unwind(AssertUnwindSafe(|| builder.open(path))) else {
        return Err(Failure::new(format!(
            "the data file {} is damaged: opening it ended in a panic; take it from a copy",
            path.display(),
        )));
    };
    opened.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => in_use(path),
        error => unusable(path, error.into()),
    })
}

fn in_use(path: &Path) -> Failure {
    Failure::new(format!(
        "{} is in use: another server has this --data folder; stop that one, or name another folder",
        path.display(),
    ))
}

fn unusable(path: &Path, error: redb::Error) -> Failure {
    Failure::because(format!("the data file {} cannot be used", path.display()), error)
}

/// What a file is. Nothing is written: it may not be ours.
fn look(database: &Database) -> Result<Kind, redb::Error> {
    let transaction = database.begin_read()?;
    let tables: Vec<_> = transaction.list_tables()?.map(|table| table.name().to_owned()).collect();
    if !tables.iter().any(|name| name == META.name()) {
        let others = !tables.is_empty() || transaction.list_multimap_tables()?.next().is_some();
        return Ok(if others { Kind::Foreign } else { Kind::Empty });
    }
    let Ok(meta) = transaction.open_table(META) else { return Ok(Kind::Foreign) };
    let format = meta.get("format")?.map(|format| format.value().to_vec());
    let id = meta.get("id")?.map(|id| Bytes::copy_from_slice(id.value()));
    let first = meta.get("first")?.and_then(|first| first.value().first().copied());
    Ok(match (format.as_deref(), id) {
        (Some(&[format @ FORMAT_MIN..=FORMAT]), Some(id)) => {
            // Format 1 did not say.
            let first = first.unwrap_or(FORMAT_MIN).min(format);
            Kind::Ours { id, first, totals: Totals::load(&meta)? }
        }
        (Some(_), _) => Kind::OtherFormat,
        (None, _) => Kind::Foreign,
    })
}

/// Makes the tables, and an id.
pub(super) fn prepare(database: &Database) -> Result<Bytes, redb::Error> {
    let id = random_id().map_err(|error| io::Error::other(error.to_string()))?;
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert("format", &[FORMAT][..])?;
        meta.insert("first", &[FORMAT][..])?;
        meta.insert("id", &id[..])?;
        transaction.open_table(ENTRIES)?;
        transaction.open_table(PIECES)?;
    }
    transaction.commit()?;
    Ok(id)
}
