//! What the server says of its own queues, beside the calls that are measured.

use rpc_core::{QueueCounters, Request, Response, Runtime, Status};

use super::trace;

/// What all cores of a runtime asked of their queues so far.
#[derive(Clone, Copy, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(super) struct Counted {
    /// Calls made and served.
    #[prost(uint64, tag = "1")]
    pub(super) calls: u64,
    #[prost(uint64, tag = "2")]
    pub(super) requests: u64,
    #[prost(uint64, tag = "3")]
    pub(super) send_doorbells: u64,
    #[prost(uint64, tag = "4")]
    pub(super) receive_doorbells: u64,
    #[prost(uint64, tag = "5")]
    pub(super) completions: u64,
    #[prost(uint64, tag = "6")]
    pub(super) arms: u64,
    #[prost(uint64, tag = "7")]
    pub(super) yields: u64,
}

impl Counted {
    /// What this runtime has counted so far.
    fn of(runtime: &Runtime) -> Self {
        let stats = runtime.stats();
        let queues =
            stats.cores.iter().fold(QueueCounters::default(), |sum, core| sum.plus(&core.queues));
        Self {
            calls: stats.cores.iter().map(|core| core.calls_made + core.calls_served).sum(),
            requests: queues.requests,
            send_doorbells: queues.send_doorbells,
            receive_doorbells: queues.receive_doorbells,
            completions: queues.completions,
            arms: queues.arms,
            yields: stats.cores.iter().map(|core| core.yields).sum(),
        }
    }

    /// What was counted between `before` and now, for each call: the counts by name, and how many calls.
    pub(super) fn per_call_since(&self, before: &Self) -> [(&'static str, f64); 7] {
        let calls = self.calls.saturating_sub(before.calls) as f64;
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / calls.max(1.0);
        [
            ("requests", each(self.requests, before.requests)),
            ("doorbells", each(self.send_doorbells, before.send_doorbells)),
            ("receive doorbells", each(self.receive_doorbells, before.receive_doorbells)),
            ("completions", each(self.completions, before.completions)),
            ("arms", each(self.arms, before.arms)),
            ("yields", each(self.yields, before.yields)),
            ("calls", calls),
        ]
    }
}

/// What a runtime has counted so far, with a mark in its process's trace if it has one.
pub(super) fn look(runtime: &Runtime) -> Counted {
    trace::mark();
    Counted::of(runtime)
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub(super) struct Nothing {}

/// The server's own counts.
#[rpc_core::service(name = "bench.Counts")]
pub(super) trait Counts {
    /// What it has counted so far.
    async fn counted(&self, request: Request<Nothing>) -> Result<Response<Counted>, Status>;
}

/// Serves [`Counts`] of a runtime.
pub(super) struct CountsOf(pub(super) Runtime);

impl Counts for CountsOf {
    async fn counted(&self, _request: Request<Nothing>) -> Result<Response<Counted>, Status> {
        Ok(Response::new(look(&self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_each_call_between_two_looks() {
        let before = Counted { calls: 10, requests: 100, ..Counted::default() };
        let now = Counted { calls: 30, requests: 110, arms: 40, ..Counted::default() };
        let counts = now.per_call_since(&before);
        assert_eq!((counts[0], counts[4]), (("requests", 0.5), ("arms", 2.0)));
        assert_eq!(counts[6], ("calls", 20.0));
        assert_eq!(
            before.per_call_since(&before)[0].1,
            0.0,
            "without calls there is nothing to divide"
        );
    }
}
