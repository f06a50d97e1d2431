//! Links of the devices that matter: GPUs, network cards, NVMe.

use gpuprod_snapshot::topology::{PciDevice, PciKind};
use gpuprod_snapshot::units::MegaTransfers;

use super::{Exact, Kind, Metric, Value, value};
use crate::pipeline::Frame;

macro_rules! lanes {
    ($name:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            kind: Kind::Gauge,
            unit: "{lane}",
            labels: &["pci_address"],
            help: $help,
            read: |frame, out| each(frame, |address, device| out.read(&[address], &device.link.$field)),
        }
    };
}
macro_rules! speed {
    ($name:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            kind: Kind::Gauge,
            unit: "{transfer}/s",
            labels: &["pci_address"],
            help: $help,
            read: |frame, out| {
                each(frame, |address, device| {
                    if let Some(MegaTransfers(mega)) = device.link.$field.copied() {
                        out.put(&[address], Value::Decimal(i128::from(mega) * 1_000_000, 0));
                    }
                });
            },
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.pci.info",
        kind: Kind::Gauge,
        unit: "",
        labels: &["pci_address", "kind", "numa_node", "root_bus"],
        help: "What the device is and where it sits.",
        read: |frame, out| {
            each(frame, |address, device| {
                let node = device.numa_node.get().or_else(|| device.numa_node_inherited.get());
                let node = node.map(ToString::to_string).unwrap_or_default();
                let kind = device.kind.get().map_or("", PciKind::as_str);
                let root = device.root_bus.get().map_or("", String::as_str);
                out.put(&[address, kind, &node, root], 1_u32.exact());
            });
        },
    },
    lanes!("gpuprod.pci.link.width", "Lanes of the link now.", width),
    lanes!("gpuprod.pci.link.width.limit", "Lanes that the device has.", width_max),
    speed!("gpuprod.pci.link.speed", "Transfers per second and lane now; an idle GPU lowers it by itself.", speed),
    speed!("gpuprod.pci.link.speed.limit", "Transfers per second and lane that the device can do.", speed_max),
];

/// At most so many devices.
const DEVICES: usize = 64;

fn each(frame: &Frame<'_>, mut read: impl FnMut(&str, &PciDevice)) {
    let matters = |device: &&PciDevice| {
        matches!(device.kind.get(), Some(PciKind::Gpu | PciKind::Accelerator | PciKind::Nic | PciKind::Nvme))
    };
    for device in
        value(frame.known.pci.as_deref()).map_or(&[][..], |pci| &pci.devices).iter().filter(matters).take(DEVICES)
    {
        read(&device.address.to_string(), device);
    }
}
