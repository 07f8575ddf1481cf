use super::fabric::{Fabric, Kind};
use crate::verbs::soft::Rule;

/// One test, for one fabric.
pub(in crate::verbs) struct Case {
    /// Its file and its name.
    pub(in crate::verbs) name: &'static str,
    /// The rules without which it must fail.
    pub(in crate::verbs) rules: &'static [Rule],
    /// Where it is not to be run, and why.
    pub(in crate::verbs) laxer: &'static [(Kind, Laxer)],
    pub(in crate::verbs) run: fn(),
}

/// In which way a kind of device is laxer than a test.
pub(in crate::verbs) type Laxer = &'static str;

/// In which way a kind of device is laxer, by the marks of a test.
pub(in crate::verbs) fn laxer(kind: Kind, marks: &[(Kind, Laxer)]) -> Option<Laxer> {
    marks.iter().find(|(marked, _)| *marked == kind).map(|(_, how)| *how)
}

/// Runs a test, unless this fabric's devices are known to be laxer.
pub(in crate::verbs) fn run<F: Fabric>(marks: &[(Kind, Laxer)], test: fn()) {
    match laxer(F::KIND, marks) {
        Some(how) => println!("skipped on {:?}, which is laxer: {how}", F::KIND),
        None => test(),
    }
}
