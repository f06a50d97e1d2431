//! A unit's own levels of activity and power: what its silicon does when it is busy with this workload.
//!
//! Block means of healthy, busy blocks are kept for ten minutes. Once there are enough, the 90th percentile of tensor
//! and DRAM activity and the 75th of power take the place of the priors. Another workload begins anew.

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::to_f64;
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::order::Ring;
use crate::usage::Readings;

/// Utilization of a busy block.
const BUSY: f64 = 0.8;
/// Silicon that does less than this spins or copies; it is nobody's full work.
const WORKS: (f64, f64) = (0.02, 0.05);

/// One level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Level {
    /// Ten minutes of blocks.
    blocks: Ring,
    level: f64,
}

impl Level {
    /// Adds a block; `percent` is the percentile that is the level.
    fn learn(&mut self, value: Option<f64>, percent: usize) {
        let Some(value) = value.filter(|value| value.is_finite() && *value > 0.0) else { return };
        self.blocks.push(value);
        let rank = (self.blocks.len().saturating_sub(1)).saturating_mul(percent) / 100;
        self.level = self.blocks.nth(rank).unwrap_or(value);
    }

    fn mature(&self, policy: &Policy) -> Option<f64> {
        let blocks = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        (blocks >= policy.baseline_min_blocks).then_some(self.level)
    }
}

/// What was learnt of a unit with its present workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Normals {
    /// Power with a context held and nothing running, in milliwatts: the device's, whoever holds it.
    context: Option<f64>,
    /// Which workload the levels are of.
    workload: u64,
    tensor: Level,
    dram: Level,
    /// As a part of the limit.
    power: Level,
    /// The last block that was looked at.
    block: Option<u64>,
}

/// The references in force; none where a prior stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct References {
    /// Power with a context and nothing to do, in milliwatts.
    pub(crate) context: Option<f64>,
    pub(crate) tensor: Option<f64>,
    pub(crate) dram: Option<f64>,
    /// Power of a busy GPU, as a part of its limit.
    pub(crate) power: Option<f64>,
}

impl Normals {
    /// Learns from a second in which a context was held and nothing ran. `counts`: its page counts work, or may,
    /// whatever utilization says.
    pub(crate) fn learn_context(&mut self, gpu: &Gpu, counts: bool) {
        let held = gpu.processes.get().is_some_and(|processes| !processes.is_empty());
        let still = gpu.util.copied().is_some_and(|util| util.0 == 0);
        if let (true, true, Some(power)) = (held, still && !counts, gpu.power.copied()) {
            let power = to_f64(power.0);
            self.context = Some(self.context.map_or(power, |known| known.min(power)));
        }
    }

    /// Learns from a block that is closed, once. `well`: nothing was wrong in it.
    pub(crate) fn learn(&mut self, open: Option<u64>, block: &Readings, workload: Option<u64>, well: bool) {
        if let Some(workload) = workload.filter(|workload| *workload != self.workload) {
            *self = Self { context: self.context, workload, ..Self::default() };
        }
        if open == self.block {
            return;
        }
        self.block = open;
        let works = block.tensor.is_some_and(|tensor| tensor >= WORKS.0) || block.dram.is_some_and(|d| d >= WORKS.1);
        let busy = block.util.is_none_or(|util| util >= BUSY);
        if !well || !busy {
            return;
        }
        if works {
            self.tensor.learn(block.tensor, 90);
            self.dram.learn(block.dram, 90);
        }
        if works || block.silicon().is_none() {
            self.power.learn(block.power, 75);
        }
    }

    /// What is known well enough.
    pub(crate) fn references(&self, policy: &Policy) -> References {
        References {
            context: self.context,
            tensor: self.tensor.mature(policy),
            dram: self.dram.mature(policy),
            power: self.power.mature(policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(tensor: f64, util: f64) -> Readings {
        Readings { tensor: Some(tensor), dram: Some(0.3), util: Some(util), power: Some(0.7), ..Readings::default() }
    }

    #[test]
    fn a_level_is_a_percentile_of_busy_blocks_of_one_workload() {
        let (mut normals, policy) = (Normals::default(), Policy::default());
        let feed = |normals: &mut Normals, range: core::ops::Range<u64>, tensor: f64, util, workload, well| {
            for number in range {
                normals.learn(Some(number), &block(tensor, util), Some(workload), well);
            }
        };
        feed(&mut normals, 0..10, 0.4, 1.0, 1, true);
        assert_eq!(normals.references(&policy).tensor, None, "too young");
        feed(&mut normals, 10..60, 0.4, 1.0, 1, true);
        // Idle, in trouble, or spinning: not learnt from.
        feed(&mut normals, 60..160, 0.1, 0.5, 1, true);
        feed(&mut normals, 160..260, 0.1, 1.0, 1, false);
        assert_eq!(normals.references(&policy).tensor, Some(0.4));
        feed(&mut normals, 260..261, 0.1, 1.0, 2, true);
        assert_eq!(normals.references(&policy).tensor, None, "another workload");
        // One reading of a block counts once, however often it is seen.
        for _ in 0..100 {
            normals.learn(Some(261), &block(0.1, 1.0), Some(2), true);
        }
        assert_eq!(normals.references(&policy).tensor, None);
    }
}
