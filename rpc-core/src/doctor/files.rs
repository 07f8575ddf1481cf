use std::fs;
use std::path::{Path, PathBuf};

/// Entries of a folder that are looked at: the kernel makes far fewer, except of CPUs and GIDs.
const ENTRIES_MAX: usize = 4096;

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

    /// What a file holds, without the line's end; `None` if it cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
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
