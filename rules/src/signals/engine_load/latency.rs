//! Latencies of an engine, block by block: the 95th percentile of what its histograms gained, and the share of the
//! requests' time that was spent in the queue.

use alloc::vec::Vec;

use gpuprod_snapshot::Reading;
use gpuprod_snapshot::engine::{Engine, Histogram};
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::baseline::{Track, Worse};

/// A percentile over fewer observations says nothing.
const ENOUGH: u64 = 10;
/// Longer histograms are nobody's.
const MOST_BUCKETS: usize = 64;

/// What one histogram gained in the block under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Gain {
    count: u64,
    #[serde(rename = "sum_ns")]
    sum: u64,
    /// Upper bounds and how many fell at or below.
    buckets: Vec<(u64, u64)>,
}

impl Gain {
    fn add(&mut self, before: &Reading<Histogram>, after: &Reading<Histogram>) {
        let (Some(before), Some(after)) = (before.get(), after.get()) else { return };
        let (Some(count), Some(sum)) = (after.count.checked_sub(before.count), after.sum.checked_sub(before.sum))
        else {
            return;
        };
        let alike = after.buckets.len() == before.buckets.len() && after.buckets.len() <= MOST_BUCKETS;
        if !alike || count == 0 {
            return;
        }
        let same = self.buckets.len() == after.buckets.len()
            && self.buckets.iter().zip(&after.buckets).all(|(known, new)| known.0 == new.0.0);
        if !same {
            *self = Self { buckets: after.buckets.iter().map(|(bound, _)| (bound.0, 0)).collect(), ..Self::default() };
        }
        self.count = self.count.saturating_add(count);
        self.sum = self.sum.saturating_add(sum.0);
        for ((_, gained), (old, new)) in self.buckets.iter_mut().zip(before.buckets.iter().zip(&after.buckets)) {
            *gained = gained.saturating_add(new.1.saturating_sub(old.1));
        }
    }

    /// A quantile in seconds, by straight lines within the buckets; beyond the last bound, that bound.
    fn quantile(&self, of: f64) -> Option<f64> {
        if self.count < ENOUGH {
            return None;
        }
        let rank = of * to_f64(self.count);
        let (mut low, mut below) = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            let (high, upto) = (Nanos(*bound).as_secs_f64(), to_f64(*count));
            if upto >= rank && upto > below {
                return Some(low + (high - low) * ((rank - below) / (upto - below)).clamp(0.0, 1.0));
            }
            (low, below) = (high, upto);
        }
        Some(low)
    }

    fn clear(&mut self) {
        (self.count, self.sum) = (0, 0);
        self.buckets.iter_mut().for_each(|bucket| bucket.1 = 0);
    }
}

/// The latencies that rules look at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    first: Gain,
    next: Gain,
    queue: Gain,
    whole: Gain,
    /// 95th percentile of the time to the first token, seconds.
    pub(crate) ttft: Track,
    /// The same of the time between tokens.
    pub(crate) itl: Track,
    /// Share of the requests' time that was spent in the queue.
    pub(crate) queued: Track,
    /// 99th percentile of the time between tokens, seconds: about how long a step takes at most.
    pub(crate) step: Option<f64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let track = || Track::new(Worse::Higher, 0.5);
        Self {
            first: Gain::default(),
            next: Gain::default(),
            queue: Gain::default(),
            whole: Gain::default(),
            ttft: track(),
            itl: track(),
            queued: track(),
            step: None,
        }
    }
}

impl Latencies {
    pub(super) fn add(&mut self, before: &Engine, after: &Engine) {
        self.first.add(&before.ttft, &after.ttft);
        self.next.add(&before.itl, &after.itl);
        self.queue.add(&before.queue_time, &after.queue_time);
        self.whole.add(&before.e2e, &after.e2e);
    }

    pub(super) fn close(&mut self, start: Nanos, healthy: bool, policy: &Policy) {
        let put = |track: &mut Track, value: Option<f64>| {
            if let Some(value) = value {
                track.add(value, 1.0);
            }
            track.close(start, healthy, policy);
        };
        put(&mut self.ttft, self.first.quantile(0.95));
        put(&mut self.itl, self.next.quantile(0.95));
        // Whoever is in the queue has not finished yet: the shares are of means.
        let mean = |gain: &Gain| (gain.count >= ENOUGH).then(|| to_f64(gain.sum) / to_f64(gain.count));
        let share = mean(&self.queue).zip(mean(&self.whole)).filter(|(_, whole)| *whole > 0.0);
        put(&mut self.queued, share.map(|(queue, whole)| (queue / whole).min(1.0)));
        if let (Some(step), true) = (self.next.quantile(0.99), healthy || self.step.is_none()) {
            self.step = Some(step);
        }
        [&mut self.first, &mut self.next, &mut self.queue, &mut self.whole].into_iter().for_each(Gain::clear);
    }

    pub(super) fn rest(&mut self) {
        [&mut self.ttft, &mut self.itl, &mut self.queued].into_iter().for_each(Track::rest);
        [&mut self.first, &mut self.next, &mut self.queue, &mut self.whole].into_iter().for_each(Gain::clear);
    }
}
