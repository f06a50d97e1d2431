//! Which workload a unit's own levels are of.

use alloc::collections::BTreeSet;

use crate::gather::Gather;

impl Gather<'_> {
    /// A number for what runs: the first process's name and cgroup (FNV-1a).
    pub(crate) fn number(&self, family: &BTreeSet<u32>) -> Option<u64> {
        let process = family.iter().find_map(|pid| self.processes.get(pid))?;
        let words = [process.comm.get()?, process.cgroup.get()?];
        let bytes = words.into_iter().flat_map(|word| word.bytes().chain([0]));
        Some(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}
