//! Which workload a unit's own levels are of.

use alloc::collections::BTreeSet;

use crate::fingerprint;
use crate::gather::Gather;

impl Gather<'_> {
    /// A number for what runs: the first process's name and cgroup (FNV-1a).
    pub(crate) fn number(&self, family: &BTreeSet<u32>) -> Option<u64> {
        let process = family.iter().find_map(|pid| self.processes.get(pid))?;
        let words = [process.comm.get()?, process.cgroup.get()?];
        Some(fingerprint::number(words.into_iter().flat_map(|word| word.bytes().chain([0]))))
    }
}
