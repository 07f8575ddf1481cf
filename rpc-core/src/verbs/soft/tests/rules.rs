//! Tests of the tests: each rule is broken alone, and each test that names it must fail.

use std::panic::{self, catch_unwind};
use std::sync::Once;

use super::super::Rule;
use super::fabric::{SoftMem, SoftTcp};
use super::{failure, fixture, raw, send};
use crate::verbs::conformance::{Case, RULES, cases};

/// Rules that only a peer can break which says what no device says, or that need a clock that stands
/// still.
const SOFT_ONLY: &[Case] = &[
    Case {
        name: "raw::packets_of_another_device_than_the_connected_one_are_dropped",
        rules: &[Rule::PeerDevice],
        laxer: &[],
        run: raw::packets_of_another_device_than_the_connected_one_are_dropped,
    },
    Case {
        name: "raw::packets_out_of_order_are_dropped_and_the_expected_one_is_taken",
        rules: &[Rule::Psn],
        laxer: &[],
        run: raw::packets_out_of_order_are_dropped_and_the_expected_one_is_taken,
    },
    Case {
        name: "failure::late_retries_do_not_do_things_twice",
        rules: &[Rule::Duplicate],
        laxer: &[],
        run: failure::late_retries_do_not_do_things_twice,
    },
    Case {
        name: "send::missing_receive_is_retried_after_the_receivers_timer",
        rules: &[Rule::RnrTimer],
        laxer: &[],
        run: send::missing_receive_is_retried_after_the_receivers_timer,
    },
];

const fn is_among(rule: Rule, rules: &[Rule]) -> bool {
    let mut at = 0;
    while at < rules.len() {
        if rules[at] as u8 == rule as u8 {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_tested(rule: Rule) -> bool {
    let mut at = 0;
    while at < SOFT_ONLY.len() {
        if is_among(rule, SOFT_ONLY[at].rules) {
            return true;
        }
        at += 1;
    }
    is_among(rule, RULES)
}

// A rule without a test does not compile.
const _: () = {
    let mut at = 0;
    while at < Rule::ALL.len() {
        assert!(is_tested(Rule::ALL[at]), "a rule of the software device has no test");
        at += 1;
    }
};

/// Failures are expected here, and their messages would bury the table.
fn hide_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if fixture::broken_rule().is_none() {
                usual(info);
            }
        }));
    });
}

/// Whether `test` passes, but fails on devices that do not keep `rule`.
fn notices(rule: Rule, test: fn()) -> bool {
    let passes = catch_unwind(test).is_ok();
    fixture::break_rule(Some(rule));
    let noticed = catch_unwind(test).is_err();
    fixture::break_rule(None);
    passes && noticed
}

/// A test of a rule, and the links over which it noticed that the rule was broken, or did not.
struct Row {
    rule: Rule,
    test: &'static str,
    caught: Vec<&'static str>,
    missed: Vec<&'static str>,
}

fn run_all() -> Vec<Row> {
    let suites = [("mem", cases::<SoftMem>()), ("tcp", cases::<SoftTcp>())];
    let suites = suites.iter().map(|(link, cases)| (*link, cases.as_slice()));
    let suites: Vec<_> = suites.chain([("soft's own", SOFT_ONLY)]).collect();
    let mut rows: Vec<Row> = Vec::new();
    for rule in Rule::ALL.iter().copied() {
        for (link, case) in suites.iter().flat_map(|(link, cases)| cases.iter().map(|c| (*link, c)))
        {
            if !case.rules.contains(&rule) {
                continue;
            }
            let known = rows.iter().position(|row| row.rule == rule && row.test == case.name);
            let at = known.unwrap_or(rows.len());
            if known.is_none() {
                rows.push(Row { rule, test: case.name, caught: Vec::new(), missed: Vec::new() });
            }
            let noticed = notices(rule, case.run);
            let Row { caught, missed, .. } = &mut rows[at];
            if noticed { caught } else { missed }.push(link);
        }
    }
    rows
}

#[test]
fn each_broken_rule_is_noticed_by_its_tests() {
    hide_expected_panics();
    let rows = run_all();
    println!("\n| rule broken | its test | caught over | missed over |\n|---|---|---|---|");
    for Row { rule, test, caught, missed } in &rows {
        println!("| {rule:?} | {test} | {} | {} |", caught.join(", "), missed.join(", "));
    }
    let missed: Vec<_> = rows.iter().filter(|row| !row.missed.is_empty()).collect();
    let missed: Vec<_> = missed.iter().map(|row| (row.rule, row.test)).collect();
    let (rules, tests) = (Rule::ALL.len(), rows.len());
    let caught = Rule::ALL.iter().filter(|rule| missed.iter().all(|row| row.0 != **rule)).count();
    println!(
        "| {rules} rules, each broken alone | {tests} tests | {caught} caught | {} |",
        rules - caught
    );
    assert_eq!(missed, [], "of {rules} rules");
}
