//! Something that only grows: the slope of half an hour by Theil and Sen, and how well a line fits.
//!
//! The median of the slopes of all pairs is not moved by single jumps; a fit of .9 and a last third that still grows
//! tell a leak from a cache that fills or a load that is over.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::baseline::{median, push};

/// A point every so often.
const EVERY: Nanos = Nanos::from_secs(30);
/// Points that are kept: half an hour of them.
const POINTS: usize = 61;
/// Shorter ends of the series that are looked at too, the longest first: 20, 14, 10, 7 and 5 minutes.
const SHORT: [usize; 5] = [41, 29, 21, 15, 11];
/// What has not grown by this share in such an end is not looked at closely.
const GROWN: f64 = 0.05;
/// So well a line must fit, and so much of its slope the last third must have, for an end to be one growth.
const ONE_LINE: f64 = 0.95;
const GOES_ON: f64 = 0.5;
/// After a hole of so long a series begins anew.
const HOLE: Nanos = Nanos::from_secs(120);
/// What falls by this share was let go: the series begins anew.
const FALLS: f64 = 0.2;

/// A series of one quantity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Growth {
    points: VecDeque<(Nanos, f64)>,
    trend: Option<Trend>,
    #[serde(default)]
    short: Option<Trend>,
}

/// How a series grows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trend {
    /// Per second.
    pub(crate) slope: f64,
    /// The same over the last third.
    pub(crate) late: f64,
    /// Coefficient of determination of the line.
    pub(crate) fit: f64,
    /// Since when it is watched.
    pub(crate) since: Nanos,
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) points: u32,
}

/// Whether a point is due at this tick: the instants are the same for all series and for replay.
pub(crate) fn due(now: Nanos, period: Nanos) -> bool {
    let period = period.0.clamp(1, EVERY.0);
    now.0 % EVERY.0 < period
}

impl Growth {
    /// Takes in a point.
    pub(crate) fn add(&mut self, now: Nanos, value: f64) {
        if let Some((at, last)) = self.points.back().copied() {
            if now <= at || now.saturating_sub(at) > HOLE || value < last * (1.0 - FALLS) {
                self.points.clear();
            } else if now.saturating_sub(at).0 < EVERY.0 / 2 {
                return;
            }
        }
        push(&mut self.points, (now, value), POINTS);
        self.trend = self.measure(POINTS);
        self.short = SHORT
            .iter()
            .filter_map(|points| self.measure(*points))
            .find(|trend| trend.fit >= ONE_LINE && trend.late >= trend.slope * GOES_ON);
    }

    /// The trend of half an hour; none before that, or when nothing grew.
    pub(crate) fn trend(&self) -> Option<Trend> {
        self.trend
    }

    /// The trend of the longest of the last minutes in which it grew along one line, five at least.
    pub(crate) fn short(&self) -> Option<Trend> {
        self.short
    }

    /// Minutes that are known.
    pub(crate) fn minutes(&self) -> u64 {
        let first = self.points.front().map_or(Nanos(0), |(at, _)| *at);
        let last = self.points.back().map_or(Nanos(0), |(at, _)| *at);
        last.saturating_sub(first).0 / 60_000_000_000
    }

    /// Whether half an hour is known.
    pub(crate) fn is_full(&self) -> bool {
        self.points.len() >= POINTS
    }

    /// The trend of the last so many points; none when there are fewer, or when nothing grew.
    fn measure(&self, most: usize) -> Option<Trend> {
        let skipped = self.points.len().checked_sub(most)?;
        let ((since, first), (_, last)) = (*self.points.get(skipped)?, *self.points.back()?);
        if last <= first || (most < POINTS && last - first < last * GROWN) {
            return None;
        }
        let points: Vec<(f64, f64)> = self
            .points
            .iter()
            .skip(skipped)
            .map(|(at, value)| (at.saturating_sub(since).as_secs_f64(), *value))
            .collect();
        let slope = theil_sen(&points);
        let late = theil_sen(points.get(points.len() / 3 * 2..).unwrap_or_default());
        let fit = fit(&points, slope);
        Some(Trend { slope, late, fit, since, first, last, points: u32::try_from(points.len()).unwrap_or(u32::MAX) })
    }
}

fn theil_sen(points: &[(f64, f64)]) -> f64 {
    let mut slopes: Vec<f64> = Vec::with_capacity(points.len().saturating_mul(points.len()) / 2);
    for (place, (from, low)) in points.iter().enumerate() {
        let later = points.iter().skip(place + 1);
        slopes.extend(later.filter(|(to, _)| to > from).map(|(to, high)| (high - low) / (to - from)));
    }
    median(&mut slopes)
}

/// How much of the scatter the line explains: its height is the median of what is left.
fn fit(points: &[(f64, f64)], slope: f64) -> f64 {
    let mut rest: Vec<f64> = points.iter().map(|(at, value)| value - slope * at).collect();
    let height = median(&mut rest);
    let count = gpuprod_snapshot::units::to_f64(u64::try_from(points.len()).unwrap_or(1)).max(1.0);
    let mean = points.iter().map(|(_, value)| value).sum::<f64>() / count;
    let square = |value: f64| value * value;
    let all: f64 = points.iter().map(|(_, value)| square(value - mean)).sum();
    let left: f64 = points.iter().map(|(at, value)| square(value - (height + slope * at))).sum();
    if all > 0.0 { (1.0 - left / all).max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(values: impl Iterator<Item = f64>) -> Growth {
        let mut growth = Growth::default();
        for (place, value) in (0_u64..).zip(values) {
            growth.add(Nanos::from_secs(place * 30), value);
        }
        growth
    }

    #[test]
    fn a_line_has_its_slope_and_an_outlier_does_not_move_it() {
        let trend = fed((0..61_u32).map(|n| 1e9 + f64::from(n) * 60e6)).trend().unwrap();
        assert!((trend.slope - 2e6).abs() < 1.0 && (trend.fit - 1.0).abs() < 1e-9, "{trend:?}");
        let jumped = (0..61_u32).map(|n| 1e9 + f64::from(n) * 60e6 + if n == 30 { 5e8 } else { 0.0 });
        assert!((fed(jumped).trend().unwrap().slope - 2e6).abs() < 2e4);
    }

    #[test]
    fn what_stands_still_at_last_has_no_late_slope_and_half_an_hour_must_be_known() {
        let filled = fed((0..61_u32).map(|n| 1e9 + f64::from(n.min(30)) * 60e6)).trend().unwrap();
        assert!(filled.late.abs() < 1e-9, "{filled:?}");
        assert_eq!(fed((0..60_u32).map(f64::from)).trend(), None);
        assert_eq!(fed((0..61_u32).map(|_| 7.0)).trend(), None, "nothing grew");
    }

    #[test]
    fn an_end_that_grows_along_one_line_is_told_after_five_minutes() {
        let leak = |minutes: u32| fed((0..20 + 2 * minutes).map(|n| 30e9 + f64::from(n.saturating_sub(19)) * 1.8e9));
        assert_eq!(leak(1).short(), None);
        let five = leak(5).short().unwrap();
        assert!((five.slope / 60e6 - 1.0).abs() < 0.1 && five.since >= Nanos::from_secs(10 * 30), "{five:?}");
        assert!(leak(12).short().is_some_and(|trend| trend.points >= 21 && (trend.slope / 60e6 - 1.0).abs() < 0.1));
        // A buffer that is full, and one that grows by little.
        assert_eq!(fed((0..60_u32).map(|n| 30e9 + f64::from(n.min(30)) * 1.8e9)).short(), None);
        assert_eq!(fed((0..60_u32).map(|n| 30e9 + f64::from(n) * 20e6)).short(), None);
    }

    #[test]
    fn a_fall_and_a_hole_begin_anew() {
        let mut growth = fed((0..61_u32).map(|n| 1e9 + f64::from(n)));
        growth.add(Nanos::from_secs(61 * 30), 0.5e9);
        assert_eq!((growth.trend(), growth.minutes()), (None, 0));
        let mut growth = fed((0..61_u32).map(|n| 1e9 + f64::from(n)));
        growth.add(Nanos::from_secs(61 * 30 + 600), 2e9);
        assert_eq!(growth.minutes(), 0);
    }
}
