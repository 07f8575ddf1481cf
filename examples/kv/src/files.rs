use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rpc_core::bytes::Bytes;
use rpc_core::{Channel, Status};
use rustix::fs::{Mode, OFlags};

use crate::limits::{PAYLOAD_BYTES_MIN, VALUE_BYTES_MAX};

/// What tells that a file is still the one that was read, and unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of an open file.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|meta| Self::from_meta(&meta))
    }

    /// The stamp of what lies at a path, which is not opened.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        path.symlink_metadata().map(|meta| Self::from_meta(&meta))
    }

    fn from_meta(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// The file's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

/// As the journal of a load keeps it.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, inode, len, modified, changed } = self;
        write!(
            f,
            "{device} {inode} {len} {} {} {} {}",
            modified.0, modified.1, changed.0, changed.1
        )
    }
}

/// Opens a regular file to read. A symbolic link is not followed and a FIFO not waited for, so a path
/// that has become one since it was found is an error, not a hang.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Stamp)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let stamp = Stamp::of(&file)?;
    Ok((file, stamp))
}

/// Why a value could not be read from a file.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The file could not be read.
    Io(io::Error),
    /// The file ends before the range does: it was longer when it was opened.
    Short,
    /// No payload memory for it now.
    Memory(Status),
}

/// A range of a file as a value: in payload memory, from where it is sent without a copy, if it is long.
pub(crate) fn read_value(
    channel: &Channel,
    file: &File,
    offset: u64,
    len: usize,
) -> Result<Bytes, ReadError> {
    if len < PAYLOAD_BYTES_MIN {
        let mut value = vec![0; len];
        read_range(file, offset, &mut value)?;
        return Ok(value.into());
    }
    let mut value = channel.alloc(len).map_err(ReadError::Memory)?;
    read_range(file, offset, &mut value)?;
    Ok(value.freeze())
}

fn read_range(file: &File, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
    file.read_exact_at(into, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Short,
        _ => ReadError::Io(error),
    })
}

/// Writes a file whole or not at all: what is there already stays until the new bytes are all written, beside
/// it, in a file that begins with `.kv-` and that only its owner may read.
///
/// A link is followed, and what a file may be read and written by stays as it was; its owner becomes the caller.
/// What is no regular file (a pipe, a device) is written to as it is.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let permissions = match path.metadata() {
        Ok(meta) if !meta.is_file() => return write_into(path, bytes),
        Ok(meta) => meta.permissions(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return write_new(path, bytes),
        Err(error) => return Err(error),
    };
    let target = fs::canonicalize(path)?;
    let folder = target.parent().unwrap_or_else(|| Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".kv-").permissions(Permissions::from_mode(0o600));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    // Never its setuid: the bytes are others' now.
    file.as_file().set_permissions(Permissions::from_mode(permissions.mode() & 0o777))?;
    file.persist(&target).map(drop).map_err(|error| error.error)
}

/// Makes a file, and takes it away again if not all can be written.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(bytes).inspect_err(|_| _ = fs::remove_file(path))
}

/// Writes to what is there, and tells if its reader has gone before it had all.
fn write_into(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

/// All that a reader has, `None` if that is more than a value may have.
pub(crate) fn read_bounded(from: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut value = Vec::new();
    from.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok((value.len() <= VALUE_BYTES_MAX).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_folders_and_fifos_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), b"x").unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status();
        assert!(fifo.unwrap().success());
        assert_eq!(open_regular(&dir.path().join("file")).unwrap().1.len(), 1);
        for refused in ["link", "fifo", ".", "absent"] {
            assert!(open_regular(&dir.path().join(refused)).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        replace(&path, b"first").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(replace(&dir.path().join("absent/file"), b"x").is_err());
        assert!(replace(Path::new("/dev/full"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2); // nothing else is left there
    }

    #[test]
    fn a_write_changes_the_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"x").unwrap();
        let (file, before) = open_regular(&path).unwrap();
        fs::write(&path, b"longer").unwrap();
        assert_ne!(Stamp::of(&file).unwrap(), before);
    }

    #[test]
    fn a_reader_without_end_is_cut_at_the_longest_value() {
        assert_eq!(read_bounded(&b"abc"[..]).unwrap().as_deref(), Some(&b"abc"[..]));
        assert!(read_bounded(io::repeat(7)).unwrap().is_none());
    }
}
