//! What is booked of an engine's progress, tick by tick, so that the sum over time is right.
//!
//! A mean over the last seconds is good for a verdict and bad for a sum: it moves every loss by half its length, and
//! whoever calls small deficits noise never books them. Here each page brings *seconds of normal work done*, each
//! tick books at most its own length of them, and the difference is carried over. So noise around the own normal
//! cancels out, a deficit is booked in full from its first second, and a page that comes late corrects what was
//! guessed in its absence.

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

/// Work above normal that is kept for later seconds. Without it the noise of a healthy engine would be a loss (3 % of
/// noise with a memory of .6: 1.2 %); with it .1 % is left, and at most so much of a loss is hidden at its beginning.
const CREDIT: f64 = 2.0;
/// Scatter of 5 s means that the credit alone evens out.
const EVEN: f64 = 0.03;
/// Work that was guessed while no page came and is taken back later.
const DEBT: f64 = 10.0;
/// A longer tick has no verdict of its own.
const LONGEST: f64 = 10.0;

/// The carried difference of one engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Exact {
    upto: Option<Nanos>,
    /// Seconds of normal work that are done and not booked.
    balance: f64,
    /// The last page's progress.
    ratio: Option<f64>,
    /// Whether a page came since the last booking.
    page: bool,
    w: Option<f64>,
}

impl Exact {
    /// A page: progress over so many seconds as a part of the own normal, and the normal's scatter. None when the page
    /// cannot tell.
    pub(crate) fn page(&mut self, ratio: Option<f64>, seconds: f64, scatter: f64) {
        self.ratio = ratio.map(|ratio| ratio + (scatter - EVEN).max(0.0));
        match self.ratio {
            Some(ratio) => {
                self.balance += ratio * seconds;
                self.page = true;
            }
            None => self.forget(),
        }
    }

    /// Settles the tick that ends now. `fresh`: a page came lately.
    pub(crate) fn book(&mut self, now: Nanos, fresh: bool) {
        let length = self.upto.and_then(|upto| now.checked_sub(upto)).map(Nanos::as_secs_f64);
        self.upto = Some(now);
        self.w = None;
        let (Some(ratio), true) = (self.ratio, fresh) else {
            self.forget();
            return;
        };
        let Some(length) = length.filter(|length| *length > 0.0 && *length <= LONGEST) else {
            self.forget();
            return;
        };
        let w = if self.page { self.balance / length } else { ratio }.clamp(0.0, 1.0);
        self.balance = (self.balance - w * length).clamp(-DEBT, CREDIT);
        self.page = false;
        self.w = Some(w);
    }

    /// The productive part of the tick that was settled last.
    pub(crate) const fn w(&self) -> Option<f64> {
        self.w
    }

    fn forget(&mut self) {
        (self.balance, self.ratio, self.page, self.w) = (0.0, None, false, None);
    }

    /// Nothing is carried over a gap.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(ratios: impl Iterator<Item = Option<f64>>) -> f64 {
        let mut exact = Exact::default();
        exact.book(Nanos(0), true);
        let mut missed = 1.0;
        let mut sum = 0.0;
        for (second, ratio) in (1..).zip(ratios) {
            match ratio {
                Some(ratio) => {
                    exact.page(Some(ratio), missed, 0.02);
                    missed = 1.0;
                }
                None => missed += 1.0,
            }
            exact.book(Nanos::from_secs(second), true);
            sum += exact.w().unwrap_or(0.0);
        }
        sum
    }

    #[test]
    fn noise_around_normal_is_no_loss_and_a_deficit_is_booked_in_full() {
        // Up and down by a tenth: 1000 s of work in 1000 s.
        let healthy = (0..1000).map(|n| Some(if n % 2 == 0 { 1.1 } else { 0.9 }));
        assert!((sum(healthy) - 1000.0).abs() < 0.2);
        // The same around .96: a deficit of 4 % is 40 s, whatever the noise.
        let starved = (0..1000).map(|n| Some(if n % 2 == 0 { 1.06 } else { 0.86 }));
        assert!((sum(starved) - 960.0).abs() < 0.2);
        // More than normal is no more than all of it.
        assert!((sum((0..100).map(|_| Some(1.5))) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_page_that_comes_late_corrects_the_guess() {
        // Halved from second 50 on; of the pages after it every second one is late and speaks for two seconds.
        let pages = (0..100).map(|n| match n {
            0..50 => Some(1.0),
            n if n % 2 == 0 => None,
            _ => Some(0.5),
        });
        assert!((sum(pages) - 75.0).abs() < 0.6, "half of 50 s and all of 50 s");
    }
}
