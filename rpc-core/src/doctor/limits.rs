use rustix::process::{Resource, getrlimit, getuid};

use super::memory::Memory;
use super::report::{Report, Severity};
use crate::runtime::memlock;

/// A server with fewer descriptors has fewer connections than people expect.
const NOFILE_WANTED: u64 = 4096;

/// How much memory this process may lock.
#[derive(Clone, Copy)]
struct Locked {
    /// `None`: no limit.
    limit: Option<u64>,
    /// What this user may raise it to; `None`: no limit.
    hard: Option<u64>,
    root: bool,
}

/// The payload memory of a runtime.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    pub(super) bytes: u64,
    /// Whether somebody asked for so much.
    pub(super) chosen: bool,
    /// What there is to take it from, if that is known.
    pub(super) memory: Option<Memory>,
}

/// What the process may have. `rdma`: how bad it is that memory cannot be locked, if there is a device for which it
/// is.
pub(super) fn examine(budget: Budget, rdma: Option<Severity>, report: &mut Report) {
    let hard = getrlimit(Resource::Memlock).maximum;
    let locked = Locked { limit: memlock::limit(), hard, root: getuid().is_root() };
    locked_memory(locked, budget.bytes, rdma, report);
    payload_memory(budget, report);
    descriptors(getrlimit(Resource::Nofile).maximum, report);
}

fn locked_memory(locked: Locked, budget_bytes: u64, rdma: Option<Severity>, report: &mut Report) {
    let of = "limits";
    let value = locked.limit.map_or_else(|| "no limit".into(), |limit| format!("{limit} bytes"));
    report.fact(of, "locked memory", value);
    let fits = |limit: &u64| budget_bytes <= memlock::budget_max(*limit);
    let Some((limit, severity)) = locked.limit.filter(|limit| !fits(limit)).zip(rdma) else {
        return;
    };
    report.problem(
        severity,
        of,
        format!(
            "this process may lock {limit} bytes of memory, and a runtime locks up to {budget_bytes} for payloads alone"
        ),
        if locked.root {
            "RLIMIT_MEMLOCK is low, and this root is without CAP_IPC_LOCK, as in a container"
        } else {
            "RLIMIT_MEMLOCK is low, as it is by default for users that are not root"
        },
        raise(locked, limit, budget_bytes),
    );
}

/// Whether a runtime with this budget can be made, and the machine has it.
fn payload_memory(budget: Budget, report: &mut Report) {
    let of = "limits";
    let Budget { bytes, chosen, memory } = budget;
    let whose = memory.map_or_else(String::new, |memory| format!(", of {memory}"));
    report.fact(of, "payload memory of a runtime", format!("{bytes} bytes{whose}"));
    let least = memlock::BUDGET_BYTES_MIN;
    if bytes < least {
        report.problem(
            Severity::Error,
            of,
            format!("a runtime with {bytes} bytes of payload memory cannot be made"),
            format!("it needs {least} bytes at the least"),
            format!("a budget of {least} bytes or more, for all messages that are on their way"),
        );
    }
    let Some(memory) = memory.filter(|memory| bytes > memory.budget_max()) else { return };
    // A runtime takes memory as messages need it, so what nobody chose may do.
    let severity = if chosen && bytes > memory.bytes { Severity::Error } else { Severity::Warning };
    report.problem(
        severity,
        of,
        format!("a runtime may take {bytes} bytes for payloads, and there are {memory}"),
        "the budget is planned for another machine, or the cgroup (a container's or a systemd unit's) has a low limit",
        format!(
            "a budget of at most {} bytes: the rest is for everything else",
            memory.budget_max().max(least)
        ),
    );
}

/// How the limit on locked memory is raised, or the budget lowered.
fn raise(locked: Locked, limit: u64, budget_bytes: u64) -> String {
    let here = match locked.hard {
        None => "ulimit -l unlimited".to_owned(),
        Some(hard) if budget_bytes <= memlock::budget_max(hard) => {
            format!("ulimit -l {}", hard >> 10)
        }
        // The shell may not raise its own limit any further.
        Some(_) => "sudo prlimit --memlock=unlimited --pid $$".to_owned(),
    };
    let smaller = memlock::budget_that_fits(limit)
        .map_or_else(String::new, |most| format!("; or a budget of at most {most} bytes"));
    format!(
        "{here} for this shell; for good `* - memlock unlimited` in /etc/security/limits.conf, \
         LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 or --cap-add=IPC_LOCK of a container{smaller}"
    )
}

fn descriptors(limit: Option<u64>, report: &mut Report) {
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
            "sudo prlimit --nofile=65536 --pid $$ for this shell (LimitNOFILE=65536 in a systemd unit, --ulimit \
             nofile=65536 of a container)",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(locked: Locked, rdma: bool) -> Vec<super::super::Problem> {
        let mut report = Report::default();
        locked_memory(locked, 1 << 30, rdma.then_some(Severity::Error), &mut report);
        report.problems
    }

    fn user(limit: Option<u64>, hard: Option<u64>) -> Locked {
        Locked { limit, hard, root: false }
    }

    #[test]
    fn a_low_limit_on_locked_memory_is_an_error_where_there_is_rdma_alone() {
        let low = problems(user(Some(64 << 10), Some(64 << 10)), true);
        assert_eq!((low.len(), low[0].severity), (1, Severity::Error));
        assert!(problems(user(Some(64 << 10), None), false).is_empty(), "software locks nothing");
        assert!(problems(user(Some(2 << 30), None), true).is_empty());
        assert!(problems(user(None, None), true).is_empty());
    }

    /// A shell cannot raise its limit beyond the hard one, and no runtime takes a budget below its least.
    #[test]
    fn the_fix_of_a_low_limit_is_one_that_this_user_can_apply() {
        let fix = |limit, hard| problems(user(Some(limit), hard), true)[0].fix.clone();
        assert!(fix(64 << 10, None).starts_with("ulimit -l unlimited "));
        assert!(fix(64 << 10, Some(2 << 30)).starts_with("ulimit -l 2097152 "));
        let hard = fix(64 << 10, Some(64 << 10));
        assert!(hard.starts_with("sudo prlimit --memlock=unlimited --pid $$ "), "{hard}");
        assert!(!hard.contains("budget"), "{hard}");
        assert!(fix(8 << 20, Some(8 << 20)).ends_with("a budget of at most 6291456 bytes"));
        let locked = Locked { root: true, ..user(Some(64 << 10), None) };
        assert!(problems(locked, true)[0].cause.contains("CAP_IPC_LOCK"));
    }

    #[test]
    fn a_budget_that_no_runtime_takes_is_an_error() {
        let mut report = Report::default();
        payload_memory(Budget { bytes: 3, chosen: true, memory: None }, &mut report);
        assert!(report.problems[0].fix.contains("262144 bytes or more"), "{report:?}");
    }

    #[test]
    fn a_budget_beyond_the_machines_memory_is_an_error_if_it_was_chosen() {
        let of = |bytes, chosen, memory| {
            let mut report = Report::default();
            payload_memory(Budget { bytes, chosen, memory }, &mut report);
            report.problems.first().map(|problem| (problem.severity, problem.to_string()))
        };
        let memory = Some(Memory { bytes: 16 << 30, cgroup: false });
        let (severity, text) = of(501 << 30, true, memory).unwrap();
        assert_eq!(severity, Severity::Error);
        assert!(text.contains("17179869184 bytes of this machine"), "{text}");
        assert!(text.contains("at most 12884901888 bytes"), "{text}");
        assert_eq!(of(13 << 30, true, memory).unwrap().0, Severity::Warning);
        assert_eq!(of(12 << 30, true, memory), None);
        let small = Some(Memory { bytes: 512 << 20, cgroup: true });
        let (severity, text) = of(1 << 30, false, small).unwrap();
        assert!(severity == Severity::Warning && text.contains("of its cgroup"), "{text}");
        assert_eq!(of(u64::MAX, true, None), None);
    }

    #[test]
    fn a_low_limit_on_descriptors_is_a_warning() {
        let mut report = Report::default();
        descriptors(Some(1024), &mut report);
        assert_eq!(report.problems[0].severity, Severity::Warning);
        let mut report = Report::default();
        descriptors(Some(1 << 20), &mut report);
        assert!(report.problems.is_empty());
    }
}
