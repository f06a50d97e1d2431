//! What latency a device normally shows at a load. Requests wait for each other on every device: one that is asked for
//! more answers later, and is well. The table only clears a device; what it has not seen says nothing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::baseline::{median, push};

/// Loads are told apart by their power of ten: requests in flight times megabytes per second, from below .1 to 100,000 and
/// more (Perseus, FAST'23, compares latency at a throughput; a device that got slow moves fewer bytes with as many requests).
const LOADS: usize = 8;
/// The lowest power of ten that has a row of its own.
const LOWEST: f64 = -1.0;
/// Blocks that are kept of each: two minutes.
const KEPT: usize = 24;
/// Loads within so many times of each other are alike.
const ALIKE: f64 = 3.0;
/// Fewer say nothing.
const ENOUGH: usize = 12;
/// A block is learnt a minute later, if nobody was found to suffer until then: twice as long as starvation takes to be told.
const PROBATION: usize = 12;

/// Load and latency of one device in healthy blocks. At most 8 x 24 pairs: rows keep rare loads from being pushed out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ByLoad {
    rows: Vec<VecDeque<(f64, f64)>>,
    /// Blocks that are not learnt yet.
    probation: VecDeque<(f64, f64)>,
    /// The load of the last block.
    now: Option<f64>,
    /// What is normal at that load: asked for every second, by every unit.
    #[serde(default)]
    usual: Option<Usual>,
}

/// A latency that is normal at a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usual {
    /// Median, in the unit of the latency.
    pub(crate) latency: f64,
    /// Blocks that it rests on.
    pub(crate) n: usize,
}

/// The row of a load; the first takes everything below it, the last everything above.
fn row(load: f64) -> usize {
    let power = libm::floor(libm::log10(load.max(f64::MIN_POSITIVE))) - LOWEST + 1.0;
    (0..LOADS - 1).take_while(|row| gpuprod_snapshot::units::to_f64(u64::try_from(*row).unwrap_or(0)) < power).count()
}

impl ByLoad {
    /// Takes in a block: its latency, what was in flight, and bytes per second.
    pub(super) fn close(&mut self, block: Option<(f64, f64, f64)>, healthy: bool) {
        self.learn(block, healthy);
        self.usual = self.look_up();
    }

    fn learn(&mut self, block: Option<(f64, f64, f64)>, healthy: bool) {
        self.now = None;
        if !healthy {
            self.probation.clear();
        }
        let Some((latency, in_flight, bytes)) = block.filter(|(latency, ..)| latency.is_finite()) else { return };
        let load = in_flight * bytes / 1e6;
        self.now = Some(load);
        if !healthy {
            return;
        }
        self.probation.push_back((load, latency));
        if self.probation.len() > PROBATION
            && let Some((load, latency)) = self.probation.pop_front()
        {
            self.rows.resize_with(LOADS, VecDeque::new);
            if let Some(known) = self.rows.get_mut(row(load)) {
                push(known, (load, latency), KEPT);
            }
        }
    }

    /// What is normal at the load of the last block; none where that was hardly ever seen.
    pub(crate) fn usual(&self) -> Option<Usual> {
        self.usual
    }

    fn look_up(&self) -> Option<Usual> {
        let now = self.now?;
        let alike = self.rows.iter().flatten().filter(|(load, _)| *load <= now * ALIKE && *load * ALIKE >= now);
        let mut values: Vec<f64> = alike.map(|(_, latency)| *latency).collect();
        (values.len() >= ENOUGH).then(|| Usual { latency: median(&mut values), n: values.len() })
    }

    /// Another agent goes on: what was learnt stays.
    pub(super) fn rest(&mut self) {
        (self.now, self.usual, self.probation) = (None, None, VecDeque::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(table: &mut ByLoad, blocks: usize, block: (f64, f64, f64), healthy: bool) {
        (0..blocks).for_each(|_| table.close(Some(block), healthy));
    }

    #[test]
    fn loads_are_told_apart_by_powers_of_ten() {
        let rows = [0.0, 0.09, 0.1, 0.99, 1.0, 50.0, 5e2, 5e3, 5e4, 5e5, f64::MAX].map(row);
        assert_eq!(rows, [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 7]);
    }

    #[test]
    fn late_at_a_load_is_normal_only_if_it_was_seen_there_without_a_victim() {
        let (calm, rush) = ((2.0, 1.0, 300e6), (9.0, 40.0, 3e9));
        let mut table = ByLoad::default();
        feed(&mut table, 60, calm, true);
        assert_eq!(table.usual(), Some(Usual { latency: 2.0, n: 24 }));
        // Never seen: nothing can be said.
        feed(&mut table, 6, rush, true);
        assert_eq!(table.usual(), None);
        // Seen, and somebody was found to suffer within the minute: not learnt.
        feed(&mut table, 6, rush, true);
        feed(&mut table, 20, rush, false);
        assert_eq!(table.usual(), None);
        // Seen for two minutes without a victim.
        feed(&mut table, 24, rush, true);
        assert_eq!(table.usual(), Some(Usual { latency: 9.0, n: 12 }));
        // A device that got slow moves fewer bytes with as many requests: that row knows better.
        feed(&mut table, 1, (9.0, 1.0, 150e6), true);
        assert_eq!(table.usual(), Some(Usual { latency: 2.0, n: 24 }));
    }

    #[test]
    fn it_is_small_and_survives_a_restart() {
        let mut table = ByLoad::default();
        for power in 0..2000_u32 {
            feed(&mut table, 1, (1.0, f64::from(power % 9), 1e5 * f64::from(1 + power)), true);
        }
        let size: usize = table.rows.iter().map(VecDeque::len).sum();
        assert!(size <= 192 && table.probation.len() <= 12, "{size}");
        let usual = table.usual();
        table.rest();
        assert_eq!(table.usual(), None, "no block was seen yet");
        feed(&mut table, 1, (1.0, 1.0, 2e8), true);
        assert!(usual.is_some() && table.usual().is_some());
    }
}
