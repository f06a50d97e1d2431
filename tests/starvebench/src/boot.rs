//! Intervals by drawing runs anew, with replacement: runs of one variant are alike, so whole runs are drawn.

/// How often.
const ROUNDS: usize = 1000;

/// A figure with the interval in which 95 % of the redrawn figures lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// What it counts.
    pub(crate) n: u64,
}

/// Of one run: parts of wholes, by key.
pub(crate) type Parts = Vec<(usize, f64, f64)>;

/// How much of how much, over all runs.
pub(crate) fn ratio(runs: &[(f64, f64)]) -> Option<Figure> {
    let runs: Vec<Parts> = runs.iter().map(|(part, whole)| vec![(0, *part, *whole)]).collect();
    mean_ratio(&runs)
}

/// The mean over the keys of how much of how much: every rule counts the same, however often it was asked.
pub(crate) fn mean_ratio(runs: &[Parts]) -> Option<Figure> {
    let keys = runs.iter().flatten().map(|part| part.0 + 1).max().unwrap_or(0);
    let mut sums = vec![(0.0, 0.0); keys];
    let mut of = |pick: &mut dyn FnMut() -> usize| {
        sums.fill((0.0, 0.0));
        for _ in 0..runs.len() {
            for (key, part, whole) in runs.get(pick()).into_iter().flatten() {
                if let Some(sum) = sums.get_mut(*key) {
                    *sum = (sum.0 + part, sum.1 + whole);
                }
            }
        }
        let ratios: Vec<f64> = sums.iter().filter(|sum| sum.1 > 0.0).map(|sum| sum.0 / sum.1).collect();
        (!ratios.is_empty()).then(|| crate::truth::mean(&ratios))
    };
    let mut next = 0..runs.len();
    let value = of(&mut || next.next().unwrap_or(0))?;
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut redrawn: Vec<f64> = (0..ROUNDS).filter_map(|_| of(&mut || dice.below(runs.len()))).collect();
    redrawn.sort_by(f64::total_cmp);
    let at =
        |permille: usize| redrawn.get(redrawn.len() * permille / 1000).or(redrawn.last()).copied().unwrap_or(value);
    let n = gpuprod_snapshot::units::from_f64(runs.iter().flatten().map(|part| part.2).sum()).unwrap_or(0);
    Some(Figure { value, low: at(25), high: at(975), n })
}

/// A quantile of a few numbers, the nearest one that is there.
pub(crate) fn quantile(values: &mut [u64], permille: usize) -> Option<u64> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    values.get((values.len() * permille).div_ceil(1000).saturating_sub(1).min(last)).copied()
}

/// SplitMix64: the same intervals every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let n64 = u64::try_from(n.max(1)).unwrap_or(1);
        usize::try_from((z ^ (z >> 31)) % n64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_its_figure_and_narrows_with_more_runs() {
        let runs = |n: usize| (0..n).map(|i| (f64::from(u8::from(i % 4 != 0)), 1.0)).collect::<Vec<_>>();
        let (few, many) = (ratio(&runs(20)).unwrap(), ratio(&runs(2000)).unwrap());
        assert!((few.value - 0.75).abs() < 1e-9 && (many.value - 0.75).abs() < 1e-9);
        // The spread of a share: 1.96 sqrt(p(1-p)/n) is .19 at 20 runs and .019 at 2000.
        assert!((0.12..0.26).contains(&(few.value - few.low)), "{few:?}");
        assert!((0.012..0.026).contains(&(many.value - many.low)), "{many:?}");
        assert_eq!(ratio(&[(0.0, 0.0)]), None);
    }

    #[test]
    fn a_quantile_is_a_value_that_is_there() {
        assert_eq!(quantile(&mut [5, 1, 3, 2, 4], 500), Some(3));
        assert_eq!(quantile(&mut [5, 1, 3, 2, 4], 950), Some(5));
        assert_eq!(quantile(&mut [], 500), None);
    }
}
