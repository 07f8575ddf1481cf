use comfy_table::{CellAlignment, Table, presets};

use crate::demo::levels::{Levels, Traffic};
use crate::failure::{Exit, err};
use crate::text::grouped;
use crate::transfer::entry::Entry;
use crate::transfer::meter::Meter;
use crate::transfer::told::{Told, skipped};
use crate::transfer::walk::Found;

/// What the demo did, and what it left.
pub(crate) struct Report {
    pub(crate) put: Meter,
    pub(crate) get: Meter,
    pub(crate) put_traffic: Traffic,
    pub(crate) get_traffic: Traffic,
    /// Files loaded a second time because they had changed.
    pub(crate) retried: usize,
    pub(crate) server: Ends,
    pub(crate) client: Ends,
    /// The server's payload memory in use at its peak, in bytes.
    pub(crate) server_peak: u64,
}

/// The levels of one process after connecting and after the work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// After connecting.
    pub(crate) begin: Levels,
    /// After the work.
    pub(crate) end: Levels,
    /// Connections that are this process's own, if others may have some too.
    pub(crate) own: Option<u64>,
}

impl Ends {
    /// Levels at the beginning, and so far none after.
    pub(crate) fn begin(begin: Levels) -> Self {
        Self { begin, end: Levels::default(), own: None }
    }

    /// The same of a process that others may use too, who have all connections beyond so many.
    pub(crate) fn shared(self, own: Option<u64>) -> Self {
        Self { own, ..self }
    }

    /// Whether others used it: then nobody can say what of its levels is whose.
    pub(crate) fn has_others(&self) -> bool {
        let most = self.begin.connections.max(self.end.connections);
        self.own.is_some_and(|own| most > own)
    }

    /// Whether all is at the end as it was at the beginning, as far as that can be told.
    pub(crate) fn is_restored(&self) -> bool {
        self.begin == self.end || self.has_others()
    }
}

impl Report {
    /// The table.
    pub(crate) fn table(&self, found: &Found) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(["", "put", "get"]);
        let (put, get) = (&self.put, &self.get);
        let mut row = |name: &str, put: String, get: String| {
            table.add_row([name.to_owned(), put, get]);
        };
        row("files", grouped(put.files), grouped(get.files));
        row("calls", grouped(put.calls), grouped(get.calls));
        row("  repeated for want of memory", grouped(put.repeats), grouped(get.repeats));
        row("bytes", grouped(put.bytes), grouped(get.bytes));
        let (to, from) = (&self.put_traffic, &self.get_traffic);
        let eager = |meter: &Meter, traffic: &Traffic| {
            grouped(meter.calls.saturating_sub(traffic.values_by_read))
        };
        row("values in the message (eager)", eager(put, to), eager(get, from));
        row("values by READ", grouped(to.values_by_read), grouped(from.values_by_read));
        row("eager bytes of the device", grouped(to.eager_bytes), grouped(from.eager_bytes));
        row("READ bytes of the device", grouped(to.read_bytes), grouped(from.read_bytes));
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            let of = |meter: &Meter| micros(meter.nanos.value_at_quantile(quantile));
            row(name, of(put), of(get));
        }
        let speed = |meter: &Meter| format!("{:.1}", meter.megabytes_per_second());
        row("MB/s", speed(put), speed(get));
        table.add_row(["", "after connecting", "at the end"]);
        for (name, ends) in [("server", &self.server), ("client", &self.client)] {
            for (what, of) in LEVELS {
                table.add_row([
                    format!("{name}: {what}"),
                    grouped(of(&ends.begin)),
                    grouped(of(&ends.end)),
                ]);
            }
        }
        table.add_row([
            "server: payload bytes at peak".to_owned(),
            String::new(),
            grouped(self.server_peak),
        ]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{table}\n{}\n", skipped(found))
    }

    /// Tells on standard error what went wrong; how to end.
    pub(crate) fn problems(&self, entries: &[Entry], found: &Found) -> Exit {
        let mut told = Told::default();
        told.files(entries, found);
        for (name, ends) in [("server", &self.server), ("client", &self.client)] {
            if ends.has_others() {
                err(format_args!("the {name} has others too: its levels are not compared\n"));
                continue;
            }
            for (what, of) in LEVELS {
                let (begin, end) = (of(&ends.begin), of(&ends.end));
                if begin != end {
                    told.tell(Exit::Failed, format_args!("not restored: {name}: {what}: {begin} after connecting, {end} at the end"));
                }
            }
        }
        told.end()
    }
}

/// The levels by name.
type Level = (&'static str, fn(&Levels) -> u64);

const LEVELS: [Level; 5] = [
    ("payload bytes in use", |levels| levels.memory),
    ("leases", |levels| levels.leases),
    ("windows bound", |levels| levels.windows),
    ("credits granted", |levels| levels.credits),
    ("connections", |levels| levels.connections),
];

fn micros(nanos: u64) -> String {
    format!("{} µs", grouped(nanos.div_ceil(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_are_not_equal_are_not_restored() {
        let begin = Levels { memory: 0, leases: 0, windows: 0, credits: 2, connections: 1 };
        let mut ends = Ends::begin(begin);
        assert!(!ends.is_restored());
        ends.end = begin;
        assert!(ends.is_restored());
        ends.end.memory = 4096;
        assert!(!ends.is_restored() && !ends.shared(Some(1)).is_restored());
        // What another client has of a server is not the demo's to judge.
        ends.end.connections = 2;
        assert!(!ends.is_restored() && ends.shared(Some(1)).is_restored());
        assert!(!ends.shared(Some(2)).is_restored(), "both are its own");
    }
}
