//! Symbols that came over a link broken: a few a day on a good one, a few a second where a cable or a transceiver fails.

use gpuprod_snapshot::units::to_f64;
use serde::{Deserialize, Serialize};

/// Counters of them, under the kernel's names.
pub(super) const DAMAGE: &[&str] = &["local_link_integrity_errors", "symbol_error"];

/// Seconds over which they are counted: a link that is within its bit error rate has few enough of them in single
/// minutes to be silent, or to be unlucky. The manual of ibdiagnet has one wait for five to ten minutes.
const STRETCH: f64 = 300.0;

/// What one port counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Damage {
    /// The stretch under way: errors, and its seconds until now.
    open: (f64, f64),
    /// Errors per second in the stretch before it.
    last: Option<f64>,
}

impl Damage {
    /// Takes in what the counters that are there gained.
    pub(super) fn add(&mut self, gained: impl Iterator<Item = u64>, seconds: f64) {
        let Some(errors) = gained.reduce(u64::saturating_add) else { return };
        self.open = (self.open.0 + to_f64(errors), self.open.1 + seconds);
        if self.open.1 >= STRETCH {
            self.last = Some(self.open.0 / self.open.1);
            self.open = (0.0, 0.0);
        }
    }

    /// Errors per second: those of the last stretch, or those of the one under way, if they are more already.
    pub(crate) fn rate(&self) -> f64 {
        self.last.unwrap_or(0.0).max(self.open.0 / STRETCH)
    }
}

#[cfg(test)]
mod tests {
    use super::Damage;

    #[test]
    fn a_stretch_is_told_when_it_is_over_or_worse_than_the_one_before() {
        let mut damage = Damage::default();
        let mut after = |errors: u64, seconds: u32| {
            (0..seconds).for_each(|_| damage.add([errors].into_iter(), 1.0));
            damage.rate()
        };
        assert!(after(0, 299).abs() < 1e-12);
        // Three hundred at once are one a second over five minutes.
        assert!((after(300, 1) - 1.0).abs() < 0.01);
        assert!((after(0, 299) - 1.0).abs() < 0.01, "the stretch before still speaks");
        assert!(after(0, 1).abs() < 1e-12, "five clean minutes");
        assert!((after(2, 150) - 1.0).abs() < 0.01, "half a stretch of two a second is as much as one a second");
    }
}
