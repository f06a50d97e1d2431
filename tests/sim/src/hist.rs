//! Latency histograms as an engine keeps them.

use gpuprod_snapshot::engine::Histogram;
use gpuprod_snapshot::units::{Nanos, from_f64};

/// Upper bounds in milliseconds.
const BOUNDS: [u64; 12] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 40_000];

/// A histogram in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hist {
    count: f64,
    sum: f64,
    below: [f64; BOUNDS.len()],
}

impl Hist {
    /// So many observations around a mean, in seconds. Log-logistic with shape 2: the median is the mean, the
    /// tail is long, and it takes no more than a division.
    pub(crate) fn observe(&mut self, mean: f64, count: f64) {
        self.count += count;
        self.sum += mean * count;
        for (below, bound) in self.below.iter_mut().zip(BOUNDS) {
            let x = Nanos::from_millis(bound).as_secs_f64() / mean.max(1e-6);
            *below += count * x * x / (1.0 + x * x);
        }
    }

    /// So many observations of exactly this length, in seconds.
    pub(crate) fn observe_one(&mut self, seconds: f64, count: f64) {
        self.count += count;
        self.sum += seconds * count;
        for (below, bound) in self.below.iter_mut().zip(BOUNDS) {
            if seconds <= Nanos::from_millis(bound).as_secs_f64() {
                *below += count;
            }
        }
    }

    /// As the page shows it. Whole observations; the sum in microseconds.
    pub(crate) fn show(&self) -> Histogram {
        let floor = |value: f64| from_f64(value.floor()).unwrap_or(0);
        Histogram {
            count: floor(self.count),
            sum: Nanos(floor(self.sum * 1e6).saturating_mul(1000)),
            buckets: BOUNDS
                .iter()
                .zip(self.below)
                .map(|(bound, below)| (Nanos::from_millis(*bound), floor(below)))
                .collect(),
        }
    }
}
