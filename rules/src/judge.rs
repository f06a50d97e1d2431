//! From tick to judgement.

use gpuprod_snapshot::Tick;

use crate::{Judgement, Policy};

/// Everything that was learnt, and the last two samples of every source.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    policy: Policy,
    last: Tick,
    prev: Tick,
}

impl Judge {
    /// A judge that has learnt nothing yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// The last sample of every source.
    #[must_use]
    pub fn known(&self) -> &Tick {
        &self.last
    }

    /// Judges what was newly read.
    pub fn step(&mut self, tick: &Tick) -> Judgement {
        self.last.advance(&mut self.prev, tick);
        let _ = &self.policy;
        Judgement {
            stamp: tick.stamp.clone(),
            period: tick.period,
            ..Judgement::default()
        }
    }
}
