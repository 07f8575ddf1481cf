use super::fabric::{Fabric, Kind};
use crate::verbs::soft::Rule;

/// One test, for one fabric.
pub(in crate::verbs) struct Case {
    /// Its file and its name.
    pub(in crate::verbs) name: &'static str,
    /// The rules without which it must fail.
    pub(in crate::verbs) rules: &'static [Rule],
    pub(in crate::verbs) run: fn(),
}

/// In which way a kind of device is laxer than a test.
pub(in crate::verbs) type Laxer = &'static str;

/// Runs a test, unless this fabric's devices are known to be laxer.
pub(in crate::verbs) fn run<F: Fabric>(laxer: &[(Kind, Laxer)], test: fn()) {
    match laxer.iter().find(|(kind, _)| *kind == F::KIND) {
        Some((kind, how)) => println!("skipped on {kind:?}, which is laxer: {how}"),
        None => test(),
    }
}
