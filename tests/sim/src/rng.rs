//! Noise that looks like a machine's: it remembers (AR(1)) and it jumps (Student's t with four degrees of
//! freedom). White Gaussian noise would flatter every detector. Only exact operations and square roots are
//! used, so that a seed gives the same bits everywhere.

use gpuprod_snapshot::units::to_f64;

use crate::series::{Blocks, Pool};

/// SplitMix64, one stream per name.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64, stream: &str) -> Self {
        let hash = stream
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly between 0 and 1.
    pub(crate) fn unit(&mut self) -> f64 {
        to_f64(self.bits() >> 11) / 9_007_199_254_740_992.0
    }

    /// Student's t with four degrees of freedom, scaled to variance 1 (Bailey's polar method).
    pub(crate) fn heavy(&mut self) -> f64 {
        for _ in 0..64 {
            let (u, v) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let w = u * u + v * v;
            if w > 0.0 && w < 1.0 {
                let t = u * (4.0 * (1.0 / w.sqrt() - 1.0) / w).sqrt();
                return (t / 2.0_f64.sqrt()).clamp(-8.0, 8.0);
            }
        }
        0.0
    }
}

/// A stationary series with mean 0, the given deviation and the given correlation from second to second.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    rng: Rng,
    deviation: f64,
    memory: f64,
    state: f64,
    blocks: Option<Blocks>,
}

impl Series {
    pub(crate) fn new(seed: u64, stream: &str, deviation: f64, memory: f64) -> Self {
        let mut rng = Rng::new(seed, stream);
        let state = rng.heavy();
        Self { rng, deviation, memory, state, blocks: None }
    }

    /// The same, made of blocks of real residuals where there are any.
    pub(crate) fn of(mut self, pool: Option<&Pool>) -> Self {
        self.blocks = pool.and_then(Blocks::new);
        self
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> f64 {
        if let Some(blocks) = &mut self.blocks {
            return blocks.next(&mut self.rng) * self.deviation;
        }
        let shock = (1.0 - self.memory * self.memory).sqrt();
        self.state = self.memory * self.state + shock * self.rng.heavy();
        self.state * self.deviation
    }

    /// The next value as a factor around 1, never below a tenth.
    pub(crate) fn factor(&mut self) -> f64 {
        (1.0 + self.next()).clamp(0.1, 1.9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(memory: f64) -> Vec<f64> {
        let mut series = Series::new(7, "test", 0.03, memory);
        (0..40_000).map(|_| series.next()).collect()
    }

    fn mean(values: impl Iterator<Item = f64>) -> f64 {
        let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
        sum / n
    }

    /// Deviation, correlation from second to second, and kurtosis over 3 are what was asked for.
    #[test]
    fn remembers_and_jumps() {
        for memory in [0.0, 0.5, 0.9] {
            let xs = series(memory);
            let m = mean(xs.iter().copied());
            let var = mean(xs.iter().map(|x| (x - m) * (x - m)));
            let lag = mean(xs.windows(2).map(|w| (w[0] - m) * (w[1] - m))) / var;
            let kurtosis = mean(xs.iter().map(|x| ((x - m) / var.sqrt()).powi(4)));
            assert!((var.sqrt() - 0.03).abs() < 0.003, "deviation {} at {memory}", var.sqrt());
            assert!((lag - memory).abs() < 0.03, "correlation {lag} at {memory}");
            assert!(memory > 0.8 || kurtosis > 4.0, "a Gaussian has 3, this has {kurtosis}");
        }
    }

    #[test]
    fn a_seed_is_a_seed() {
        assert_eq!(series(0.5), series(0.5));
        assert_ne!(Rng::new(7, "a").bits(), Rng::new(7, "b").bits());
        assert_ne!(Rng::new(7, "a").bits(), Rng::new(8, "a").bits());
    }
}
