use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file::FILE;

/// Where a store's file lies: how much its disk has for it, and whether it is still there.
pub(super) enum Place {
    /// A file, by its path and what it is: device and inode.
    File {
        /// As it was opened.
        path: PathBuf,
        /// Device and inode.
        is: (u64, u64),
    },
    /// Nowhere, with as much room at all times.
    #[cfg(test)]
    Fixed(u64),
}

impl Place {
    /// That of the file in a folder, which is open.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let is = identity(&fs::metadata(&path)?);
        Ok(Self::File { path, is })
    }

    /// Bytes that may still be written: what the disk has free, and what the file has, whose entries count
    /// `held` bytes. A disk that does not tell has room until it refuses.
    pub(super) fn free(&self, held: u64) -> u64 {
        let path = match self {
            Self::File { path, .. } => path,
            #[cfg(test)]
            Self::Fixed(bytes) => return *bytes,
        };
        let Ok(disk) = rustix::fs::statvfs(path) else { return u64::MAX };
        let blocks = fs::metadata(path).map_or(0, |file| file.blocks());
        // Half of the file may be pages that are not full: roughly, and on the safe side.
        let inside = blocks.saturating_mul(512).saturating_sub(held.saturating_mul(2));
        disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(inside)
    }

    /// An error if the path does not lead to the file any more: what is written to it now is gone with this
    /// process. A path that cannot be looked at proves nothing.
    pub(super) fn check(&self) -> io::Result<()> {
        let (path, is) = match self {
            Self::File { path, is } => (path, is),
            #[cfg(test)]
            Self::Fixed(_) => return Ok(()),
        };
        let what = match fs::metadata(path) {
            Ok(now) if identity(&now) == *is => return Ok(()),
            Ok(_) => "another file has taken its place",
            Err(error) if is_gone(error.kind()) => "it was removed",
            Err(_) => return Ok(()),
        };
        Err(io::Error::other(format!(
            "{} is not the data file any more: {what} while the server ran",
            path.display(),
        )))
    }
}

/// Whether there is nothing under a path: also where a file stands in the place of a folder.
fn is_gone(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_or_replaced_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        fs::create_dir(&folder).unwrap();
        let file = folder.join(FILE);
        fs::write(&file, b"1").unwrap();
        let place = Place::of(&folder).unwrap();
        fs::write(&file, b"22").unwrap();
        assert!(place.check().is_ok());
        let told = |place: &Place| place.check().unwrap_err().to_string();
        fs::write(folder.join("new"), b"3").unwrap();
        fs::rename(folder.join("new"), &file).unwrap();
        assert!(told(&place).contains("another file"), "{}", told(&place));
        fs::remove_dir_all(&folder).unwrap();
        assert!(told(&place).contains("removed"), "{}", told(&place));
        fs::write(&folder, b"a file").unwrap();
        assert!(told(&place).contains("removed"), "{}", told(&place));
    }
}
