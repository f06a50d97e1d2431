//! A unit's ways to the host: which uplinks it shares with others.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::topology::PciAddress;

use crate::signals::pcie::PcieSignals;

/// Of one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitPcie {
    /// Names of the uplinks that it shares, as cause objects.
    pub(crate) uplinks: Vec<String>,
}

impl UnitPcie {
    pub(crate) fn of(gpu: Option<&Gpu>, signals: &PcieSignals) -> Self {
        let address = gpu.and_then(|gpu| gpu.pci.copied());
        let uplinks = address.into_iter().flat_map(|at| signals.uplinks_of(at)).map(|(bridge, _)| object(bridge));
        Self { uplinks: uplinks.collect() }
    }
}

/// An uplink as a cause object.
pub(crate) fn object(bridge: PciAddress) -> String {
    format!("uplink:{bridge}")
}
