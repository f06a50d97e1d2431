//! Own normal: block means, their healthy distribution, and the change-point test.
//!
//! A track keeps one signal of one subject. Readings are gathered into blocks of 5 s, since the mean of a
//! block has little autocorrelation left; healthy blocks make the baseline (median and 1.4826 x the median
//! absolute deviation); a one-sided CUSUM with k = 1 and h = 12 spreads tells that the signal changed, and
//! since when (false alarms per 10,000 blocks: 0 for independent noise, 47 for AR(1) noise of .8).

use alloc::collections::VecDeque;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::attribution::Switch;
use crate::course::{Course, Probation};
use crate::order::Ring;
use crate::{Micro, Normal, Policy};

/// Recent blocks that are kept for correlation: two minutes.
pub(crate) const RECENT: usize = 24;
/// A block is admitted to the baseline so many blocks later, if nothing was wrong until then.
const PROBATION: usize = 4;
/// Spread is never taken to be smaller than this part of the median.
const SPREAD_FLOOR: f64 = 0.02;
/// Makes the median absolute deviation comparable with a standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;
/// A single block counts at most so many spreads in the CUSUM.
const CLIP: f64 = 4.0;
/// An episode begins with its first block so far from the median: the sum alone is above zero every few blocks
/// by noise, and an onset that is too early would clear the cause.
const ONSET_Z: f64 = 2.0;
/// Autocorrelated noise may come to so many times the distance that counts as a deviation, and even alarm.
const NOISE: f64 = 2.0;
/// A course that comes to so many times the distance of its first block took as long for that as it had taken from the
/// median to there.
const GRADUAL: f64 = 2.0;
/// Seconds in which the test tells an edge, four blocks as far off as one can count.
const EDGE: u16 = 20;
/// So many normal blocks in a row end an episode.
const NORMAL_BLOCKS: u32 = 3;

/// Which way a signal gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Worse {
    /// Latencies.
    Higher,
    /// Rates.
    Lower,
}

/// One signal of one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Track {
    worse: Worse,
    enough: f64,
    sum: f64,
    weight: f64,
    recent: Course,
    probation: Probation<PROBATION>,
    healthy: Ring,
    median: f64,
    spread: f64,
    cusum: f64,
    onset: Option<Nanos>,
    /// How far its first block was from the median.
    #[serde(default)]
    onset_z: f64,
    /// Seconds after its onset until it came to [`GRADUAL`] times that distance, one at least; zero: it has not.
    #[serde(default)]
    grew: u16,
    /// Seconds after its onset until the test told it, one at least; zero: it has not.
    #[serde(default)]
    told: u16,
    normal_run: u32,
    /// In which blocks it was out of its normal.
    #[serde(default)]
    switch: Switch,
}

impl Track {
    /// `enough` is the least weight with which a block counts: a mean over three operations says nothing.
    pub(crate) fn new(worse: Worse, enough: f64) -> Self {
        Self {
            worse,
            enough,
            sum: 0.0,
            weight: 0.0,
            recent: Course::default(),
            probation: Probation::default(),
            healthy: Ring::default(),
            median: 0.0,
            spread: 0.0,
            cusum: 0.0,
            onset: None,
            onset_z: 0.0,
            grew: 0,
            told: 0,
            normal_run: 0,
            switch: Switch::default(),
        }
    }

    /// Adds to the block under way: an amount, and what it is divided by (seconds for a rate, operations for a
    /// latency, one for a gauge).
    pub(crate) fn add(&mut self, amount: f64, per: f64) {
        if amount.is_finite() && per.is_finite() && per > 0.0 {
            self.sum += amount;
            self.weight += per;
        }
    }

    /// Ends the block that began at `start`. `healthy` says whether it may become part of the baseline.
    pub(crate) fn close(&mut self, start: Nanos, healthy: bool, policy: &Policy) {
        let mean = self.mean();
        self.recent.push(mean, RECENT);
        self.take(mean, start, healthy, policy);
    }

    /// The same of a signal that is asked how it stands to its normal, and never since when: the last block is enough.
    pub(crate) fn gauge(&mut self, start: Nanos, healthy: bool, policy: &Policy) {
        let mean = self.mean();
        self.recent.push(mean, 1);
        self.take(mean, start, healthy, policy);
    }

    /// The same of a signal that is asked for its normal alone: its course is not kept.
    pub(crate) fn teach(&mut self, start: Nanos, healthy: bool, policy: &Policy) {
        let mean = self.mean();
        self.recent.clear();
        self.take(mean, start, healthy, policy);
    }

    /// Of the block under way, which ends.
    fn mean(&mut self) -> Option<f64> {
        let mean = (self.weight > 0.0 && self.weight >= self.enough).then(|| self.sum / self.weight);
        (self.sum, self.weight) = (0.0, 0.0);
        mean
    }

    fn take(&mut self, mean: Option<f64>, start: Nanos, healthy: bool, policy: &Policy) {
        let known = mean.filter(|_| self.mature(policy));
        self.switch.push(known.map(|mean| self.badness(mean) >= ONSET_Z));
        let Some(mean) = mean else { return };
        self.test(mean, start, policy);
        // What no rule would speak of is scatter, and a normal learnt in quiet minutes has to learn it: else it alarms for good.
        let slight = libm::fabs(mean - self.median) < policy.starved_clear.as_fraction() * libm::fabs(self.median);
        if !healthy || (self.cusum > policy.cusum_alarm && !slight) {
            self.probation.clear();
            return;
        }
        if let Some(admitted) = self.probation.push(mean) {
            self.healthy.push(admitted);
            self.learn();
        }
    }

    /// Keeps the own normal and drops the present: another process goes on after a gap, perhaps of another boot.
    pub(crate) fn rest(&mut self) {
        (self.sum, self.weight, self.cusum) = (0.0, 0.0, 0.0);
        (self.onset, self.normal_run, self.switch) = (None, 0, Switch::default());
        self.recent.clear();
        self.probation.clear();
    }

    /// Takes over the scatter of a reference as its own, as parts of the reference's median: what is measured
    /// against a reference that has just been learnt need not be learnt for as long again.
    pub(crate) fn seed(&mut self, reference: &Self) {
        if self.healthy.is_empty() && reference.median > 0.0 {
            self.healthy = reference.healthy.iter().map(|value| value / reference.median).collect();
            self.learn();
        }
    }

    fn learn(&mut self) {
        let (median, distance) = self.healthy.middle();
        self.median = median;
        let floor = SPREAD_FLOOR * libm::fabs(median);
        self.spread = (MAD_TO_SIGMA * distance).max(floor).max(f64::MIN_POSITIVE);
    }

    fn test(&mut self, mean: f64, start: Nanos, policy: &Policy) {
        if !self.mature(policy) {
            return;
        }
        let z = self.badness(mean);
        let before = self.cusum;
        self.cusum = (before + z.clamp(-CLIP, CLIP) - policy.cusum_slack).clamp(0.0, policy.cusum_alarm + CLIP);
        self.normal_run = if z < 1.0 { self.normal_run.saturating_add(1) } else { 0 };
        if self.normal_run >= NORMAL_BLOCKS {
            self.cusum = 0.0;
        }
        if self.cusum <= 0.0 {
            self.onset = None;
        } else if z >= ONSET_Z && (self.onset.is_none() || self.begins_anew(before, z, policy)) {
            (self.onset, self.onset_z, self.grew, self.told) = (Some(start), z, 0, 0);
        }
        let Some(onset) = self.onset else { return };
        let since = || u16::try_from(start.saturating_sub(onset).0 / 1_000_000_000).unwrap_or(u16::MAX).max(1);
        if self.grew == 0 && z >= GRADUAL * self.onset_z {
            self.grew = since();
        }
        if self.told == 0 && self.cusum > policy.cusum_alarm {
            self.told = since();
        }
    }

    /// Noise may stand just before the trouble. What is twice as far before anything was told is its beginning, and so
    /// is a step that is larger than all of the noise before it, told or not.
    fn begins_anew(&self, before: f64, z: f64, policy: &Policy) -> bool {
        let grew = before <= policy.cusum_alarm && self.onset_z < policy.deviation_z && z >= 2.0 * self.onset_z;
        grew || self.stepped(z, policy)
    }

    /// Whether the last block (`z` from the median) lies a step off that is larger than anything that the blocks before it
    /// came to, and those were no more than noise.
    fn stepped(&self, z: f64, policy: &Policy) -> bool {
        let mut past = self.recent.iter().rev().skip(1).flatten().map(|mean| self.badness(mean));
        let Some(last) = past.next() else { return false };
        let most = past.fold(last.max(0.0), f64::max);
        most < NOISE * policy.deviation_z && z - last > most
    }

    /// Distance from the median towards the worse side, in spreads.
    fn badness(&self, mean: f64) -> f64 {
        let distance = (mean - self.median) / self.spread;
        match self.worse {
            Worse::Higher => distance,
            Worse::Lower => -distance,
        }
    }

    pub(crate) fn mature(&self, policy: &Policy) -> bool {
        self.blocks() >= policy.baseline_min_blocks
    }

    pub(crate) fn blocks(&self) -> u32 {
        u32::try_from(self.healthy.len()).unwrap_or(u32::MAX)
    }

    /// The median of healthy blocks, once there are enough.
    pub(crate) fn normal(&self, policy: &Policy) -> Option<f64> {
        self.mature(policy).then_some(self.median)
    }

    /// The highest of the healthy blocks: what a device has been seen to give.
    pub(crate) fn highest(&self) -> Option<f64> {
        self.healthy.highest()
    }

    pub(crate) fn spread(&self) -> f64 {
        self.spread
    }

    /// The last closed block.
    pub(crate) fn latest(&self) -> Option<f64> {
        self.recent.last()
    }

    /// Whether the change-point test tells that it left its normal.
    pub(crate) fn alarms(&self, policy: &Policy) -> bool {
        self.cusum > policy.cusum_alarm
    }

    /// In which of the last blocks it was two spreads and more on the worse side.
    pub(crate) fn switch(&self) -> Switch {
        self.switch
    }

    pub(crate) fn recent(&self) -> impl DoubleEndedIterator<Item = Option<f64>> + '_ {
        self.recent.iter()
    }

    /// What the last block says, once there is a baseline.
    pub(crate) fn deviation(&self, policy: &Policy) -> Option<Deviation> {
        let normal = self.normal(policy)?;
        let value = self.latest()?;
        Some(Deviation {
            value,
            normal,
            spread: self.spread,
            z: self.badness(value),
            n: self.blocks(),
            alarm: self.cusum > policy.cusum_alarm,
            onset: self.onset,
            lead: Nanos::from_secs(u64::from(self.grew)),
            faint: Nanos::from_secs(u64::from(self.told.saturating_sub(EDGE))),
        })
    }
}

/// A mean of which nobody asks more than what the last block told: it has no normal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Last {
    sum: f64,
    weight: f64,
    value: Option<f64>,
}

impl Last {
    pub(crate) fn add(&mut self, amount: f64, per: f64) {
        (self.sum, self.weight) = (self.sum + amount, self.weight + per);
    }

    /// Ends the block, which counts from this weight on.
    pub(crate) fn close(&mut self, enough: f64) {
        self.value = (self.weight > 0.0 && self.weight >= enough).then(|| self.sum / self.weight);
        (self.sum, self.weight) = (0.0, 0.0);
    }

    pub(crate) const fn latest(&self) -> Option<f64> {
        self.value
    }
}

/// How the last block of a signal stands to its own normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Deviation {
    pub(crate) value: f64,
    pub(crate) normal: f64,
    pub(crate) spread: f64,
    pub(crate) z: f64,
    pub(crate) n: u32,
    pub(crate) alarm: bool,
    pub(crate) onset: Option<Nanos>,
    /// How long before its onset a course that grew slowly was at the median. None for an edge.
    pub(crate) lead: Nanos,
    /// How much longer than an edge it took to be told: where a course hardly leaves the noise, the block that it is said to
    /// have begun with is one of several.
    pub(crate) faint: Nanos,
}

/// Distances are shown up to this: a reading that never moved has no spread, and every change of it is infinitely far.
const FARTHEST: f64 = 1_000.0;

impl Deviation {
    /// Since when it goes the way it went, down in the noise at first.
    pub(crate) fn began(&self) -> Option<Nanos> {
        Some(self.onset?.saturating_sub(self.lead))
    }

    pub(crate) fn ratio(&self) -> f64 {
        if self.normal > 0.0 { self.value / self.normal } else { 1.0 }
    }

    pub(crate) fn as_normal(&self) -> Normal {
        Normal {
            median: Micro::from_f64(self.normal),
            spread: Micro::from_f64(self.spread),
            n: self.n,
            z: Micro::from_f64(self.z.clamp(-FARTHEST, FARTHEST)),
        }
    }
}

/// Appends to a ring of this capacity.
pub(crate) fn push<T>(ring: &mut VecDeque<T>, value: T, capacity: usize) {
    if ring.len() >= capacity {
        ring.pop_front();
    }
    room(ring, capacity);
    ring.push_back(value);
}

/// Makes room for one more value: twice as much each time, and never more than the ring will hold.
pub(crate) fn room<T>(ring: &mut VecDeque<T>, capacity: usize) {
    if ring.len() == ring.capacity() {
        ring.reserve_exact(ring.len().max(4).min(capacity.saturating_sub(ring.len())).max(1));
    }
}

/// The middle value (of an even number: the mean of the two middle ones). Changes the order of its argument: the
/// middle is looked for, and nothing else is sorted.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    let odd = values.len() % 2 == 1;
    let (lower, high, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let low = lower.iter().copied().max_by(f64::total_cmp).filter(|_| !odd);
    low.map_or(*high, |low| (low + *high) / 2.0)
}

#[cfg(test)]
#[path = "baseline_tests.rs"]
mod tests;
