//! Candidates of the node around the GPU: CPU time, memory, the network.

use alloc::vec::Vec;

use super::Candidate;
use crate::rule::{View, cpu_starved_loader, fabric_congestion, memory_leak};

pub(super) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let cpu = cpu_starved_loader::candidate(view).map(|(_, candidate)| candidate);
    cpu.into_iter().chain(memory_leak::candidate(view)).chain(fabric_congestion::candidates(view)).collect()
}
