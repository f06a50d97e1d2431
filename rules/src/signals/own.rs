//! A unit's own pace, where no metrics page tells its progress: what its silicon does, against what the same silicon did
//! with the same workload while all was well.
//!
//! The pace is the larger of tensor and DRAM activity, each as a part of its prior, or utilization times power where
//! there is no GPM. Blocks in which the unit was busy and nothing was wrong make the normal. A fall below it is no
//! verdict: evaluation, a checkpoint and a person who thinks look the same. A rule needs a cause beside it.

use alloc::collections::VecDeque;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::ENOUGH_SECONDS;
use super::exact::Exact;
use crate::baseline::{Deviation, Track, Worse};
use crate::{Policy, WeightSource};

/// The weight of a tick looks back so far.
const TRAIL: Nanos = Nanos::from_secs(10);
/// Less than this part of the priors is nobody's full work: a unit that was starved from its first hour on must not learn
/// that as its normal.
const LEAST: f64 = 0.25;
/// A block teaches from this utilization on: below it the unit had no work, whatever it did with it.
const BUSY: f64 = 0.6;
/// A pace that stays away from its normal for so long, and nobody is to blame, is another phase: it is learnt anew.
const ANEW: Nanos = Nanos::from_secs(600);
/// The better source must be away for so long before the other takes its place.
const AWAY: Nanos = Nanos::from_secs(60);

/// What was learnt of a unit with its present workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Own {
    workload: u64,
    source: Option<WeightSource>,
    pace: Track,
    exact: Exact,
    trail: VecDeque<(Nanos, f64)>,
    /// The last reading, until its block is known.
    last: Option<f64>,
    block: Option<u64>,
    read: Nanos,
    off_since: Option<Nanos>,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            workload: 0,
            source: None,
            pace: Track::new(Worse::Lower, ENOUGH_SECONDS),
            exact: Exact::default(),
            trail: VecDeque::new(),
            last: None,
            block: None,
            read: Nanos(0),
            off_since: None,
        }
    }
}

/// What is known of the block that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lesson {
    /// Which workload the unit has, if that can be told.
    pub(crate) workload: Option<u64>,
    /// Utilization of the block.
    pub(crate) util: Option<f64>,
    /// Nobody is blamed for anything, and it works.
    pub(crate) well: bool,
    /// Nor does it do less than it normally does.
    pub(crate) full: bool,
}

impl Own {
    /// Takes in a reading, and settles the tick that ends now.
    pub(crate) fn read(&mut self, now: Nanos, pace: Option<(WeightSource, f64)>, policy: &Policy) {
        while self.trail.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= TRAIL) {
            self.trail.pop_front();
        }
        self.last = None;
        if let Some((source, pace)) = pace.filter(|(_, pace)| pace.is_finite())
            && self.accept(source, now)
        {
            let seconds = now.saturating_sub(self.read).as_secs_f64().min(TRAIL.as_secs_f64());
            let ratio = self.normal(policy).map(|normal| pace / normal);
            self.exact.page(ratio, seconds, self.scatter(policy));
            self.trail.push_back((now, pace));
            (self.last, self.read) = (Some(pace), now);
        }
        let fresh = !self.trail.is_empty();
        self.exact.book(now, fresh);
    }

    /// Whether a reading is of the source that is learnt from. The better one takes over at once.
    fn accept(&mut self, source: WeightSource, now: Nanos) -> bool {
        match self.source {
            Some(known) if known == source => return true,
            Some(WeightSource::Gpm) if now.saturating_sub(self.read) < AWAY => return false,
            _ => {}
        }
        *self = Self { workload: self.workload, source: Some(source), ..Self::default() };
        true
    }

    /// Ends the block if its time is over, and takes the reading into the one under way.
    pub(crate) fn learn(&mut self, now: Nanos, lesson: Lesson, policy: &Policy) {
        if let Some(workload) = lesson.workload.filter(|workload| *workload != self.workload) {
            *self = Self { workload, source: self.source, read: self.read, last: self.last, ..Self::default() };
        }
        let length = policy.block_ns.0.max(1);
        let block = now.0 / length;
        if let Some(open) = self.block.replace(block).filter(|open| *open != block) {
            let busy = lesson.util.is_none_or(|util| util >= BUSY);
            self.pace.close(Nanos(open.saturating_mul(length)), lesson.well && lesson.full && busy, policy);
            let off = lesson.well && self.pace.deviation(policy).is_some_and(|deviation| deviation.alarm);
            self.off_since = off.then(|| self.off_since.unwrap_or(now));
            if self.off_since.is_some_and(|since| now.saturating_sub(since) >= ANEW) {
                self.pace = Track::new(Worse::Lower, ENOUGH_SECONDS);
                self.off_since = None;
            }
        }
        if let Some(pace) = self.last.take() {
            self.pace.add(pace, 1.0);
        }
    }

    fn normal(&self, policy: &Policy) -> Option<f64> {
        self.pace.normal(policy).filter(|normal| *normal >= LEAST)
    }

    /// Whether there is a normal.
    pub(crate) fn is_known(&self, policy: &Policy) -> bool {
        self.pace.mature(policy)
    }

    /// Ordinary scatter, as a part of the normal.
    fn scatter(&self, policy: &Policy) -> f64 {
        let normal = self.pace.normal(policy).unwrap_or(0.0);
        if normal > 0.0 { (self.pace.spread() / normal).max(0.02) } else { 0.02 }
    }

    /// Pace of the last seconds as a part of the own normal, and whose word it is. Within twice the ordinary scatter it
    /// *is* the normal.
    pub(crate) fn weight(&self, policy: &Policy) -> Option<(WeightSource, f64)> {
        let normal = self.normal(policy)?;
        let (sum, n) = self.trail.iter().fold((0.0, 0_u32), |(sum, n), (_, pace)| (sum + pace, n.saturating_add(1)));
        let ratio = (n > 0).then(|| sum / f64::from(n) / normal)?;
        Some((self.source?, if ratio >= 1.0 - 2.0 * self.scatter(policy) { 1.0 } else { ratio }))
    }

    /// The productive part of the tick at hand, exact over time; nothing without a normal.
    pub(crate) const fn exact(&self) -> Option<f64> {
        self.exact.w()
    }

    /// What the last block says, once there is a normal.
    pub(crate) fn deviation(&self, policy: &Policy) -> Option<Deviation> {
        self.normal(policy)?;
        self.pace.deviation(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Lesson = Lesson { workload: Some(1), util: Some(0.9), well: true, full: true };

    fn feed(own: &mut Own, seconds: core::ops::Range<u64>, pace: f64, lesson: Lesson) {
        for second in seconds {
            let now = Nanos::from_secs(second);
            own.read(now, Some((WeightSource::Gpm, pace)), &Policy::default());
            own.learn(now, lesson, &Policy::default());
        }
    }

    #[test]
    fn half_of_its_own_pace_is_half_whatever_the_priors_say() {
        let (mut own, policy) = (Own::default(), Policy::default());
        feed(&mut own, 0..200, 1.6, WELL);
        assert_eq!(own.weight(&policy), Some((WeightSource::Gpm, 1.0)));
        let slow = Lesson { full: false, ..WELL };
        feed(&mut own, 200..230, 0.8, slow);
        let (_, w) = own.weight(&policy).unwrap();
        assert!((w - 0.5).abs() < 0.01, "{w}");
        assert!(own.exact().is_some_and(|w| (w - 0.5).abs() < 0.01));
        let deviation = own.deviation(&policy).unwrap();
        assert!(deviation.alarm && deviation.onset == Some(Nanos::from_secs(200)), "{deviation:?}");
    }

    #[test]
    fn little_work_is_no_normal_and_another_workload_begins_anew() {
        let (mut own, policy) = (Own::default(), Policy::default());
        feed(&mut own, 0..300, 0.1, WELL);
        assert_eq!(own.weight(&policy), None, "nobody's full work");
        let mut own = Own::default();
        feed(&mut own, 0..300, 1.0, Lesson { util: Some(0.4), ..WELL });
        assert_eq!(own.weight(&policy), None, "it had no work");
        feed(&mut own, 300..500, 1.0, WELL);
        assert!(own.weight(&policy).is_some());
        feed(&mut own, 500..501, 1.0, Lesson { workload: Some(2), ..WELL });
        assert_eq!(own.weight(&policy), None);
    }

    #[test]
    fn a_phase_that_stays_is_the_new_normal() {
        let (mut own, policy) = (Own::default(), Policy::default());
        feed(&mut own, 0..200, 1.6, WELL);
        feed(&mut own, 200..1200, 1.0, Lesson { full: false, ..WELL });
        assert_eq!(own.weight(&policy), None, "begun anew");
        feed(&mut own, 1200..1500, 1.0, WELL);
        assert_eq!(own.weight(&policy), Some((WeightSource::Gpm, 1.0)));
    }

    #[test]
    fn a_reading_that_fails_for_a_moment_does_not_change_the_source() {
        let (mut own, policy) = (Own::default(), Policy::default());
        feed(&mut own, 0..200, 1.6, WELL);
        own.read(Nanos::from_secs(200), Some((WeightSource::Proxy, 0.2)), &policy);
        assert_eq!(own.weight(&policy), Some((WeightSource::Gpm, 1.0)));
        own.read(Nanos::from_secs(270), Some((WeightSource::Proxy, 0.2)), &policy);
        assert_eq!(own.weight(&policy), None);
    }
}
