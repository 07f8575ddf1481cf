//! What a call should cost the device's queues, and what that makes of the device's own figures:
//! `docs/performance.md` derives it.

use std::fmt::Write;

/// Calls that one SEND carries at least while 64 are outstanding: fewer, and a core would spend most of its time on
/// SENDs, in which more calls come.
const FEWEST_PER_SEND: f64 = 2.0;
/// SENDs from one signaled one to the next.
const SENDS_PER_SIGNAL: f64 = 16.0;
/// READs that a payload of 1 MiB takes: chunks of 128 KiB.
const READS_PER_LARGE: f64 = 8.0;
/// Large calls at once.
const LARGE_AT_ONCE: f64 = 4.0;
/// MB of a large payload.
const LARGE_MB: f64 = 1.048_576;

/// What the model says of a count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Count {
    /// So many for each call.
    About(f64),
    /// No more than so many.
    AtMost(f64),
}

impl Count {
    pub(super) fn show(self) -> String {
        let (sign, count) = match self {
            Self::About(count) => ("", count),
            Self::AtMost(count) => ("≤ ", count),
        };
        let mut text = String::from(sign);
        // Writing to a string cannot fail.
        let _ = write!(text, "{count:.2}");
        text
    }
}

/// What one call of a cell costs one side.
pub(super) struct Cost {
    pub(super) cell: &'static str,
    pub(super) side: &'static str,
    requests: Count,
    doorbells: Count,
    receive_doorbells: Count,
    completions: Count,
}

impl Cost {
    /// Its counts, by the names of what is counted.
    pub(super) fn counts(&self) -> [(&'static str, Count); 5] {
        [
            ("requests", self.requests),
            ("doorbells", self.doorbells),
            ("receive doorbells", self.receive_doorbells),
            ("completions", self.completions),
            // A core that spins never asks for a notification.
            ("arms", Count::About(0.0)),
        ]
    }
}

const fn one(side: &'static str) -> Cost {
    Cost {
        cell: "1 outstanding",
        side,
        // Its SEND, and the receive of the other's; one SEND of so many is signaled.
        requests: Count::About(1.0),
        doorbells: Count::About(1.0),
        receive_doorbells: Count::About(1.0),
        completions: Count::About(1.0 + 1.0 / SENDS_PER_SIGNAL),
    }
}

const fn many(side: &'static str) -> Cost {
    // A SEND carries what one turn has collected: sixteen calls at most, and at least the few that came while
    // the SEND before it was made.
    let sends = FEWEST_PER_SEND.recip();
    Cost {
        cell: "64 outstanding",
        side,
        requests: Count::AtMost(sends),
        doorbells: Count::AtMost(sends),
        receive_doorbells: Count::AtMost(sends),
        completions: Count::AtMost(2.0 * sends),
    }
}

/// The side whose payload it is: a bind, a SEND, an invalidation.
const fn owner(cell: &'static str, side: &'static str) -> Cost {
    Cost {
        cell,
        side,
        requests: Count::AtMost(3.0),
        doorbells: Count::AtMost(3.0),
        receive_doorbells: Count::AtMost(2.0),
        // Two receives at most (what it is for, and RELEASE), and one of each signaled request.
        completions: Count::AtMost(5.0),
    }
}

/// The side that READs it: its READs, and two SENDs at most (RELEASE, and what it is for).
const fn reader(cell: &'static str, side: &'static str) -> Cost {
    Cost {
        cell,
        side,
        requests: Count::AtMost(READS_PER_LARGE + 2.0),
        doorbells: Count::AtMost(READS_PER_LARGE),
        receive_doorbells: Count::AtMost(1.0),
        completions: Count::AtMost(READS_PER_LARGE + 2.0),
    }
}

/// The cells, both sides of each.
pub(super) const COSTS: [Cost; 8] = [
    one("client"),
    one("server"),
    many("client"),
    many("server"),
    owner("1 MiB requests", "client"),
    reader("1 MiB requests", "server"),
    reader("1 MiB answers", "client"),
    owner("1 MiB answers", "server"),
];

/// The raw figures of a run, from which calls are predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Model {
    /// SEND and SEND back, µs.
    pub(super) round_trip: f64,
    /// SENDs/s of one QP.
    pub(super) sends: f64,
    /// READs, MB/s.
    pub(super) reads: f64,
    /// CPU time of a call beside the device, both sides, µs: one outstanding, and of many.
    pub(super) cpu: [f64; 2],
    /// SENDs of both sides for each of many calls, as counted.
    pub(super) sends_per_call: f64,
}

impl Model {
    /// From the medians of a run; `None` if one is missing.
    pub(super) fn of(median: impl Fn(&str) -> Option<f64>) -> Option<Self> {
        let requests = |side: &str| median(&format!("64 outstanding {side} requests"));
        Some(Self {
            round_trip: median("raw SEND p50 us")?,
            sends: median("raw SENDs/s")?,
            reads: median("raw READ MB/s")?,
            cpu: [median("software 1 outstanding us")?, median("software 64 outstanding us")?],
            sends_per_call: requests("client")? + requests("server")?,
        })
    }

    /// Heading, the name of what was measured, the prediction, digits.
    pub(super) fn predictions(&self) -> [(&'static str, &'static str, f64, usize); 3] {
        // One after the other: the device's way there and back, and both sides' instructions.
        let call = self.round_trip + self.cpu[0];
        // Both sides work at the same time, each on its half; what a SEND costs comes on top of each.
        let busy = self.cpu[1] / 2.0 + self.sends_per_call / self.sends * 1e6;
        // The calls' own exchange is in the shadow of the other payloads.
        let large = LARGE_MB / (LARGE_MB / self.reads + call / 1e6 / LARGE_AT_ONCE);
        [
            ("call of 64 B, µs", "1 outstanding p50 us", call, 1),
            ("calls/s, 64 at once", "64 outstanding calls/s", 1e6 / busy, 0),
            ("requests of 1 MiB, MB/s", "1 MiB requests MB/s", large, 1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_the_devices_time_and_the_cpus() {
        let model = Model {
            round_trip: 4.0,
            sends: 5e6,
            reads: 10_000.0,
            cpu: [6.0, 2.0],
            sends_per_call: 0.2,
        };
        let [call, rate, large] = model.predictions().map(|(_, _, predicted, _)| predicted);
        assert!((call - 10.0).abs() < 1e-9);
        assert!((rate - 1e6 / 1.04).abs() < 1e-3, "1 µs of CPU and 0.04 µs of SENDs: {rate}");
        assert!(large < 10_000.0 && large > 9_700.0, "{large}");
        assert_eq!(Model::of(|_| None), None);
    }

    #[test]
    fn every_side_of_a_cell_has_its_model() {
        for pair in COSTS.chunks(2) {
            assert_eq!(
                (pair[0].cell, pair[0].side, pair[1].side),
                (pair[1].cell, "client", "server")
            );
        }
        assert_eq!(
            (Count::AtMost(0.125).show(), Count::About(1.0).show()),
            ("≤ 0.12".into(), "1.00".into())
        );
    }
}
