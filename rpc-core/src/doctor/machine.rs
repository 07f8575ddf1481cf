use rustix::process::{Resource, getrlimit};

use super::files::Files;
use super::report::{Report, Severity};
use crate::runtime::memlock;

/// A server with fewer descriptors has fewer connections than people expect.
const NOFILE_WANTED: u64 = 4096;

/// What the machine is.
pub(super) fn examine(files: &Files, report: &mut Report) {
    let of = "program";
    report.fact(of, "version", env!("CARGO_PKG_VERSION"));
    report.fact(
        of,
        "RDMA",
        if cfg!(feature = "verbs") { "built in" } else { "not built in (feature `verbs`)" },
    );
    let of = "machine";
    let kernel = files.read("/proc/sys/kernel/osrelease");
    report.fact(of, "kernel", kernel.unwrap_or_else(|| "unknown".into()));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    report.fact(of, "CPUs that it may use", cpus.to_string());
    report.fact(of, "NUMA nodes", nodes(files).len().max(1).to_string());
    if let Some(huge) = huge_pages(files) {
        report.fact(of, "huge pages", huge);
    }
    if let Some(what) = container(files) {
        report.fact(of, "container", what);
    }
    let known = [
        "ib_uverbs",
        "ib_core",
        "rdma_rxe",
        "siw",
        "mlx4_ib",
        "mlx5_ib",
        "bnxt_re",
        "irdma",
        "efa",
    ];
    let loaded: Vec<&str> =
        known.into_iter().filter(|module| files.exists(&format!("/sys/module/{module}"))).collect();
    report.fact(
        of,
        "kernel modules of RDMA",
        if loaded.is_empty() { "none".into() } else { loaded.join(", ") },
    );
}

/// The numbers of the NUMA nodes.
pub(super) fn nodes(files: &Files) -> Vec<u32> {
    let names = files.names("/sys/devices/system/node");
    names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect()
}

/// Whether this process may run on a CPU of the node; `None` if that is not known.
pub(super) fn may_use_node(files: &Files, node: u32) -> Option<bool> {
    let cpus = cpu_list(&files.read(&format!("/sys/devices/system/node/node{node}/cpulist"))?);
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let within = |cpu: &usize| *cpu < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(*cpu);
    Some(cpus.iter().any(within))
}

/// The numbers of a list like `0-3,8`.
fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().take(rustix::thread::CpuSet::MAX_CPU).collect()
}

fn huge_pages(files: &Files) -> Option<String> {
    let meminfo = files.read("/proc/meminfo")?;
    let value = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    };
    let (total, free, size) =
        (value("HugePages_Total")?, value("HugePages_Free")?, value("Hugepagesize")?);
    Some(format!("{total} of {size}, {free} free"))
}

fn container(files: &Files) -> Option<&'static str> {
    if files.exists("/.dockerenv") {
        return Some("Docker");
    }
    if files.exists("/run/.containerenv") {
        return Some("Podman");
    }
    let init = files.read("/proc/1/environ")?;
    init.contains("container=").then_some("yes")
}

/// What the process may have. `rdma`: whether there is a device that memory is locked for.
pub(super) fn examine_limits(budget_bytes: u64, rdma: bool, report: &mut Report) {
    memlock_limit(memlock::limit(), budget_bytes, rdma, report);
    descriptor_limit(getrlimit(Resource::Nofile).maximum, report);
}

fn memlock_limit(limit: Option<u64>, budget_bytes: u64, rdma: bool, report: &mut Report) {
    let of = "limits";
    let value = limit.map_or_else(|| "no limit".into(), |limit| format!("{limit} bytes"));
    report.fact(of, "locked memory", value);
    report.fact(of, "payload memory of a runtime", format!("{budget_bytes} bytes"));
    let Some(limit) = limit else { return };
    let most = memlock::budget_max(limit);
    if rdma && budget_bytes > most {
        report.problem(
            Severity::Error,
            of,
            format!(
                "this user may lock {limit} bytes, and a runtime locks up to {budget_bytes} for payloads alone"
            ),
            "RLIMIT_MEMLOCK is low, as it is by default for users that are not root",
            format!(
                "ulimit -l unlimited (LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 of a container), \
                 or give the runtime a budget of at most {most} bytes"
            ),
        );
    }
}

fn descriptor_limit(limit: Option<u64>, report: &mut Report) {
    let of = "limits";
    report.fact(
        of,
        "open descriptors",
        limit.map_or_else(|| "no limit".into(), |limit| limit.to_string()),
    );
    if let Some(limit) = limit.filter(|limit| *limit < NOFILE_WANTED) {
        report.problem(
            Severity::Warning,
            of,
            format!("a process may have {limit} descriptors, and each connection needs one, or two over software"),
            "the hard limit of RLIMIT_NOFILE is low",
            "ulimit -Hn 65536 as root (LimitNOFILE=65536 in a systemd unit)",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_on_locked_memory_is_an_error_where_there_is_rdma_alone() {
        let problems = |limit, rdma| {
            let mut report = Report::default();
            memlock_limit(limit, 1 << 30, rdma, &mut report);
            report.problems
        };
        let low = problems(Some(64 << 10), true);
        assert_eq!((low.len(), low[0].severity), (1, Severity::Error));
        assert!(
            low[0].fix.contains("ulimit -l") && low[0].fix.contains("49152 bytes"),
            "{}",
            low[0]
        );
        assert!(problems(Some(64 << 10), false).is_empty(), "software locks nothing");
        assert!(problems(Some(2 << 30), true).is_empty());
        assert!(problems(None, true).is_empty());
    }

    #[test]
    fn a_low_limit_on_descriptors_is_a_warning() {
        let mut report = Report::default();
        descriptor_limit(Some(1024), &mut report);
        assert_eq!(report.problems[0].severity, Severity::Warning);
        let mut report = Report::default();
        descriptor_limit(Some(1 << 20), &mut report);
        assert!(report.problems.is_empty());
    }

    #[test]
    fn a_list_of_cpus_is_read_with_its_ranges() {
        assert_eq!(cpu_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cpu_list(""), [] as [usize; 0]);
        assert_eq!(cpu_list("x,3-x,5"), [5]);
        assert_eq!(cpu_list("0-18446744073709551615").len(), rustix::thread::CpuSet::MAX_CPU);
    }
}
