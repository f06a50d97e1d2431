//! A unit's ways to the host: which uplinks it shares with others.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::topology::PciAddress;

use crate::signals::pcie::{Board, PcieSignals};

/// Of one unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitPcie<'a> {
    /// What is known of its board.
    pub(crate) board: Option<&'a Board>,
    /// The bridges of the uplinks that it shares.
    uplinks: Vec<PciAddress>,
}

impl<'a> UnitPcie<'a> {
    pub(crate) fn of(gpu: Option<&Gpu>, signals: &'a PcieSignals) -> Self {
        let address = gpu.and_then(|gpu| gpu.pci.copied());
        let board = gpu.and_then(|gpu| signals.board(gpu));
        Self {
            board,
            uplinks: address.into_iter().flat_map(|at| signals.uplinks_of(at)).map(|(bridge, _)| bridge).collect(),
        }
    }

    /// Whether it shares this uplink, a cause object.
    pub(crate) fn shares(&self, uplink: &str) -> bool {
        self.uplinks.iter().any(|bridge| object(*bridge) == uplink)
    }
}

/// An uplink as a cause object.
pub(crate) fn object(bridge: PciAddress) -> String {
    format!("uplink:{bridge}")
}
