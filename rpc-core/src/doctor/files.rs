use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Entries of a folder that are looked at: the kernel makes far fewer, except of CPUs and GIDs.
const ENTRIES_MAX: usize = 4096;
/// Bytes of a file that are read. The longest that is asked for, modules.dep, has some 700 KiB; most have a page.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The kernel's files.
#[derive(Clone, Debug)]
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn new(root: PathBuf) -> Self {
        Self(root)
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// What a file holds, of the first [`FILE_BYTES_MAX`] bytes, without the line's end; `None` if it cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let file = fs::File::open(self.path(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(super) fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder, in order; none if it is not there.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .take(ENTRIES_MAX)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        // 2 before 10.
        names.sort_by_cached_key(|name| {
            let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            (name.len() - digits.len(), digits.parse::<u64>().ok(), name.clone())
        });
        names
    }

    /// The last part of where a link leads.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let to = fs::read_link(self.path(path)).ok()?;
        Some(Path::new(&to).file_name()?.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_read_up_to_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::create(folder.path().join("long")).unwrap();
        file.set_len(FILE_BYTES_MAX * 4).unwrap();
        let read = Files::new(folder.path().to_owned()).read("/long").unwrap();
        assert_eq!(read.len() as u64, FILE_BYTES_MAX);
    }
}
