//! What a device says when it is opened, as programs do it.

use super::report::{Report, Severity};
use crate::runtime::memlock;
use crate::verbs::ibv::{PortSurvey, Survey};
use crate::verbs::{OpenError, VerbsError};

/// ENOMEM: memory, or what of it may be locked.
const ENOMEM: i32 = 12;

/// Opens a device and lists what it can do at most; what it says of its ports.
pub(super) fn examine(name: &str, of: &str, report: &mut Report) -> Vec<PortSurvey> {
    match Survey::of(name) {
        Ok(survey) => {
            limits(of, &survey, report);
            survey.ports
        }
        Err(error) => {
            let (cause, fix) = why(&error, memlock::limit());
            report.problem(Severity::Error, of, "it cannot be opened", cause, fix);
            Vec::new()
        }
    }
}

fn limits(of: &str, survey: &Survey, report: &mut Report) {
    let Survey { qps, qp_wrs, inline_bytes, cqs, cqes, srqs, srq_wrs, .. } = survey;
    report.fact(
        of,
        "queue pairs",
        format!("{qps} of {qp_wrs} requests, {inline_bytes} bytes inline"),
    );
    report.fact(
        of,
        "CQs, SRQs",
        format!("{cqs} of {cqes} completions, {srqs} of {srq_wrs} receives"),
    );
    let Survey { reads_asked, reads_answered, mrs, windows, window_types, .. } = survey;
    report.fact(
        of,
        "READs of a queue pair",
        format!("{reads_asked} asked for, {reads_answered} answered at a time"),
    );
    report.fact(
        of,
        "memory",
        format!(
            "{mrs} regions of {}, {windows} windows of type {window_types}",
            bytes(survey.mr_bytes)
        ),
    );
    if !survey.windows_usable {
        report.problem(
            Severity::Error,
            of,
            "it has no memory windows of type 2, without which a peer could read all payload memory",
            "the card or its driver is too old for them",
            "?device= names another device; or soft:// in place of rdma://",
        );
    }
}

/// Most devices bound a region by their addresses alone.
fn bytes(bytes: u64) -> String {
    if bytes >= 1 << 48 { "any length".into() } else { format!("{bytes} bytes") }
}

/// Why a device could not be opened, and what mends it. `limit`: on locked memory.
fn why(error: &VerbsError, limit: Option<u64>) -> (String, String) {
    match error {
        VerbsError::Open(OpenError::NoProvider { .. }) => (
            "libibverbs has no driver for it".to_owned(),
            "apt install ibverbs-providers on Debian, rdma-core elsewhere".to_owned(),
        ),
        // A device may pin memory for a queue.
        VerbsError::System { operation, source }
            if source.raw_os_error() == Some(ENOMEM) && limit.is_some() =>
        {
            (
                format!(
                    "{operation} failed: the limit on locked memory, {} bytes, has no room",
                    limit.unwrap_or(0)
                ),
                "ulimit -l unlimited; see also what is said of the limits".to_owned(),
            )
        }
        error => (error.to_string(), "dmesg | tail says what its driver complains of".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn each_reason_not_to_open_has_a_fix_of_its_own() {
        let fix = |error: VerbsError, limit| why(&error, limit).1;
        let none = OpenError::NoProvider { have: "none_0".into() };
        assert!(fix(none.into(), None).contains("ibverbs-providers"));
        let full = || VerbsError::System {
            operation: "creating a completion queue (ibv_create_cq)",
            source: io::Error::from_raw_os_error(ENOMEM),
        };
        assert!(fix(full(), Some(65_536)).starts_with("ulimit -l unlimited"));
        assert!(fix(full(), None).contains("dmesg"));
        assert!(why(&full(), Some(65_536)).0.contains("65536 bytes"));
    }

    #[test]
    fn a_device_without_windows_of_type_2_is_an_error() {
        let mut report = Report::default();
        let survey = Survey { windows_usable: false, ..Survey::default() };
        limits("device none_0", &survey, &mut report);
        assert!(!report.is_healthy());
    }
}
