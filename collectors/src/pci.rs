//! The PCI tree: one listing of `bus/pci/devices`, one link per device, a few attributes of those that matter.
//!
//! `config` is never read: it wakes sleeping devices and needs root. Link attributes are read only of a device
//! that is awake, because newer kernels resume a device (and its bridges) for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gpuprod_snapshot::topology::{Link, Pci, PciAddress, PciDevice, PciKind};
use gpuprod_snapshot::units::MegaTransfers;

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, tree};

/// With more devices than this, only those that matter and the bridges above them are kept: a node with many
/// virtual functions has thousands.
const KEEP_ALL: usize = 512;
/// A listing that is longer is cut: the addresses of one domain are 65,536, and no node has this many devices.
const LIST_AT_MOST: usize = 16_384;

/// Class (base class and subclass, the top 16 of 24 bits) and what it means here.
const KINDS: &[(u32, PciKind)] = &[
    (0x0108, PciKind::Nvme),
    (0x0200, PciKind::Nic),
    (0x0207, PciKind::Nic), // InfiniBand
    (0x0280, PciKind::Nic), // Omni-Path, some ConnectX
    (0x0300, PciKind::Gpu), // VGA
    (0x0302, PciKind::Gpu), // 3D
    (0x0380, PciKind::Gpu), // other display
    (0x0604, PciKind::Bridge),
    (0x0b40, PciKind::Accelerator), // co-processor
    (0x1200, PciKind::Accelerator),
];
/// NVIDIA calls its NVSwitch "other bridge".
const OTHER_BRIDGE: u32 = 0x0680;
const NVIDIA: u32 = 0x10de;

/// Reads the PCI tree.
pub struct Tree;

impl Collector for Tree {
    fn source(&self) -> Source {
        Source::Pci
    }

    fn collect(&mut self, host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        let list = host.sys.join("bus/pci/devices");
        let mut devices: Vec<PciDevice> =
            tree::names(&list)?.iter().take(LIST_AT_MOST).filter_map(|name| device(&list, name)).collect();
        devices.sort_unstable_by_key(|device| device.address);
        inherit_nodes(&mut devices);
        Ok(Part::Pci(Pci { devices: keep_what_matters(devices, KEEP_ALL) }))
    }
}

fn device(list: &Path, name: &str) -> Option<PciDevice> {
    let entry = list.join(name);
    let target = target(&entry);
    let (root_bus, bridges) = target.as_deref().map_or((None, Vec::new()), path_of);
    // A directory in the place of a link (an unpacked copy of a tree) has its attributes inside.
    let dir = target.map_or_else(|| entry.clone(), |target| list.join(target));
    let class = tree::hex(&dir.join("class"));
    let vendor = tree::hex(&dir.join("vendor"));
    let mut device = PciDevice {
        address: PciAddress::parse(name)?,
        kind: kind(class.copied(), vendor.copied()),
        class,
        vendor,
        device: tree::hex(&dir.join("device")),
        root_bus: Reading::from_option(root_bus, Missing::Unsupported),
        bridges,
        ..PciDevice::default()
    };
    if device.kind.get().is_some() {
        device.numa_node = node(tree::value(&dir.join("numa_node")));
        device.local_cpulist = tree::word(&dir.join("local_cpulist"));
        device.link = link(&dir);
        device.aer_correctable = aer(&dir.join("aer_dev_correctable"), "TOTAL_ERR_COR");
        device.aer_fatal = aer(&dir.join("aer_dev_fatal"), "TOTAL_ERR_FATAL");
    }
    Some(device)
}

/// Where the entry of the listing leads. Copies of a tree that were made without links hold the target as text.
fn target(entry: &Path) -> Option<PathBuf> {
    tree::link(entry).ok().or_else(|| {
        let text = tree::text(entry).ok()?;
        text.starts_with("../").then(|| PathBuf::from(text.trim()))
    })
}

/// Root bus and bridges of `../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0`. The last `pciDDDD:BB` counts:
/// on ARM, platform devices can stand before it; with VMD, a root bus hangs below a device.
fn path_of(target: &Path) -> (Option<String>, Vec<PciAddress>) {
    let parts: Vec<&str> = target.iter().filter_map(|part| part.to_str()).collect();
    let Some(root) = parts.iter().rposition(|part| is_root_bus(part)) else {
        return (None, Vec::new());
    };
    let mut bridges: Vec<PciAddress> = parts[root..].iter().filter_map(|part| PciAddress::parse(part)).collect();
    bridges.pop();
    (Some(parts[root].to_owned()), bridges)
}

fn is_root_bus(part: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    part.strip_prefix("pci")
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(domain, bus)| digits(domain) && digits(bus))
}

fn kind(class: Option<u32>, vendor: Option<u32>) -> Reading<PciKind> {
    let class = class.map(|class| class >> 8);
    let found = match class {
        Some(OTHER_BRIDGE) if vendor == Some(NVIDIA) => Some(PciKind::NvSwitch),
        _ => KINDS.iter().find(|(known, _)| Some(*known) == class).map(|(_, kind)| kind.clone()),
    };
    Reading::from_option(found, Missing::Unsupported)
}

/// -1: firmware does not say. It is not node 0.
fn node(read: Reading<i64>) -> Reading<u32> {
    match read {
        Reading::Value(node) => Reading::from_option(u32::try_from(node).ok(), Missing::Unsupported),
        Reading::Missing(missing) => Reading::Missing(missing),
    }
}

fn link(dir: &Path) -> Link {
    let awake = match tree::word(&dir.join("power_state")) {
        Reading::Value(state) => state == "D0",
        // Kernels before 5.9 do not tell, and do not resume anything for a read either.
        Reading::Missing(_) => true,
    };
    if !awake {
        return Link::default();
    }
    let speed_of = |name: &str| flatten(tree::word(&dir.join(name)), speed);
    let width_of = |name: &str| flatten(tree::word(&dir.join(name)), width);
    Link {
        speed: speed_of("current_link_speed"),
        width: width_of("current_link_width"),
        speed_max: speed_of("max_link_speed"),
        width_max: width_of("max_link_width"),
    }
}

fn flatten<T>(word: Reading<String>, parse: fn(&str) -> Reading<T>) -> Reading<T> {
    match word {
        Reading::Value(word) => parse(&word),
        Reading::Missing(missing) => Reading::Missing(missing),
    }
}

/// `8 GT/s`, `8.0 GT/s PCIe`: the leading decimal counts, whatever follows. `Unknown`, `Unknown speed`: none.
fn speed(text: &str) -> Reading<MegaTransfers> {
    if text.starts_with("Unknown") {
        return Reading::Missing(Missing::Unsupported);
    }
    let number = text.split_ascii_whitespace().next().unwrap_or("");
    Reading::from_option(thousandths(number).map(MegaTransfers), Missing::Malformed)
}

/// A decimal with up to three places as thousandths.
fn thousandths(number: &str) -> Option<u32> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let places = u32::try_from(fraction.len()).ok()?;
    let fraction: u32 = fraction.parse().ok()?;
    let whole: u32 = whole.parse().ok()?;
    whole.checked_mul(1000)?.checked_add(fraction * 10_u32.pow(3 - places))
}

/// 0 is no link (a virtual function), 255 an unreadable capability, 63 a register of a device that is gone.
fn width(text: &str) -> Reading<u32> {
    match text.parse() {
        Ok(0 | 255) => Reading::Missing(Missing::Unsupported),
        Ok(63) => Reading::Missing(Missing::Gone),
        Ok(lanes) if lanes <= 32 => Reading::Value(lanes),
        _ => Reading::Missing(Missing::Malformed),
    }
}

fn aer(path: &Path, total: &str) -> Reading<u64> {
    match tree::text(path) {
        Ok(text) => Reading::from_option(aer_total(&text, total), Missing::Malformed),
        Err(error) => Reading::Missing(error.missing),
    }
}

/// The total of an `aer_dev_*` file: lines of `NAME value`, and newer kernels add names.
fn aer_total(text: &str, total: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == total)
        .and_then(|(_, value)| value.trim().parse().ok())
}

/// Gives each device of unknown node that of the nearest bridge above it. `devices` is sorted by address.
fn inherit_nodes(devices: &mut [PciDevice]) {
    for index in 0..devices.len() {
        let own = &devices[index];
        let inherited = match own.numa_node.get() {
            Some(_) => None,
            None => own.bridges.iter().rev().find_map(|bridge| {
                let at = devices.binary_search_by_key(bridge, |device| device.address);
                devices[at.ok()?].numa_node.copied()
            }),
        };
        devices[index].numa_node_inherited = Reading::from_option(inherited, Missing::Unsupported);
    }
}

fn keep_what_matters(devices: Vec<PciDevice>, all: usize) -> Vec<PciDevice> {
    if devices.len() <= all {
        return devices;
    }
    let matters = |device: &PciDevice| !matches!(device.kind.get(), None | Some(PciKind::Bridge));
    let above: BTreeSet<PciAddress> =
        devices.iter().filter(|device| matters(device)).flat_map(|device| device.bridges.iter().copied()).collect();
    devices.into_iter().filter(|device| matters(device) || above.contains(&device.address)).collect()
}

#[cfg(test)]
#[path = "pci_tests.rs"]
mod tests;
