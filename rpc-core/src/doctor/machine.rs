use super::files::Files;
use super::report::Report;

/// NUMA nodes shown; larger machines have more, and one line is for all.
const NODES_SHOWN: usize = 16;

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
    report.fact(of, "CPUs that it may use", cpus(files));
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

/// How many CPUs this process may run on, and which of each NUMA node.
fn cpus(files: &Files) -> String {
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let of_node = |node: u32| {
        let cpus = usable_cpus(files, node)?;
        Some(format!(
            "{} of NUMA node {node}",
            if cpus.is_empty() { "none".into() } else { ranges(&cpus) }
        ))
    };
    let nodes: Vec<String> =
        nodes(files).into_iter().take(NODES_SHOWN).filter_map(of_node).collect();
    if nodes.is_empty() { count.to_string() } else { format!("{count}: {}", nodes.join(", ")) }
}

/// Whether this process may run on a CPU of the node; `None` if that is not known.
pub(super) fn may_use_node(files: &Files, node: u32) -> Option<bool> {
    usable_cpus(files, node).map(|cpus| !cpus.is_empty())
}

/// The CPUs of a node that this process may run on, in order.
fn usable_cpus(files: &Files, node: u32) -> Option<Vec<usize>> {
    let mut cpus = cpu_list(&files.read(&format!("/sys/devices/system/node/node{node}/cpulist"))?);
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    cpus.retain(|cpu| *cpu < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(*cpu));
    Some(cpus)
}

/// Numbers in order, as `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let run = |run: &[usize]| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(usize::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
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

pub(super) fn container(files: &Files) -> Option<&'static str> {
    if files.exists("/.dockerenv") {
        return Some("Docker");
    }
    if files.exists("/run/.containerenv") {
        return Some("Podman");
    }
    let init = files.read("/proc/1/environ")?;
    init.contains("container=").then_some("yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_read_with_its_ranges() {
        assert_eq!(cpu_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cpu_list(""), [] as [usize; 0]);
        assert_eq!(cpu_list("x,3-x,5"), [5]);
        assert_eq!(cpu_list("0-18446744073709551615").len(), rustix::thread::CpuSet::MAX_CPU);
        for text in ["0-2,8", "3", "1-2,4-5", ""] {
            assert_eq!(ranges(&cpu_list(text)), text);
        }
    }
}
