//! How bad a resource was while nobody suffered by it. Trouble that stood beside full progress for minutes, and is no worse
//! now, is not why somebody slows down today: that it began before proves nothing then.

use serde::{Deserialize, Serialize};

/// Blocks of which one level is the mean: half a minute.
const SPAN: u8 = 6;
/// What is as bad as it was borne, up to this part more of what it is above its normal, is no worse: means of half a minute
/// scatter by less.
const MORE: f64 = 1.25;

/// The worst level of the present trouble that was borne. Each is believed a minute after it, if nobody was found to suffer until
/// then: twice as long as starvation takes to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Borne {
    sum: f64,
    blocks: u8,
    /// Levels that are not believed yet, the newest first.
    young: [Option<f64>; 2],
    level: Option<f64>,
}

impl Borne {
    /// Takes in a block: how bad it was on average, whether that is trouble, and whether nobody suffered.
    pub(super) fn close(&mut self, mean: Option<f64>, trouble: bool, well: bool) {
        if !trouble {
            *self = Self::default();
        }
        let Some(mean) = mean.filter(|_| trouble) else { return };
        if !well {
            *self = Self { level: self.level, ..Self::default() };
            return;
        }
        (self.sum, self.blocks) = (self.sum + mean, self.blocks.saturating_add(1));
        if self.blocks == SPAN {
            let [newest, older] = self.young;
            self.level = older.map_or(self.level, |level| Some(self.level.map_or(level, |worst| worst.max(level))));
            (self.young, self.sum, self.blocks) = ([Some(self.sum / f64::from(SPAN)), newest], 0.0, 0);
        }
    }

    /// The level that was borne, where this one is no worse.
    pub(crate) fn as_bad(&self, value: f64, normal: f64) -> Option<f64> {
        self.level.filter(|level| value - normal <= MORE * (level - normal))
    }

    /// Another agent goes on, perhaps of another boot.
    pub(super) fn rest(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(borne: &mut Borne, blocks: usize, mean: f64, well: bool) {
        (0..blocks).for_each(|_| borne.close(Some(mean), true, well));
    }

    #[test]
    fn what_was_borne_for_two_minutes_and_is_no_worse_is_not_to_blame() {
        let mut borne = Borne::default();
        feed(&mut borne, 17, 6.0, true);
        assert_eq!(borne.as_bad(6.0, 1.0), None, "a minute after the first half of one");
        feed(&mut borne, 1, 6.0, true);
        assert_eq!(borne.as_bad(7.0, 1.0), Some(6.0));
        assert_eq!(borne.as_bad(7.5, 1.0), None, "it got worse");
        // Somebody suffers, and what was borne before that stays so.
        feed(&mut borne, 60, 6.0, false);
        assert_eq!(borne.as_bad(6.0, 1.0), Some(6.0));
        borne.close(Some(1.0), false, true);
        assert_eq!(borne.as_bad(6.0, 1.0), None, "the next trouble is another one");
    }

    #[test]
    fn the_minute_before_somebody_suffers_is_not_believed() {
        let mut borne = Borne::default();
        feed(&mut borne, 12, 6.0, true);
        feed(&mut borne, 1, 6.0, false);
        feed(&mut borne, 6, 6.0, true);
        assert_eq!(borne.as_bad(6.0, 1.0), None);
        // It grew: only what is older counts.
        let mut borne = Borne::default();
        for step in 1..=30_u32 {
            borne.close(Some(f64::from(step)), true, true);
        }
        assert_eq!(borne.as_bad(30.0, 1.0), None);
        assert_eq!(borne.as_bad(15.0, 1.0), Some(15.5));
    }
}
