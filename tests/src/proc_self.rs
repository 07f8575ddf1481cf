use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::Place;

/// What the kernel counts of one process: threads by name, open descriptors, memory.
///
/// Baselines taken here do not depend on counters that the code under test keeps of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcSelf {
    /// How many threads carry each name. The kernel cuts names to 15 bytes.
    pub threads: BTreeMap<String, usize>,
    /// What each open descriptor refers to: a path, or `socket`, `pipe`, `anon_inode:[eventpoll]`
    /// and the like without the inode's number.
    pub descriptors: BTreeMap<String, usize>,
    /// Memory locked by mlock (VmLck), in bytes.
    pub locked_bytes: u64,
    /// Memory pinned for devices (VmPin), in bytes.
    pub pinned_bytes: u64,
    /// Memory in use (VmRSS), in bytes.
    pub resident_bytes: u64,
}

impl ProcSelf {
    /// Reads this process.
    pub fn read() -> io::Result<Self> {
        Self::read_dir(Path::new("/proc/self"))
    }

    /// Reads another process of this user.
    pub fn read_of(pid: u32) -> io::Result<Self> {
        Self::read_dir(&PathBuf::from(format!("/proc/{pid}")))
    }

    /// All threads.
    pub fn thread_count(&self) -> usize {
        self.threads.values().sum()
    }

    /// Threads whose name begins with `prefix`.
    pub fn threads_named(&self, prefix: &str) -> usize {
        let named = self.threads.iter().filter(|(name, _)| name.starts_with(prefix));
        named.map(|(_, count)| count).sum()
    }

    /// All open descriptors.
    pub fn descriptor_count(&self) -> usize {
        self.descriptors.values().sum()
    }

    fn read_dir(dir: &Path) -> io::Result<Self> {
        let status = fs::read_to_string(dir.join("status"))?;
        Ok(Self {
            threads: threads(&dir.join("task"))?,
            descriptors: descriptors(&dir.join("fd"))?,
            locked_bytes: status_bytes(&status, "VmLck"),
            pinned_bytes: status_bytes(&status, "VmPin"),
            resident_bytes: status_bytes(&status, "VmRSS"),
        })
    }
}

/// Threads by name. One that ends between the listing and its reading is not counted.
fn threads(dir: &Path) -> io::Result<BTreeMap<String, usize>> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        if let Ok(name) = fs::read_to_string(entry?.path().join("comm")) {
            *threads.entry(name.trim_end().to_owned()).or_default() += 1;
        }
    }
    Ok(threads)
}

/// Descriptors by what they refer to, without the one that lists the folder.
fn descriptors(dir: &Path) -> io::Result<BTreeMap<String, usize>> {
    let listing = fs::read_dir(dir)?;
    let mut descriptors = BTreeMap::new();
    for entry in listing {
        // The descriptor of the listing itself is gone, or points at the folder listed.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        if target.starts_with("/proc") && target.ends_with("fd") {
            continue;
        }
        let target = target.to_string_lossy();
        let kind = match target.split_once(":[") {
            Some((kind @ ("socket" | "pipe"), _)) => kind,
            _ => &target,
        };
        *descriptors.entry(kind.to_owned()).or_default() += 1;
    }
    Ok(descriptors)
}

/// A line such as `VmLck:       64 kB` in bytes; 0 where the kernel has no such line.
fn status_bytes(status: &str, key: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// Waits until `done` says so, at most `timeout` (longer in the guest); returns whether it did.
///
/// For things that another thread or process ends in its own time, such as a descriptor that is
/// being closed. It is never a substitute for an event that can be waited for.
pub fn eventually(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Place::here().within(timeout);
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        // A pause between two looks at a condition; no length of it makes the condition true.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_named_thread_is_counted_while_it_lives() {
        let (release, wait) = mpsc::channel::<()>();
        let (ready, started) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("procself-probe".into())
            .spawn(move || {
                ready.send(()).unwrap();
                let _ = wait.recv();
            })
            .unwrap();
        started.recv().unwrap();
        let during = ProcSelf::read().unwrap();
        assert_eq!(during.threads_named("procself-"), 1);
        assert!(during.thread_count() >= 2);
        drop(release);
        thread.join().unwrap();
        // A joined thread leaves the kernel's table a moment later.
        let gone = || ProcSelf::read().unwrap().threads_named("procself-") == 0;
        assert!(eventually(Duration::from_secs(10), gone));
    }

    #[test]
    fn an_open_file_is_counted_under_its_path() {
        let path = fs::canonicalize(env!("CARGO_MANIFEST_DIR")).unwrap().join("Cargo.toml");
        let key = path.to_string_lossy().into_owned();
        let before = ProcSelf::read().unwrap().descriptors.get(&key).copied().unwrap_or(0);
        let file = fs::File::open(&path).unwrap();
        assert_eq!(ProcSelf::read().unwrap().descriptors.get(&key), Some(&(before + 1)));
        drop(file);
        assert_eq!(ProcSelf::read().unwrap().descriptors.get(&key).copied().unwrap_or(0), before);
    }

    #[test]
    fn another_process_has_its_own_counts() {
        let spawn = |stdin: Stdio| {
            let child = Command::new("tail")
                .args(["-f", "/dev/null"])
                .stdin(stdin)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Until it has become `tail`, it still shows this process's name and descriptors.
            let id = child.id();
            let is_tail = || ProcSelf::read_of(id).is_ok_and(|of| of.threads_named("tail") == 1);
            assert!(eventually(Duration::from_secs(10), is_tail));
            child
        };
        let (mut piped, mut plain) = (spawn(Stdio::piped()), spawn(Stdio::null()));
        let counts = ProcSelf::read_of(piped.id()).unwrap();
        assert_eq!(counts.thread_count(), 1);
        assert!(counts.resident_bytes > 0);
        // Whatever this process passes on, the two differ by the one pipe.
        let pipes = |counts: &ProcSelf| counts.descriptors.get("pipe").copied().unwrap_or(0);
        let plain_counts = ProcSelf::read_of(plain.id()).unwrap();
        assert_eq!(pipes(&counts), pipes(&plain_counts) + 1);
        for child in [&mut piped, &mut plain] {
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(ProcSelf::read_of(child.id()).is_err());
        }
    }

    #[test]
    fn sizes_are_read_in_bytes() {
        let status = "Name:\tx\nVmLck:\t      64 kB\nVmRSS:\t    1000 kB\n";
        assert_eq!(status_bytes(status, "VmLck"), 65_536);
        assert_eq!(status_bytes(status, "VmRSS"), 1_024_000);
        assert_eq!(status_bytes(status, "VmPin"), 0);
    }

    #[test]
    fn waiting_ends_when_the_condition_holds_or_the_time_is_up() {
        let mut looks = 0;
        assert!(eventually(Duration::from_secs(10), || {
            looks += 1;
            looks == 3
        }));
        assert_eq!(looks, 3);
        assert!(!eventually(Duration::ZERO, || false));
    }
}
