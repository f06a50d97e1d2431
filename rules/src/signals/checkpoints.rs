//! Checkpoints: the workload writes in one burst while its GPUs wait for it, and it has done so before.
//!
//! The first two bursts prove nothing and are booked as what they look like; from the third on, one like them is
//! overhead from its beginning, for half as long again as the longest of them. Ranks that spin while another writes belong
//! to the same workload and wait as well.

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

/// Bytes per second of a burst.
pub(crate) const RATE: f64 = 100e6;
/// Bytes of a burst that is a checkpoint.
const LEAST: f64 = 1e9;
/// A GPU that does less than this part of its work waits.
const WAITS: f64 = 0.3;
/// Bursts that must have been seen.
const BEFORE: u32 = 2;
/// A burst may pause for so long.
const PAUSE: Nanos = Nanos::from_secs(5);
/// One may take so many times the longest before it.
const OVER: (u64, u64) = (3, 2);
/// None takes longer than this, however long those before took.
pub(crate) const LONGEST: Nanos = Nanos::from_secs(1800);

/// What is known of a unit's bursts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Checkpoints {
    since: Option<Nanos>,
    last: Nanos,
    bytes: f64,
    seen: u32,
    /// The longest that was seen.
    longest: Nanos,
    /// Somebody is blamed while this one goes on.
    blamed: bool,
}

impl Checkpoints {
    /// Whether a burst goes on.
    pub(crate) const fn writes(&self) -> bool {
        self.since.is_some()
    }

    /// Takes in a tick: bytes per second that the workload writes, and the productive part of its GPU. Whether this is
    /// a checkpoint now. One longer than `usual` is one if those before it were as long while nobody was to `blame`: a
    /// drive that is late makes no usual length.
    pub(crate) fn step(
        &mut self,
        now: Nanos,
        (written, w): (Option<f64>, Option<f64>),
        blamed: bool,
        usual: Nanos,
    ) -> bool {
        let bursts = written.is_some_and(|rate| rate >= RATE) && w.is_some_and(|w| w < WAITS);
        if bursts {
            if self.since.is_none() {
                (self.since, self.bytes, self.last, self.blamed) = (Some(now), 0.0, now, false);
            }
            let seconds = now.saturating_sub(self.last).as_secs_f64();
            self.bytes += written.unwrap_or(0.0) * seconds.min(PAUSE.as_secs_f64());
            self.last = now;
        }
        let Some(since) = self.since else { return false };
        self.blamed |= blamed;
        if now.saturating_sub(self.last) > PAUSE {
            let length = self.last.saturating_sub(since);
            if self.bytes >= LEAST && length <= if self.blamed { usual } else { LONGEST } {
                self.seen = self.seen.saturating_add(1);
                self.longest = self.longest.max(length);
            }
            self.since = None;
            return false;
        }
        let like = Nanos(self.longest.0.saturating_mul(OVER.0) / OVER.1).min(LONGEST);
        self.seen >= BEFORE && w.is_some_and(|w| w < WAITS) && now.saturating_sub(since) <= like.max(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Nanos = Nanos::from_secs(120);

    /// Bursts of so many seconds, ten minutes apart; in each of them, how many seconds were known as a checkpoint.
    fn recognised(bursts: &[(u64, bool)]) -> alloc::vec::Vec<u64> {
        let mut checkpoints = Checkpoints::default();
        let of = |(round, (length, blamed)): (u64, &(u64, bool))| {
            let tick = |at: u64| {
                let writes = at >= 10 && at < 10 + length;
                let (written, w) = if writes { (800e6, 0.0) } else { (0.0, 1.0) };
                let now = Nanos::from_secs(round * 600 + at);
                u64::from(checkpoints.step(now, (Some(written), Some(w)), writes && *blamed, USUAL))
            };
            (0..600).map(tick).sum()
        };
        (0..).zip(bursts).map(of).collect()
    }

    #[test]
    fn the_third_burst_like_two_others_is_a_checkpoint() {
        let short = (20, false);
        assert_eq!(recognised(&[short, short, short, short, (180, false)]), [0, 0, 20, 20, 121], "up to the limit");
    }

    #[test]
    fn a_long_one_is_one_when_those_before_it_were_as_long() {
        let long = (180, false);
        assert_eq!(recognised(&[long, long, long, (400, false)]), [0, 0, 180, 269]);
        // A drive that is late is no usual length.
        assert_eq!(recognised(&[(20, false), (20, false), (300, true), (300, false)]), [0, 0, 121, 121]);
    }

    #[test]
    fn writing_beside_the_work_is_none() {
        let mut checkpoints = Checkpoints::default();
        for second in 0..600_u64 {
            let writes = second % 60 < 20;
            let written = Some(if writes { 800e6 } else { 0.0 });
            assert!(!checkpoints.step(Nanos::from_secs(second), (written, Some(0.9)), false, USUAL));
        }
    }
}
