use rpc_core::sim;

use crate::workload;

/// Seeds of one run of this test; `SIM_SEEDS` says otherwise.
const SEEDS: u64 = 100;

#[test]
fn what_must_hold_holds_for_every_seed() {
    if crate::is_shown() {
        let level = tracing_subscriber::filter::LevelFilter::DEBUG;
        tracing_subscriber::fmt().with_max_level(level).without_time().init();
    }
    let ran = sim::seeds(SEEDS, |seed| {
        workload::run(seed);
    });
    println!("| seeds | seconds | seeds per minute |");
    println!("|---|---|---|");
    println!("| {} | {:.1} | {:.0} |", ran.count, ran.seconds, ran.per_minute());
}

#[test]
fn a_seed_with_every_fault_repeats_its_run() {
    for seed in [2, 6, 10] {
        assert_eq!(workload::run(seed), workload::run(seed));
    }
}
