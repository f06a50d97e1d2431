//! What the silicon of a unit does against its own normal with this workload: the progress of a rank that tells none.

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::baseline::{Deviation, Track, Worse};
use crate::usage::Readings;

/// Of one unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Activity {
    track: Track,
    /// Its utilization: a rank that is late by its data has gaps that it did not have.
    util: Track,
    /// Which workload the normal is of.
    workload: u64,
    /// Whether GPM tells it, else power.
    measured: bool,
    /// The block that was open when it was last looked at.
    open: Option<u64>,
}

impl Default for Activity {
    fn default() -> Self {
        let track = || Track::new(Worse::Lower, 1.0);
        Self { track: track(), util: track(), workload: 0, measured: false, open: None }
    }
}

impl Activity {
    /// Takes in a block that was closed, once. `well`: nothing is known to be wrong in it.
    pub(crate) fn learn(
        &mut self,
        open: Option<u64>,
        block: &Readings,
        workload: Option<u64>,
        well: bool,
        policy: &Policy,
    ) {
        let measured = block.silicon().is_some();
        let another = workload.is_some_and(|workload| workload != self.workload);
        if another || (measured != self.measured && block.power_share().is_some()) {
            *self = Self { workload: workload.unwrap_or(self.workload), measured, open, ..Self::default() };
            return;
        }
        let Some(open) = open.filter(|open| self.open != Some(*open)) else { return };
        self.open = Some(open);
        if let Some(value) = block.silicon().or(block.power_share()) {
            self.track.add(value.max(0.0), 1.0);
        }
        let begin = Nanos(open.saturating_sub(1).saturating_mul(policy.block_ns.0));
        self.track.close(begin, well, policy);
        if let Some(util) = block.util {
            self.util.add(util.max(0.0), 1.0);
        }
        self.util.gauge(begin, well, policy);
    }

    /// How the last block stands to the own normal, once that is learnt.
    pub(crate) fn deviation(&self, policy: &Policy) -> Option<Deviation> {
        self.track.deviation(policy)
    }

    /// The same of its utilization.
    pub(crate) fn util(&self, policy: &Policy) -> Option<Deviation> {
        self.util.deviation(policy)
    }
}
