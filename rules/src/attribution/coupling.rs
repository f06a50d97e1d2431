//! Whether two courses of blocks go together: rank correlation, the cause leading.

use alloc::vec::Vec;

/// The largest of Spearman's rank correlations of a cause with its effect, of which the cause leads by up to two blocks.
/// Both end with the last closed block.
pub(super) fn leads(cause: &[Option<f64>], effect: &[Option<f64>]) -> Option<f64> {
    let length = cause.len().min(effect.len());
    let last = |values: &[Option<f64>]| values.get(values.len() - length..).unwrap_or_default().to_vec();
    let (cause, effect) = (last(cause), last(effect));
    let lagged = (0..=2).filter_map(|lag| spearman(cause.iter().copied(), effect.iter().copied().skip(lag)));
    lagged.reduce(f64::max)
}

/// Spearman's rank correlation of the pairs in which both are known; nothing below eight pairs, or when one
/// side does not vary.
fn spearman(left: impl Iterator<Item = Option<f64>>, right: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (left, right): (Vec<f64>, Vec<f64>) = left.zip(right).filter_map(|(left, right)| Some((left?, right?))).unzip();
    if left.len() < 8 {
        return None;
    }
    let (left, right) = (ranks(&left), ranks(&right));
    let mean = (gpuprod_snapshot::units::to_f64(u64::try_from(left.len()).ok()?) + 1.0) / 2.0;
    let (mut product, mut left_square, mut right_square) = (0.0, 0.0, 0.0);
    for (left, right) in left.iter().zip(&right) {
        product += (left - mean) * (right - mean);
        left_square += (left - mean) * (left - mean);
        right_square += (right - mean) * (right - mean);
    }
    let scale = libm::sqrt(left_square * right_square);
    (scale > 0.0).then(|| product / scale)
}

/// Ranks from 1; equals share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let value = |at: usize| values.get(at).copied().unwrap_or(0.0);
    order.sort_unstable_by(|a, b| value(*a).total_cmp(&value(*b)).then(a.cmp(b)));
    let mut ranks = alloc::vec![0.0; values.len()];
    let mut first = 0;
    for equals in order.chunk_by(|a, b| value(*a) == value(*b)) {
        let count = |at: usize| gpuprod_snapshot::units::to_f64(u64::try_from(at).unwrap_or(0));
        let rank = f64::midpoint(count(first) + 1.0, count(first + equals.len()));
        for at in equals {
            if let Some(slot) = ranks.get_mut(*at) {
                *slot = rank;
            }
        }
        first += equals.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_may_lead_and_not_follow() {
        let wave = [1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 4.0, 4.0, 1.0, 1.0, 6.0, 1.0, 1.0, 1.0, 3.0, 1.0];
        let late = |by: usize| (0..16).map(|at| Some(if at < by { 1.0 } else { wave[at - by] })).collect::<Vec<_>>();
        assert_eq!(leads(&late(0), &late(2)), Some(1.0));
        assert!(leads(&late(2), &late(0)).is_none_or(|rho| rho < 0.5));
        assert_eq!(leads(&[], &late(0)), None);
    }

    #[test]
    fn spearman_knows_order_and_refuses_constants() {
        let up = (0..10_u32).map(|n| Some(f64::from(n)));
        let down = (0..10_u32).map(|n| Some(-f64::from(n * n)));
        assert_eq!(spearman(up.clone(), up.clone()), Some(1.0));
        assert_eq!(spearman(up.clone(), down), Some(-1.0));
        assert_eq!(spearman(up.clone(), (0..10_u32).map(|_| Some(1.0))), None);
        assert_eq!(spearman(up.take(7), (0..7_u32).map(|n| Some(f64::from(n)))), None);
    }
}
