//! What the machine is, and which of its CPUs a process runs on.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::Failure;

/// Memory that is cycled through where the machine does not say how large its cache is.
const CACHE_BYTES_UNKNOWN: usize = 32 << 20;

/// CPUs that this process may use.
pub(crate) fn cpus() -> Result<Vec<usize>, Failure> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Keeps this process, and the threads it will start, to these CPUs.
pub(crate) fn pin(cpus: &[usize]) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// CPU time of a process so far, in nanoseconds: of the threads that live. One that ends takes its time
/// along, so this is for processes whose threads stay.
pub(crate) fn cpu_nanos(process: u32) -> Result<u64, Failure> {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that ended meanwhile has no file any more.
        let Ok(stat) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok());
        total += nanos.ok_or_else(|| Failure::new("the kernel counts no CPU time of threads"))?;
    }
    Ok(total)
}

/// Bytes of the largest cache.
pub(crate) fn cache_bytes() -> usize {
    let sizes = (0..8).filter_map(|index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()
    });
    sizes.max().map_or(CACHE_BYTES_UNKNOWN, |kib| kib << 10)
}

/// What the processor calls itself.
pub(crate) fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned())
}

/// How many threads wanted a CPU in the last minute, five and fifteen.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
