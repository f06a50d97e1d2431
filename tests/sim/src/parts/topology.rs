//! The machine's shape: two sockets, each GPU behind a switch of its own, drives on the second socket.

use gpuprod_snapshot::topology::{Link, Numa, NumaNode, Pci, PciAddress, PciDevice, PciKind};
use gpuprod_snapshot::units::{Bytes, MegaTransfers};
use gpuprod_snapshot::{Missing, Reading};

use crate::parse::is_nvme;
use crate::world::World;

/// GPUs per PCI domain, and drives.
const PER_DOMAIN: usize = 14;
/// Generation of a GPU's card.
const CARD: u32 = 5;
/// CPUs of one node.
const CPUS: u32 = 56;

/// Where a GPU sits.
pub(crate) fn gpu_address(gpu: usize) -> PciAddress {
    PciAddress { domain: domain(gpu), bus: bus(gpu).saturating_add(3), device: 0, function: 0 }
}

fn domain(index: usize) -> u32 {
    u32::try_from(index / PER_DOMAIN).unwrap_or(0)
}

fn bus(index: usize) -> u8 {
    u8::try_from((index % PER_DOMAIN + 1) * 16).unwrap_or(16)
}

/// Where a disk's controller sits.
pub(crate) fn disk_address(name: &str) -> PciAddress {
    match nvme_number(name) {
        Some(number) => {
            let bus = u8::try_from(0xf1 + number % PER_DOMAIN).unwrap_or(0xf1);
            PciAddress { domain: domain(number), bus, device: 0, function: 0 }
        }
        None => PciAddress { domain: 0, bus: 0, device: 0x17, function: 0 },
    }
}

fn nvme_number(name: &str) -> Option<usize> {
    is_nvme(name).then(|| name.strip_prefix("nvme")?.strip_suffix("n1")?.parse().ok()).flatten()
}

/// All devices, by address.
pub(crate) fn pci(world: &World<'_>) -> Pci {
    let scenario = world.scenario;
    let nodes = nodes(scenario.gpus.count);
    let mut devices = Vec::new();
    for (gpu, board) in world.boards.iter().enumerate() {
        let (first, place) = scenario.switch_of(Some(gpu), None).unwrap_or((gpu, 0));
        let (root, above) = way(first, place);
        let node = gpu_node(first, scenario.gpus.count);
        let now = scenario.link(gpu, CARD, board.util > 0.0, world.second);
        // The root port and the upstream port of a shared switch stand there once.
        devices.extend((if place == 0 { 0 } else { 2 }..3).map(|up| bridge(above[up], &root, &above[..up], node)));
        if let Some(port) = devices.last_mut() {
            port.link = lanes((now.generation_max, now.generation_max), (now.width, now.width_max));
        }
        devices.push(PciDevice {
            link: lanes((now.generation, CARD), (now.width, 16)),
            ..device(gpu_address(gpu), PciKind::Gpu, (0x03_0200, 0x10de, 0x2330), &root, &above, node)
        });
    }
    let drives: Vec<&str> = scenario.disks.iter().map(|disk| disk.name.as_str()).collect();
    for name in &drives {
        let Some(number) = nvme_number(name) else { continue };
        if let Some((first, place)) = scenario.switch_of(None, Some(name)) {
            let (root, above) = way(first, place);
            let node = gpu_node(first, scenario.gpus.count);
            devices.push(bridge(above[2], &root, &above[..2], node));
            devices.push(PciDevice {
                link: link(16_000, 16_000, 4),
                ..device(disk_address(name), PciKind::Nvme, (0x01_0802, 0x144d, 0xa80a), &root, &above, node)
            });
            continue;
        }
        let domain = domain(number);
        let slot = u8::try_from(number % PER_DOMAIN + 1).unwrap_or(1);
        let root = format!("pci{domain:04x}:f0");
        let port = PciAddress { domain, bus: 0xf0, device: slot, function: 0 };
        let node = nodes - 1;
        devices.push(bridge(port, &root, &[], node));
        devices.push(PciDevice {
            link: link(16_000, 16_000, 4),
            ..device(disk_address(name), PciKind::Nvme, (0x01_0802, 0x144d, 0xa80a), &root, &[port], node)
        });
    }
    if drives.iter().any(|name| nvme_number(name).is_none()) {
        devices.push(PciDevice {
            address: disk_address("sda"),
            kind: Reading::Missing(Missing::Unsupported),
            class: 0x01_0601.into(),
            vendor: 0x8086.into(),
            device: 0x1bd2.into(),
            root_bus: "pci0000:00".to_owned().into(),
            numa_node_inherited: Reading::Missing(Missing::Unsupported),
            ..PciDevice::default()
        });
    }
    devices.sort_unstable_by_key(|device| device.address);
    Pci { devices }
}

/// The way down to a device: root port, upstream port of the switch, and the downstream port at its place.
fn way(first: usize, place: usize) -> (String, [PciAddress; 3]) {
    let (domain, bus) = (domain(first), bus(first));
    let at = |up: u8, device: u8| PciAddress { domain, bus: bus.saturating_add(up), device, function: 0 };
    let place = u8::try_from(place).unwrap_or(31).min(31);
    (format!("pci{domain:04x}:{bus:02x}"), [at(0, 1), at(1, 0), at(2, place)])
}

/// Speed per lane of a generation.
fn speed(generation: u32) -> u32 {
    let speeds = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000];
    let place = usize::try_from(generation).unwrap_or(1).clamp(1, speeds.len()) - 1;
    speeds[place]
}

fn lanes((now, most): (u32, u32), (width, width_max): (u32, u32)) -> Link {
    Link {
        speed: MegaTransfers(speed(now)).into(),
        width: width.into(),
        speed_max: MegaTransfers(speed(most)).into(),
        width_max: width_max.into(),
    }
}

fn nodes(gpus: usize) -> u32 {
    if gpus > 1 { 2 } else { 1 }
}

/// Node of a GPU's socket.
pub(crate) fn gpu_node(gpu: usize, gpus: usize) -> u32 {
    if nodes(gpus) == 2 && gpu >= gpus.div_ceil(2) { 1 } else { 0 }
}

/// The first CPU of a node.
pub(crate) fn first_cpu(node: u32) -> u32 {
    node * CPUS
}

/// All CPUs of the machine, and all of its nodes, as the kernel prints them.
pub(crate) fn everywhere(gpus: usize) -> (String, String) {
    let nodes = nodes(gpus);
    (format!("0-{}", nodes * CPUS - 1), if nodes == 1 { "0".into() } else { format!("0-{}", nodes - 1) })
}

fn cpulist(node: u32) -> String {
    format!("{}-{}", node * CPUS, node * CPUS + CPUS - 1)
}

fn bridge(address: PciAddress, root: &str, above: &[PciAddress], node: u32) -> PciDevice {
    PciDevice {
        link: link(32_000, 32_000, 16),
        ..device(address, PciKind::Bridge, (0x06_0400, 0x8086, 0x352a), root, above, node)
    }
}

fn device(
    address: PciAddress,
    kind: PciKind,
    (class, vendor, id): (u32, u32, u32),
    root: &str,
    above: &[PciAddress],
    node: u32,
) -> PciDevice {
    PciDevice {
        address,
        kind: kind.into(),
        class: class.into(),
        vendor: vendor.into(),
        device: id.into(),
        root_bus: root.to_owned().into(),
        bridges: above.to_vec(),
        numa_node: node.into(),
        numa_node_inherited: Reading::Missing(Missing::Unsupported),
        local_cpulist: cpulist(node).into(),
        link: Link::default(),
        aer_correctable: 0.into(),
        aer_fatal: 0.into(),
    }
}

fn link(speed: u32, speed_max: u32, width: u32) -> Link {
    Link {
        speed: MegaTransfers(speed).into(),
        width: width.into(),
        speed_max: MegaTransfers(speed_max).into(),
        width_max: width.into(),
    }
}

/// One node per socket.
pub(crate) fn numa(gpus: usize) -> Numa {
    let count = nodes(gpus);
    let node = |id: u32| NumaNode {
        id,
        cpulist: cpulist(id).into(),
        package: id.into(),
        distances: (0..count).map(|other| if other == id { 10 } else { 21 }).collect::<Vec<u32>>().into(),
        mem_total: Bytes(1 << 40).into(),
        mem_free: Bytes(600 << 30).into(),
    };
    Numa { nodes: (0..count).map(node).collect() }
}
