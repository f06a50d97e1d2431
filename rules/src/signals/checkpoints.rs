//! Checkpoints: the workload writes in one burst while its GPUs wait for it, and it has done so before.
//!
//! The first two bursts prove nothing and are booked as what they look like; from the third on, one like them is
//! overhead from its beginning. Ranks that spin while another writes belong to the same workload and wait as well.

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

/// Bytes per second of a burst.
const RATE: f64 = 100e6;
/// Bytes of a burst that is a checkpoint.
const LEAST: f64 = 1e9;
/// A GPU that does less than this part of its work waits.
const WAITS: f64 = 0.3;
/// Bursts that must have been seen.
const BEFORE: u32 = 2;
/// A burst may pause for so long.
const PAUSE: Nanos = Nanos::from_secs(5);

/// What is known of a unit's bursts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Checkpoints {
    since: Option<Nanos>,
    last: Nanos,
    bytes: f64,
    seen: u32,
}

impl Checkpoints {
    /// Whether a burst goes on.
    pub(crate) const fn writes(&self) -> bool {
        self.since.is_some()
    }

    /// Takes in a tick: bytes per second that the workload writes, and the productive part of its GPU. Whether this is
    /// a checkpoint now. Longer than `longest` is none.
    pub(crate) fn step(&mut self, now: Nanos, written: Option<f64>, w: Option<f64>, longest: Nanos) -> bool {
        let bursts = written.is_some_and(|rate| rate >= RATE) && w.is_some_and(|w| w < WAITS);
        if bursts {
            if self.since.is_none() {
                (self.since, self.bytes, self.last) = (Some(now), 0.0, now);
            }
            let seconds = now.saturating_sub(self.last).as_secs_f64();
            self.bytes += written.unwrap_or(0.0) * seconds.min(PAUSE.as_secs_f64());
            self.last = now;
        }
        let Some(since) = self.since else { return false };
        if now.saturating_sub(self.last) > PAUSE {
            let length = self.last.saturating_sub(since);
            if self.bytes >= LEAST && length <= longest {
                self.seen = self.seen.saturating_add(1);
            }
            self.since = None;
            return false;
        }
        self.seen >= BEFORE && w.is_some_and(|w| w < WAITS) && now.saturating_sub(since) <= longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_burst_like_two_others_is_a_checkpoint() {
        let mut checkpoints = Checkpoints::default();
        let mut recognised = [0; 5];
        for second in 0..1000_u64 {
            let (round, at) = (usize::try_from(second / 200).unwrap(), second % 200);
            // 20 s of writing; in the last round, for three minutes.
            let writes = at >= 10 && at < if round == 4 { 190 } else { 30 };
            let (written, w) = if writes { (800e6, 0.0) } else { (0.0, 1.0) };
            let now = Nanos::from_secs(second);
            recognised[round] += u64::from(checkpoints.step(now, Some(written), Some(w), Nanos::from_secs(120)));
        }
        assert_eq!(recognised, [0, 0, 20, 20, 121], "and no longer than the limit");
    }

    #[test]
    fn writing_beside_the_work_is_none() {
        let mut checkpoints = Checkpoints::default();
        for second in 0..600_u64 {
            let writes = second % 60 < 20;
            let written = Some(if writes { 800e6 } else { 0.0 });
            assert!(!checkpoints.step(Nanos::from_secs(second), written, Some(0.9), Nanos::from_secs(120)));
        }
    }
}
