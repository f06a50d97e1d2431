//! What the `snapshot` command works out of a tick and prints beside it: distances and links of PCI devices, the
//! members of arrays by what they are. Recordings do not hold it, since it follows from what they hold.

use std::collections::BTreeMap;

use gpuprod_snapshot::storage::{Md, MdArray, MdMember, MemberFlag};
use gpuprod_snapshot::topology::{Pci, PciDevice, PciKind};
use gpuprod_snapshot::units::to_f64;
use gpuprod_snapshot::{Sample, Tick};
use serde::Serialize;

use crate::seen;

/// At most so many endpoints are paired: a node with many virtual functions has thousands.
const PAIRED: usize = 64;

/// What follows from a tick.
#[derive(Debug, Default, Serialize)]
pub struct Derived {
    /// From the PCI tree; absent when that was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci: Option<DerivedPci>,
    /// By array name; absent when the arrays were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub md: Option<BTreeMap<String, DerivedArray>>,
}

/// Of the endpoints: GPUs, accelerators, NVSwitches, NVMe controllers, network cards.
#[derive(Debug, Default, Serialize)]
pub struct DerivedPci {
    /// Address and how its link compares with its maximum (`full`, `reduced_speed`, `reduced_width`, `unknown`).
    pub links: BTreeMap<String, String>,
    /// `A|B`, A before B as text, and how far apart they are (`PIX`, `PXB`, `PHB`, `NODE`, `SYS`, `UNKNOWN`).
    pub path_class: BTreeMap<String, String>,
    /// What was left out, when something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Of one array.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct DerivedArray {
    /// How far the action is, in percent with one decimal, rounded down; null when nothing says.
    pub sync_percent: Option<f64>,
    /// Members that have failed and are still listed.
    pub faulty: usize,
    /// Members that are being rebuilt: spares with a slot.
    pub rebuilding: Vec<String>,
    /// Spares without a slot. `/proc/mdstat` alone does not tell slots: then these are all spares.
    pub spares: Vec<String>,
}

impl Derived {
    /// Of a tick.
    #[must_use]
    pub fn of(tick: &Tick) -> Self {
        Self {
            pci: value(tick.pci.as_deref()).map(pci),
            md: value(tick.md.as_deref())
                .map(|Md { arrays }| arrays.iter().map(|array| (array.name.clone(), self::array(array))).collect()),
        }
    }
}

fn value<T>(sample: Option<&Sample<T>>) -> Option<&T> {
    sample.and_then(|sample| sample.value.get())
}

/// Which endpoints are paired first when there are too many.
fn rank(device: &PciDevice) -> Option<u8> {
    match device.kind.get()? {
        PciKind::Gpu | PciKind::Accelerator | PciKind::NvSwitch => Some(0),
        PciKind::Nvme => Some(1),
        PciKind::Nic => Some(2),
        _ => None,
    }
}

fn pci(pci: &Pci) -> DerivedPci {
    let mut endpoints: Vec<(u8, String, &PciDevice)> = pci
        .devices
        .iter()
        .filter_map(|device| rank(device).map(|rank| (rank, device.address.to_string(), device)))
        .collect();
    let links = endpoints.iter().map(|(_, at, device)| (at.clone(), device.link.state().to_string())).collect();
    let all = endpoints.len();
    endpoints.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    endpoints.truncate(PAIRED);
    endpoints.sort_by(|a, b| a.1.cmp(&b.1));
    let mut path_class = BTreeMap::new();
    for (place, (_, at, device)) in endpoints.iter().enumerate() {
        for (_, other_at, other) in endpoints.iter().skip(place + 1) {
            path_class.insert(format!("{at}|{other_at}"), device.path_class(other).to_string());
        }
    }
    let left_out = all > PAIRED;
    let note = left_out.then(|| format!("path_class has {PAIRED} of {all} endpoints: GPUs first, then NVMe"));
    DerivedPci { links, path_class, note }
}

fn array(array: &MdArray) -> DerivedArray {
    let names = |pick: &dyn Fn(&MdMember) -> bool| {
        array.members.iter().filter(|member| pick(member)).map(|member| member.name.clone()).collect()
    };
    DerivedArray {
        sync_percent: seen::sync_percent(array).map(|share| to_f64(share.0.saturating_add(500_000) / 1_000_000) / 10.0),
        faulty: array.members.iter().filter(|member| member.has(&MemberFlag::Faulty)).count(),
        rebuilding: names(&MdMember::is_rebuilding),
        spares: names(&|member| member.has(&MemberFlag::Spare) && !member.is_rebuilding()),
    }
}

#[cfg(test)]
mod tests {
    use gpuprod_snapshot::Reading;
    use gpuprod_snapshot::topology::PciAddress;
    use gpuprod_snapshot::units::{Bytes, Ppb};

    use super::*;

    #[test]
    fn the_percentage_is_cut_as_mdstat_cuts_it() {
        let of = |done: u64, total: u64| {
            let array =
                MdArray { sync_done: Bytes(done).into(), sync_total: Bytes(total).into(), ..MdArray::default() };
            self::array(&array).sync_percent
        };
        // drivers/md/md.c, status_resync(): per mille, rounded down.
        assert_eq!(of(1_569_888 * 512, 2_093_056 * 512), Some(75.0));
        assert_eq!(of(999, 1000), Some(99.9));
        assert_eq!(of(9_999, 10_000), Some(99.9));
        assert_eq!(of(u64::MAX, u64::MAX), Some(100.0));
        assert_eq!(of(0, 0), None);
        let printed = MdArray { sync_percent: Reading::Value(Ppb(126_000_000)), ..MdArray::default() };
        assert_eq!(array(&printed).sync_percent, Some(12.6));
    }

    #[test]
    fn a_crowd_of_network_cards_does_not_push_a_gpu_out() {
        let device = |bus, kind| PciDevice {
            address: PciAddress { bus, ..PciAddress::default() },
            kind: Reading::Value(kind),
            root_bus: Reading::Value("pci0000:00".to_owned()),
            ..PciDevice::default()
        };
        let mut devices: Vec<PciDevice> = (0..100).map(|bus| device(bus, PciKind::Nic)).collect();
        devices.push(device(200, PciKind::Gpu));
        devices.push(device(201, PciKind::Bridge));
        let derived = pci(&Pci { devices });
        assert_eq!((derived.links.len(), derived.path_class.len()), (101, 64 * 63 / 2));
        assert_eq!(derived.path_class.get("0000:00:00.0|0000:c8:00.0").map(String::as_str), Some("PHB"));
        assert!(derived.note.is_some_and(|note| note.contains("64 of 101")));
    }
}
