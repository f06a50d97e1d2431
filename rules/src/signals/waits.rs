//! How much of the time a workload waits for I/O while nothing is wrong.

use serde::{Deserialize, Serialize};

use crate::usage::Readings;

/// The mean goes over about so many blocks: five minutes.
const SPAN: u32 = 60;
/// Blocks from which it counts: one minute.
const ENOUGH: u32 = 12;

/// The mean of the `some` figure of a workload's own I/O pressure over its healthy blocks. Another workload begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Waits {
    workload: u64,
    block: Option<u64>,
    mean: f64,
    n: u32,
}

impl Waits {
    /// Learns from a block that is closed, once. `well`: nothing was wrong in it.
    pub(crate) fn learn(&mut self, open: Option<u64>, block: &Readings, workload: Option<u64>, well: bool) {
        if let Some(workload) = workload.filter(|workload| *workload != self.workload) {
            *self = Self { workload, ..Self::default() };
        }
        if open == self.block {
            return;
        }
        self.block = open;
        if let Some(some) = block.io_some.filter(|_| well) {
            self.n = self.n.saturating_add(1).min(SPAN);
            self.mean += (some - self.mean) / f64::from(self.n);
        }
    }

    /// Part of the time, 0 to 1, once that is known.
    pub(crate) fn usual(&self) -> Option<f64> {
        (self.n >= ENOUGH).then_some(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_healthy_blocks_of_one_workload_count() {
        let mut waits = Waits::default();
        let of = |some| Readings { io_some: Some(some), ..Readings::default() };
        for block in 0..20 {
            waits.learn(Some(block), &of(0.1), Some(1), true);
            waits.learn(Some(block), &of(0.9), Some(1), true);
        }
        (20..90).for_each(|block| waits.learn(Some(block), &of(0.9), Some(1), false));
        assert!((waits.usual().unwrap() - 0.1).abs() < 1e-9);
        waits.learn(Some(90), &of(0.1), Some(2), true);
        assert_eq!(waits.usual(), None, "another workload");
    }
}
