//! When a resource was in trouble, block by block.

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

/// In which of the last 64 blocks a resource was in trouble: the lowest bit is the last closed block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Switch {
    on: u64,
    known: u64,
}

impl Switch {
    /// Takes in the block that was just closed; nothing when it cannot be told.
    pub(crate) fn push(&mut self, on: Option<bool>) {
        self.on = (self.on << 1) | u64::from(on == Some(true));
        self.known = (self.known << 1) | u64::from(on.is_some());
    }

    /// On since an instant, and off before.
    pub(crate) fn since(onset: Nanos, now: Nanos, block: Nanos) -> Self {
        let length = block.0.max(1);
        // The block in which the onset lies is on; the block under way is none of the 64.
        let blocks = (now.0 / length).saturating_sub(onset.0 / length);
        let on = if blocks >= 64 { u64::MAX } else { (1_u64 << blocks).wrapping_sub(1) };
        Self { on, known: u64::MAX }
    }

    /// What it was so many blocks ago.
    pub(super) fn ago(self, blocks: usize) -> Option<bool> {
        let bit = 1_u64.checked_shl(u32::try_from(blocks).ok()?)?;
        (self.known & bit != 0).then_some(self.on & bit != 0)
    }

    /// The trouble is over, and was there.
    pub(super) fn ended(self) -> bool {
        self.ago(0) == Some(false) && self.on != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_counts_blocks_backwards() {
        let mut switch = Switch::default();
        for on in [Some(false), Some(true), None, Some(true)] {
            switch.push(on);
        }
        assert_eq!([0, 1, 2, 3, 4].map(|ago| switch.ago(ago)), [Some(true), None, Some(true), Some(false), None]);
    }

    #[test]
    fn since_an_instant_is_on_from_its_block() {
        let second = Nanos::from_secs;
        // Blocks of 5 s: at 61 s, block 12 is under way and 11 was closed last; the onset at 50 s lies in block 10.
        let switch = Switch::since(second(50), second(61), second(5));
        assert_eq!([0, 1, 2].map(|ago| switch.ago(ago)), [Some(true), Some(true), Some(false)]);
    }
}
