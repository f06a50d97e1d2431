//! A whole, cut into parts that sum to it.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::{Bucket, Cause, Part, State};

const ONE: u64 = Part::ONE.0 as u64;

/// Parts of one in millionths, in the order of buckets, each bucket once, none zero. The second value tells
/// whether they had to be mended.
///
/// Parts that sum to less than one leave the difference to `lost{unexplained}`, or to the unknown that the state
/// names. Parts that sum to more are cut in the order of buckets, the productive first: a figure that cannot be
/// right never makes a GPU look better.
pub(super) fn mend(state: State, split: &[(Bucket, Part)]) -> (Vec<(Bucket, u64)>, bool) {
    let mut parts: Vec<(Bucket, u64)> = Vec::with_capacity(split.len().saturating_add(1));
    let widened = split.iter().map(|(bucket, part)| (*bucket, u64::from(part.0)));
    parts.extend(widened);
    let total = parts.iter().fold(0, |a: u64, b| a.saturating_add(b.1));
    if total < ONE {
        let residual = match state {
            State::Unknown(reason) => Bucket::Unknown(reason),
            _ => Bucket::Lost(Cause::Unexplained),
        };
        parts.push((residual, ONE.saturating_sub(total)));
    }
    parts.sort_unstable();
    let mut excess = total.saturating_sub(ONE);
    for (_, part) in &mut parts {
        let cut = excess.min(*part);
        *part = part.saturating_sub(cut);
        excess = excess.saturating_sub(cut);
    }
    parts.dedup_by(|next, held| {
        let same = next.0 == held.0;
        if same {
            held.1 = held.1.saturating_add(next.1);
        }
        same
    });
    parts.retain(|(_, part)| *part > 0);
    (parts, total != ONE)
}

/// Shares an amount out by largest remainder, ties in the order of the parts. The parts sum to one ([`mend`]), and
/// so the shares sum to the amount.
pub(super) fn distribute<T: Copy>(amount: u64, parts: &[(T, u64)]) -> Vec<(T, u64)> {
    in_proportion(amount, parts, ONE)
}

/// The same for parts that sum to any whole but zero.
pub(super) fn in_proportion<T: Copy>(amount: u64, parts: &[(T, u64)], whole: u64) -> Vec<(T, u64)> {
    // Nearly always one has all of it.
    if let [(only, part)] = parts
        && *part == whole
        && whole > 0
    {
        return alloc::vec![(*only, amount)];
    }
    let whole = u128::from(whole.max(1));
    let mut left = amount;
    let mut shares = Vec::with_capacity(parts.len());
    let mut remainders = Vec::with_capacity(parts.len());
    for (index, &(bucket, part)) in parts.iter().enumerate() {
        let product = u128::from(amount).saturating_mul(u128::from(part));
        let share = u64::try_from(product / whole).unwrap_or(u64::MAX);
        left = left.saturating_sub(share);
        shares.push((bucket, share));
        remainders.push((Reverse(product % whole), index));
    }
    remainders.sort_unstable();
    for (_, index) in remainders {
        if left == 0 {
            break;
        }
        if let Some((_, share)) = shares.get_mut(index) {
            *share = share.saturating_add(1);
            left -= 1;
        }
    }
    shares
}
