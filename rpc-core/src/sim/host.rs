use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::dice::Dice;
use super::node::Node;
use crate::RuntimeBuilder;
use crate::runtime::SimulatedRuntime;
use crate::verbs::soft::Verb;

/// A place for a node: what makes it, and the life that runs there, if one does.
pub(super) struct Host {
    pub(super) name: Rc<str>,
    pub(super) settings: RuntimeBuilder,
    pub(super) make: Box<dyn FnMut(&Node)>,
    pub(super) life: Option<Life>,
    pub(super) lives: u32,
    /// Comes back then.
    pub(super) restart_at: Option<Duration>,
    pub(super) verbs: Arc<Mutex<VerbFaults>>,
}

/// A node that runs.
pub(super) struct Life {
    pub(super) node: Node,
    pub(super) runtime: SimulatedRuntime,
    pub(super) state: State,
    /// Does nothing until then.
    pub(super) stopped_until: Option<Duration>,
}

/// What a node is doing.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It turns again at this time.
    Awake(Duration),
    /// It sleeps until something comes, and no longer than this.
    Asleep {
        until: Option<Duration>,
        /// A notification of completions was lost: it does not end the sleep.
        deaf: bool,
    },
}

impl Life {
    /// When it turns next, as far as is known.
    pub(super) fn next(&self) -> Option<Duration> {
        let at = match self.state {
            State::Awake(at) => Some(at),
            State::Asleep { until, .. } => until,
        };
        at.map(|at| at.max(self.stopped_until.unwrap_or(Duration::ZERO)))
    }
}

/// Which verbs of a node's device fail.
pub(super) struct VerbFaults {
    dice: Dice,
    per_million: u32,
    /// Not while the node is made: it could not start.
    armed: bool,
    /// This verb fails after so many more of it.
    chosen: Vec<(Verb, u64)>,
    pub(super) failed: u64,
}

impl VerbFaults {
    pub(super) fn new(dice: Dice) -> Arc<Mutex<Self>> {
        let chosen = Vec::new();
        Arc::new(Mutex::new(Self { dice, per_million: 0, armed: false, chosen, failed: 0 }))
    }

    fn hits(&mut self, verb: Verb) -> bool {
        if !self.armed {
            return false;
        }
        let mut hit = self.per_million > 0 && self.dice.chance(self.per_million);
        self.chosen.retain_mut(|(chosen, left)| {
            if *chosen != verb {
                return true;
            }
            hit |= *left == 0;
            *left = left.wrapping_sub(1);
            *left != u64::MAX
        });
        self.failed += u64::from(hit);
        hit
    }
}

impl Host {
    /// The hook for its device.
    pub(super) fn fails(&self) -> Arc<dyn Fn(Verb) -> bool + Send + Sync> {
        let verbs = Arc::clone(&self.verbs);
        Arc::new(move |verb| verbs.lock().unwrap_or_else(PoisonError::into_inner).hits(verb))
    }

    /// Lets so many verbs in a million fail from now on.
    pub(super) fn arm_verbs(&self, armed: bool, per_million: u32) {
        let mut verbs = self.verbs.lock().unwrap_or_else(PoisonError::into_inner);
        (verbs.armed, verbs.per_million) = (armed, per_million);
    }

    /// Lets the `k`-th verb of this kind from now on fail, counted from 0.
    pub(super) fn fail_verb(&self, verb: Verb, k: u64) {
        let mut verbs = self.verbs.lock().unwrap_or_else(PoisonError::into_inner);
        verbs.chosen.push((verb, k));
    }

    pub(super) fn verbs_failed(&self) -> u64 {
        self.verbs.lock().unwrap_or_else(PoisonError::into_inner).failed
    }
}
