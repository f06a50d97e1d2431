//! A workload that looks ill before it was ever known to be well. Its first hour is compared with priors: what is learnt
//! from a bad one would be called normal for as long as it lasts.

use gpuprod_snapshot::gpu::{Gpm, Gpu};
use gpuprod_snapshot::storage::SyncState;
use gpuprod_snapshot::units::Nanos;

use crate::gather::Gather;
use crate::join::StoragePath;
use crate::unit::Unit;
use crate::{Policy, weight};

/// After so long it is what this workload is like.
const FIRST_HOUR: Nanos = Nanos::from_secs(3600);

impl Gather<'_> {
    /// Whether a unit does less than a busy GPU does, and something around it may be why: a sync in its path, or its own
    /// wait for I/O.
    pub(crate) fn looks_ill(
        &self,
        unit: &Unit,
        silicon: Option<&Gpm>,
        gpu: Option<&Gpu>,
        path: &StoragePath,
        policy: &Policy,
    ) -> bool {
        let full = 1.0 - policy.starved_warn.as_fraction();
        if weight::pace(silicon, gpu).is_none_or(|(_, pace)| pace >= full) {
            return false;
        }
        let waits = unit.usage.block.io_some.is_some_and(|some| some >= policy.io_stall.wait_some.as_fraction());
        let mut arrays = self.md.into_iter().flat_map(|md| &md.arrays);
        waits
            || arrays
                .any(|array| array.sync.get() == Some(&SyncState::Running) && path.arrays.contains(array.name.as_str()))
    }
}

impl Unit {
    /// Whether nothing should be learnt of it as long as nothing is known. What has begun lasts until it looks well, and
    /// no longer than its first hour.
    pub(crate) fn doubts(&mut self, ill: bool, workload: Option<u64>, now: Nanos) -> bool {
        if self.doubt.is_some_and(|(of, _)| workload.is_some() && of != workload) {
            self.doubt = None;
        }
        if !ill {
            return false;
        }
        let (_, since) = *self.doubt.get_or_insert((workload, now));
        now.saturating_sub(since) < FIRST_HOUR
    }
}
