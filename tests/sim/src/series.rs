//! Residuals of real series, which noise is made of by drawing blocks of them.

use std::sync::Arc;

use gpuprod_snapshot::units::to_f64;

use crate::rng::Rng;
use crate::words::{float, whole};

/// Real residuals by what they are noise of. Each series has mean 0 and deviation 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Of the speed of work.
    pub work: Pool,
    /// Of the latency of devices.
    pub latency: Pool,
    /// Of what a GPU shows.
    pub board: Pool,
}

/// Several series of one kind, shared by all scenarios.
pub type Pool = Arc<[Vec<f64>]>;

impl Recorded {
    /// A series as residuals: without its mean, in units of its deviation, and no further out than eight of them.
    #[must_use]
    pub fn residuals(values: &[f64]) -> Vec<f64> {
        let n = float(values.len().max(1));
        let mean = values.iter().sum::<f64>() / n;
        let deviation = (values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt();
        if deviation <= 0.0 {
            return vec![0.0; values.len()];
        }
        values.iter().map(|x| ((x - mean) / deviation).clamp(-8.0, 8.0)).collect()
    }
}

/// Blocks of a pool, one after the other: what a real series remembers from second to second stays.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pool: Pool,
    series: usize,
    at: usize,
    left: usize,
}

/// Seconds of a block.
const BLOCK: (f64, f64) = (30.0, 120.0);

impl Blocks {
    pub(crate) fn new(pool: &Pool) -> Option<Self> {
        pool.iter().any(|series| !series.is_empty()).then(|| Self { pool: pool.clone(), series: 0, at: 0, left: 0 })
    }

    pub(crate) fn next(&mut self, rng: &mut Rng) -> f64 {
        if self.left == 0 {
            self.series = below(rng, self.pool.len());
            let length = self.pool.get(self.series).map_or(0, Vec::len);
            self.at = below(rng, length);
            self.left = usize::try_from(whole(BLOCK.0 + rng.unit() * (BLOCK.1 - BLOCK.0))).unwrap_or(1);
        }
        self.left -= 1;
        let series = self.pool.get(self.series).map_or(&[][..], Vec::as_slice);
        let value = series.get(self.at % series.len().max(1)).copied().unwrap_or(0.0);
        self.at += 1;
        value
    }
}

fn below(rng: &mut Rng, n: usize) -> usize {
    let n = to_f64(u64::try_from(n.max(1)).unwrap_or(1));
    usize::try_from(whole((rng.unit() * n).floor().min(n - 1.0))).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "a few thousand values")]
mod tests {
    use super::*;

    /// A drawn series has the deviation and the memory of what it was drawn from.
    #[test]
    fn blocks_keep_what_a_series_remembers() {
        let mut rng = Rng::new(1, "walk");
        let (mut state, mut raw) = (0.0, Vec::new());
        for _ in 0..2000 {
            state = 0.9 * state + rng.heavy();
            raw.push(100.0 + 7.0 * state);
        }
        let pool: Pool = vec![Recorded::residuals(&raw)].into();
        let mut blocks = Blocks::new(&pool).unwrap();
        let drawn: Vec<f64> = (0..20_000).map(|_| blocks.next(&mut rng)).collect();
        let n = drawn.len() as f64;
        let mean = drawn.iter().sum::<f64>() / n;
        let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let lag = drawn.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>() / n / variance;
        assert!(mean.abs() < 0.2 && (variance - 1.0).abs() < 0.2, "{mean} {variance}");
        assert!((lag - 0.9).abs() < 0.05, "{lag}");
        assert!(Blocks::new(&Pool::default()).is_none());
    }
}
