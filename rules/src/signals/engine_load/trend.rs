//! Whether a queue grows, and how. Whole numbers decide: the same bits everywhere, ties counted exactly.
//!
//! Mann-Kendall (with the variance corrected for ties) says whether it grows at all, Theil-Sen how fast, and both
//! halves of the two minutes whether that speeds up: queues of an overloaded engine grow in a straight line; only
//! clients that send again, or work that is done twice, make them grow faster and faster.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::Second;
use crate::{Micro, Policy};

/// Samples below which nothing is said, and the time that they must span.
const ENOUGH: usize = 20;
const SPAN: Nanos = Nanos::from_secs(100);
/// Samples that slopes are taken from at most.
const POINTS: usize = 40;
/// Thousandths of the normal deviate for p < .01, one-sided.
const Z: i64 = 2326;

/// A queue that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trend {
    /// Requests per second, in millionths (Theil-Sen).
    pub(crate) slope: i64,
    /// The same of both halves.
    pub(crate) halves: (i64, i64),
    /// Whether it is certain (Mann-Kendall).
    pub(crate) certain: bool,
    /// Requests that it has grown by, and where it began.
    pub(crate) growth: i64,
    pub(crate) began: i64,
    /// Requests that came and that finished, in both halves, per second.
    pub(crate) came: (Micro, Micro),
    pub(crate) finished: (Micro, Micro),
    /// It grows faster and faster.
    pub(crate) accelerates: bool,
}

/// A sample: milliseconds from the first, and requests.
type Point = (i64, i64);

pub(crate) fn of(seconds: &VecDeque<Second>, policy: &Policy) -> Option<Trend> {
    let first = seconds.front()?.at;
    let span = seconds.back()?.at.saturating_sub(first);
    if seconds.len() < ENOUGH || span < SPAN {
        return None;
    }
    let at = |second: &Second| i64::try_from(second.at.saturating_sub(first).0 / 1_000_000).unwrap_or(i64::MAX);
    let points: Vec<Point> = seconds.iter().map(|second| (at(second), i64::from(second.waiting))).collect();
    let began = points.first()?.1;
    let growth = points.last()?.1.saturating_sub(began);
    let whole = slope(&thin(&points, POINTS))?;
    // Most queues do not grow, and cost nothing more.
    if growth <= 0 {
        return Some(Trend { slope: whole, growth, began, ..Trend::NONE });
    }
    let middle = points.partition_point(|point| point.0 < i64::try_from(span.0 / 2_000_000).unwrap_or(0));
    let (left, right) = points.split_at(middle);
    let halves = (slope(&thin(left, POINTS / 2))?, slope(&thin(right, POINTS / 2))?);
    let (came, finished) = flows(seconds, middle)?;
    let faster = halves.1 >= halves.0.max(20_000).saturating_mul(2);
    let rule = &policy.queue_instability;
    // Finishing more slowly is no push of its own: a few long requests do that too, and are over when they end.
    let slower = finished.1 * rule.push <= finished.0 && redone(seconds, middle, policy);
    let pushed = came.1 >= came.0 * rule.push || slower;
    Some(Trend {
        slope: whole,
        halves,
        certain: certain(&points),
        growth,
        began,
        came: (Micro::from_f64(came.0), Micro::from_f64(came.1)),
        finished: (Micro::from_f64(finished.0), Micro::from_f64(finished.1)),
        accelerates: faster && pushed && curved(&points, rule.log_fit),
    })
}

impl Trend {
    const NONE: Self = Self {
        slope: 0,
        halves: (0, 0),
        certain: false,
        growth: 0,
        began: 0,
        came: (Micro(0), Micro(0)),
        finished: (Micro(0), Micro(0)),
        accelerates: false,
    };
}

/// Evenly chosen samples, so that pairs stay few.
fn thin(points: &[Point], most: usize) -> Vec<Point> {
    let step = points.len().div_ceil(most.max(1)).max(1);
    points.iter().copied().step_by(step).collect()
}

/// Theil-Sen: the median of the slopes of all pairs, in millionths per second.
fn slope(points: &[Point]) -> Option<i64> {
    // A queue that never changes has no slope, and no pair of samples needs to be looked at.
    if points.first() < points.last() && points.windows(2).all(|pair| matches!(pair, [a, b] if a.1 == b.1)) {
        return Some(0);
    }
    let mut slopes = Vec::with_capacity(points.len().saturating_mul(points.len()) / 2);
    for (place, (x, y)) in points.iter().enumerate() {
        for (later, above) in points.iter().skip(place + 1) {
            let millis = later.saturating_sub(*x);
            if millis > 0 {
                slopes.push(above.saturating_sub(*y).saturating_mul(1_000_000_000) / millis);
            }
        }
    }
    let middle = slopes.len() / 2;
    (!slopes.is_empty()).then(|| *slopes.select_nth_unstable(middle).1)
}

/// Mann-Kendall, one-sided for growth, p < .01.
fn certain(points: &[Point]) -> bool {
    let mut s = 0_i64;
    for (place, (_, y)) in points.iter().enumerate() {
        s += points.iter().skip(place + 1).map(|(_, later)| (later - y).signum()).sum::<i64>();
    }
    let mut sorted: Vec<i64> = points.iter().map(|point| point.1).collect();
    sorted.sort_unstable();
    let weight = |n: i64| n * (n - 1) * (2 * n + 5);
    let size = |ties: &[i64]| i64::try_from(ties.len()).unwrap_or(0);
    let ties: i64 = sorted.chunk_by(|a, b| a == b).map(|ties| weight(size(ties))).sum();
    // The variance of S, eighteen times; S - 1 against Z deviations, both sides squared.
    let variance = weight(size(&sorted)) - ties;
    s > 1 && (s - 1) * (s - 1) * 18_000_000 > Z * Z * variance
}

/// Requests per second that came, and that finished, in both halves.
fn flows(seconds: &VecDeque<Second>, middle: usize) -> Option<((f64, f64), (f64, f64))> {
    let part = |from: usize, to: usize| {
        let (first, last) = (seconds.get(from)?, seconds.get(to)?);
        let length = last.at.checked_sub(first.at).filter(|length| length.0 > 0)?.as_secs_f64();
        let finished: u64 = seconds.iter().take(to + 1).skip(from + 1).map(|second| u64::from(second.finished)).sum();
        let inside = |second: &Second| f64::from(second.running) + f64::from(second.waiting);
        Some(((inside(last) - inside(first) + to_f64(finished)) / length, to_f64(finished) / length))
    };
    let (left, right) = (part(0, middle)?, part(middle, seconds.len().checked_sub(1)?)?);
    Some(((left.0, right.0), (left.1, right.1)))
}

/// Whether the second half's work is done twice: requests are preempted or swapped out as often as makes a thrash.
fn redone(seconds: &VecDeque<Second>, middle: usize, policy: &Policy) -> bool {
    let rule = &policy.preemption_thrash;
    let (Some(first), Some(last)) = (seconds.get(middle), seconds.back()) else { return false };
    let length = last.at.saturating_sub(first.at).as_secs_f64();
    let late = || seconds.iter().skip(middle + 1);
    let preempted: u64 = late().map(|second| u64::from(second.preempted().unwrap_or(0))).sum();
    let swapped = late().filter(|second| second.swapped().is_some_and(|swapped| swapped > 0)).count();
    let share = swapped.saturating_mul(1_000_000) / late().count().max(1);
    to_f64(preempted) >= rule.rate * length && preempted > 0
        || u32::try_from(share).is_ok_and(|share| share >= rule.swapped.0)
}

/// Whether the logarithm is the straighter line, and straight at least by this share of its variance.
fn curved(points: &[Point], fit: f64) -> bool {
    let number = |value: i64| to_f64(u64::try_from(value).unwrap_or(0));
    let straight = explained(points.iter().map(|(x, y)| (number(*x), number(*y))));
    let curved = explained(points.iter().map(|(x, y)| (number(*x), libm::log(number(*y) + 1.0))));
    curved >= fit && curved > straight
}

/// Share of the variance that a straight line explains (R2).
fn explained(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let (mut n, mut mx, mut my) = (0.0, 0.0, 0.0);
    for (x, y) in points.clone() {
        (n, mx, my) = (n + 1.0, mx + x, my + y);
    }
    if n <= 0.0 {
        return 0.0;
    }
    (mx, my) = (mx / n, my / n);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        (xy, xx, yy) = (xy + (x - mx) * (y - my), xx + (x - mx) * (x - mx), yy + (y - my) * (y - my));
    }
    if xx > 0.0 && yy > 0.0 { xy * xy / (xx * yy) } else { 0.0 }
}
