//! How much memory there is to take: the machine's, or what a cgroup leaves of it.

use std::fmt;

use super::files::Files;

/// Cgroups above this one that are looked at: systemd and containers nest some five of them.
const LEVELS_MAX: usize = 32;

/// The part of memory that payloads may take; the program itself and everybody else need the rest.
const PART: (u64, u64) = (3, 4);

/// Memory that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) bytes: u64,
    /// Whether a cgroup bounds it, and not the machine.
    pub(super) cgroup: bool,
}

impl Memory {
    /// The most that payloads should take of it.
    pub(super) const fn budget_max(self) -> u64 {
        self.bytes / PART.1 * PART.0
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.cgroup { "its cgroup" } else { "this machine" };
        write!(f, "{} bytes of {whose}", self.bytes)
    }
}

/// The memory of this machine, or of this process's cgroup if that is less.
pub(super) fn of(files: &Files) -> Option<Memory> {
    let machine = total(&files.read("/proc/meminfo")?)?;
    let cgroup = cgroup_limit(files).filter(|limit| *limit < machine);
    let bytes = cgroup.unwrap_or(machine);
    Some(Memory { bytes, cgroup: cgroup.is_some() })
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the process's cgroup and those above it, of version 2 and 1.
fn cgroup_limit(files: &Files) -> Option<u64> {
    let own = files.read("/proc/self/cgroup")?;
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        match controllers {
            "" => least(files, "/sys/fs/cgroup", path, "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                least(files, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    };
    own.lines().filter_map(of_line).min()
}

/// The least number in the files of this name, from a path up to its root. A container may see the path as the host
/// has it and the folder as its own: the root's is the one that counts there.
fn least(files: &Files, root: &str, path: &str, name: &str) -> Option<u64> {
    let levels = std::path::Path::new(path).ancestors().take(LEVELS_MAX);
    // "max" is no number, and no limit.
    let limit = |level: &std::path::Path| {
        let level = level.to_str()?.trim_matches('/');
        files.number::<u64>(&format!("{root}/{level}/{name}"))
    };
    levels.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of_files(files: &[(&str, &str)]) -> Option<Memory> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        of(&Files::new(folder.path().to_owned()))
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\n");

    #[test]
    fn the_machines_memory_counts_where_no_cgroup_leaves_less() {
        let machine = Some(Memory { bytes: 1 << 20, cgroup: false });
        assert_eq!(of_files(&[]), None);
        assert_eq!(of_files(&[MEMINFO]), machine);
        let own = ("proc/self/cgroup", "0::/user.slice/a.scope\n");
        let all = ("sys/fs/cgroup/user.slice/a.scope/memory.max", "max\n");
        assert_eq!(of_files(&[MEMINFO, own, all]), machine);
        let more = ("sys/fs/cgroup/user.slice/a.scope/memory.max", "2097152\n");
        assert_eq!(of_files(&[MEMINFO, own, more]), machine);
    }

    #[test]
    fn the_least_limit_of_a_cgroup_and_those_above_counts() {
        let of_limit = |own, limits: [(&str, &str); 2]| {
            of_files(&[MEMINFO, ("proc/self/cgroup", own), limits[0], limits[1]]).unwrap()
        };
        let least = Memory { bytes: 65_536, cgroup: true };
        let second = [
            ("sys/fs/cgroup/a/b/memory.max", "131072\n"),
            ("sys/fs/cgroup/a/memory.max", "65536\n"),
        ];
        assert_eq!(of_limit("0::/a/b\n", second), least);
        let first = [
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "65536\n"),
        ];
        assert_eq!(of_limit("9:name=systemd:/\n4:cpu,memory:/a\n0::/\n", first), least);
    }
}
