//! How hard the silicon below an engine works while kernels are on it, against its own normal: a second witness of an
//! engine's progress.
//!
//! An engine that is slowed down keeps its requests for longer, so that its batch grows into sizes that were never seen at
//! full speed, and nothing says how many tokens such a batch should make. Its silicon does: more sequences never make a
//! step's kernels do less. Activity is taken per second of utilization (an engine that is asked for less pauses, and is no
//! slower for it), tensor cores and DRAM apart, and the better of the two counts: prompts need the one, tokens the other.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::{Gpm, Gpu};
use gpuprod_snapshot::units::{Nanos, from_f64};
use serde::{Deserialize, Serialize};

use super::own::Lesson;
use crate::baseline::push;
use crate::{Policy, WeightSource, weight};

/// Below this utilization the quotient is noise.
const BUSY: f64 = 0.3;
/// Blocks that are kept: ten minutes, so that a fall over minutes does not take its normal along.
const KEPT: usize = 120;
/// Parts of one that a block is kept in.
const FINE: f64 = 100_000.0;
/// Seconds over which the present is taken.
const PRESENT: f64 = 6.0;
/// Less than this part of a busy GPU's activity is nobody's full work.
const LEAST: f64 = 0.25;
/// What stays away from its normal for so long, and nobody is to blame, is another kind of work: it is learnt anew.
const ANEW: Nanos = Nanos::from_secs(600);

/// One kind of activity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Kind {
    source: Option<WeightSource>,
    /// Means of healthy blocks, in hundred-thousandths: half the memory of floats.
    blocks: VecDeque<u32>,
    normal: f64,
    sum: f64,
    n: u32,
    /// The last seconds.
    now: Option<f64>,
    off_since: Option<Nanos>,
}

impl Kind {
    fn read(&mut self, reading: Option<(WeightSource, f64)>) {
        let Some((source, value)) = reading.filter(|(_, value)| value.is_finite()) else {
            self.now = None;
            return;
        };
        if self.source != Some(source) {
            *self = Self { source: Some(source), ..Self::default() };
        }
        (self.sum, self.n) = (self.sum + value, self.n.saturating_add(1));
        self.now = Some(self.now.map_or(value, |now| now + (value - now) / PRESENT));
    }

    /// Ends a block.
    fn close(&mut self, now: Nanos, lesson: Lesson, policy: &Policy) {
        let mean = (self.n > 1).then(|| self.sum / f64::from(self.n));
        (self.sum, self.n) = (0.0, 0);
        let Some(mean) = mean else { return };
        let off = self.normal(policy).is_some_and(|normal| slow(mean / normal, policy));
        self.off_since = (off && lesson.well).then(|| self.off_since.unwrap_or(now));
        if self.off_since.is_some_and(|since| now.saturating_sub(since) >= ANEW) {
            *self = Self { source: self.source, now: self.now, ..Self::default() };
            return;
        }
        if off || !lesson.well || !lesson.full {
            return;
        }
        let Some(fine) = from_f64(mean * FINE).and_then(|fine| u32::try_from(fine).ok()) else { return };
        push(&mut self.blocks, fine, KEPT);
        self.normal = self.middle();
    }

    /// The median of the blocks: looked for among whole numbers.
    fn middle(&self) -> f64 {
        let mut blocks: Vec<u32> = self.blocks.iter().copied().collect();
        let middle = blocks.len() / 2;
        let odd = blocks.len() % 2 == 1;
        if blocks.is_empty() {
            return 0.0;
        }
        let part = |fine: u32| f64::from(fine) / FINE;
        let (lower, high, _) = blocks.select_nth_unstable(middle);
        let low = lower.iter().max().filter(|_| !odd);
        low.map_or(part(*high), |low| (part(*low) + part(*high)) / 2.0)
    }

    fn normal(&self, policy: &Policy) -> Option<f64> {
        let blocks = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        (blocks >= policy.baseline_min_blocks && self.normal >= LEAST).then_some(self.normal)
    }

    fn ratio(&self, policy: &Policy) -> Option<f64> {
        let ratio = self.now? / self.normal(policy)?;
        Some(if slow(ratio, policy) { ratio } else { 1.0 })
    }
}

fn slow(ratio: f64, policy: &Policy) -> bool {
    1.0 - ratio >= policy.starved_warn.as_fraction()
}

/// What was learnt of one unit with its present engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Silicon {
    workload: Option<u64>,
    block: u64,
    /// Tensor cores; power where there is no GPM.
    tensor: Kind,
    dram: Kind,
}

impl Silicon {
    /// Takes in a tick, and ends the block if its time is over.
    pub(crate) fn step(
        &mut self,
        now: Nanos,
        (gpm, gpu): (Option<&Gpm>, Option<&Gpu>),
        lesson: Lesson,
        policy: &Policy,
    ) {
        if lesson.workload.is_some() && lesson.workload != self.workload {
            *self = Self { workload: lesson.workload, ..Self::default() };
        }
        let block = now.0 / policy.block_ns.0.max(1);
        if block != self.block {
            self.block = block;
            self.tensor.close(now, lesson, policy);
            self.dram.close(now, lesson, policy);
        }
        let util = gpu.and_then(|gpu| gpu.util.copied()).map(|util| util.as_fraction()).filter(|util| *util >= BUSY);
        let per = |pace: Option<(WeightSource, f64)>| Some((pace?.0, pace?.1 / util?));
        let [tensor, dram] = weight::intensities(gpm, gpu);
        self.tensor.read(per(tensor));
        self.dram.read(per(dram));
    }

    /// Its intensity in the last seconds as a part of its normal; one while it is in no doubt; nothing without a normal.
    pub(crate) fn ratio(&self, policy: &Policy) -> Option<f64> {
        [&self.tensor, &self.dram].into_iter().filter_map(|kind| kind.ratio(policy)).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprod_snapshot::units::{Permille, Ppb};

    fn feed(silicon: &mut Silicon, seconds: core::ops::Range<u64>, util: u32, (tensor, dram): (u32, u32)) {
        let gpu = Gpu { util: Permille(util).into(), ..Gpu::default() };
        let gpm = Gpm {
            tensor: Ppb(u64::from(tensor) * 1_000_000).into(),
            dram: Ppb(u64::from(dram) * 1_000_000).into(),
            ..Gpm::default()
        };
        let lesson = Lesson { workload: Some(1), util: Some(f64::from(util) / 1000.0), well: true, full: true };
        for second in seconds {
            silicon.step(Nanos::from_secs(second), (Some(&gpm), Some(&gpu)), lesson, &Policy::default());
        }
    }

    #[test]
    fn less_demand_and_another_kind_of_work_are_no_slowness() {
        let (mut silicon, policy) = (Silicon::default(), Policy::default());
        assert_eq!(silicon.ratio(&policy), None);
        feed(&mut silicon, 0..200, 800, (200, 480));
        assert_eq!(silicon.ratio(&policy), Some(1.0));
        feed(&mut silicon, 200..230, 400, (100, 240));
        assert_eq!(silicon.ratio(&policy), Some(1.0), "half of the requests");
        feed(&mut silicon, 230..260, 800, (90, 500));
        assert_eq!(silicon.ratio(&policy), Some(1.0), "fewer prompts, more tokens");
        feed(&mut silicon, 260..290, 1000, (125, 300));
        let slow = silicon.ratio(&policy).unwrap();
        assert!((slow - 0.5).abs() < 0.01, "half the work at full utilization: {slow}");
    }
}
