//! Candidates of the way between GPU and host: its link, an uplink that it shares, the socket that feeds it.

use alloc::vec::Vec;

use super::Candidate;
use crate::rule::{View, cross_socket_feeding, pcie_link_degraded, shared_uplink_contention};

pub(super) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let socket = cross_socket_feeding::candidate(view).into_iter();
    socket.chain(shared_uplink_contention::candidates(view)).chain(pcie_link_degraded::candidates(view)).collect()
}
