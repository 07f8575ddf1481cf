use std::time::Duration;

use super::Sim;
use super::dice::Dice;
use super::faults::Faults;

/// Kinds of faults that come by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Kill,
    Stop,
    Cut,
    Part,
}

/// When faults come next.
pub(super) struct Plan {
    next: Vec<(Duration, Kind, Duration)>,
    until: Duration,
}

/// A mean below this is taken for it: with none at all, time would never pass.
const MEAN_MIN: Duration = Duration::from_millis(1);

impl Plan {
    pub(super) fn new(faults: &Faults, dice: &mut Dice) -> Self {
        let kinds = [
            (Kind::Kill, faults.kills),
            (Kind::Stop, faults.stops),
            (Kind::Cut, faults.cuts),
            (Kind::Part, faults.partitions),
        ];
        let begun = |(kind, mean): (Kind, Option<Duration>)| {
            let mean = mean?.max(MEAN_MIN);
            Some((dice.until_next(mean), kind, mean))
        };
        Self { next: kinds.into_iter().filter_map(begun).collect(), until: faults.until }
    }

    /// When the next one comes.
    pub(super) fn next(&self) -> Option<Duration> {
        self.next.iter().map(|(at, ..)| *at).min().filter(|at| *at < self.until)
    }

    /// None comes any more.
    pub(super) fn end(&mut self) {
        self.next.clear();
    }

    /// Takes the kind that comes next, and draws when it comes again.
    fn take(&mut self, dice: &mut Dice) -> Option<Kind> {
        let (at, kind, mean) = self.next.iter_mut().min_by_key(|(at, ..)| *at)?;
        *at += dice.until_next(*mean);
        Some(*kind)
    }
}

impl Sim {
    /// Something goes wrong.
    pub(super) fn next_fault(&mut self) {
        let now = self.passed();
        let Some(kind) = self.plan.take(&mut self.dice) else { return };
        let nodes = self.hosts.len() as u64;
        if nodes == 0 {
            return;
        }
        let node = self.dice.below(nodes) as usize;
        match kind {
            Kind::Kill => {
                if self.hosts[node].life.is_some() {
                    self.kill_node(node);
                    let down = self.dice.span(&self.faults.down);
                    self.hosts[node].restart_at = Some(now + down);
                }
            }
            Kind::Stop => {
                let until = now + self.dice.span(&self.faults.stopped);
                self.stop_node(node, until);
            }
            Kind::Cut | Kind::Part if nodes < 2 => {}
            Kind::Cut | Kind::Part => {
                let other = (node as u64 + 1 + self.dice.below(nodes - 1)) % nodes;
                if kind == Kind::Cut {
                    self.cut_nodes(node, other as usize);
                } else {
                    let until = now + self.dice.span(&self.faults.parted);
                    self.part_nodes(node, other as usize, until);
                }
            }
        }
    }
}
