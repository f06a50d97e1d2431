//! From the node's counters to the vocabulary: what each collector would have read.
//!
//! Every value is on the grid of the source that prints it (10 ms of CPU time, a hundredth of a per cent of
//! pressure, whole KiB of NVLink), so that a materialised tree can give it back exactly.

pub(crate) mod engine;
pub(crate) mod gpus;
pub(crate) mod host;
pub(crate) mod node;
pub(crate) mod storage;
pub(crate) mod topology;

use crate::scenario::Work;

/// The pid of a workload's process.
pub(crate) fn pid(index: usize, generation: u64, boot: u64) -> u32 {
    let index = u64::try_from(index).unwrap_or(0);
    u32::try_from(4200 + index * 1000 + boot * 100 + generation).unwrap_or(4200)
}

/// The cgroup of a workload.
pub(crate) fn cgroup(work: &Work) -> String {
    work.cgroup.clone().unwrap_or_else(|| format!("/system.slice/{}.service", work.name))
}
