use super::case::laxer;
use super::{Kind, cases};
use crate::verbs::soft::tests::fabric::SoftMem;

/// The marks of a kind of device: the tests, and how it is laxer.
fn marks(kind: Kind) -> Vec<(&'static str, &'static str)> {
    let cases = cases::<SoftMem>();
    cases.iter().filter_map(|case| Some((case.name, laxer(kind, case.laxer)?))).collect()
}

/// Prints how many rules soft-RoCE is held to, and where it is laxer. The software device, by which
/// the suite itself is judged, is held to all.
#[test]
fn marks_are_for_soft_roce_alone_and_are_listed() {
    assert_eq!(marks(Kind::Soft), []);
    assert_eq!(marks(Kind::Ibv), [], "a NIC is marked only after one was seen to need it");
    let marks = marks(Kind::IbvRxe);
    let held_to = cases::<SoftMem>().len() - marks.len();
    println!("| rules on ibv (soft-RoCE): {held_to} | marked: {} |", marks.len());
    for (name, how) in marks {
        println!("| {name} | {how} |");
    }
}
