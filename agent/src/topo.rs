//! How the node hangs together: devices below their root buses and nodes, how far apart they are, which links run
//! below what both ends can do, and what sits near which GPU.

mod page;
mod placed;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::topology::{LinkState, NumaNode, PathClass, Pci, PciAddress, PciDevice, PciKind};
use gpuprod_snapshot::units::{Bytes, MegaTransfers, Permille};
use gpuprod_snapshot::{Reading, Sample, Source, Tick};
use serde::Serialize;

use crate::text;
pub use page::page;
pub use placed::{Drive, Held, Placement};

/// What is read for it.
pub const SOURCES: &[Source] = &[Source::Pci, Source::Numa, Source::Gpu, Source::Block, Source::Md, Source::Proc];
/// At most so many devices are paired: a node with many virtual functions has thousands.
const PAIRED: usize = 64;
/// QEMU's bridges: their links are made up.
const VIRTUAL: u32 = 0x1b36;
/// A GPU with this utilization works. Its performance state says nothing: boards of data centres rest in P0, too.
const WORKS: Permille = Permille(100);

/// The whole answer.
#[derive(Debug, Serialize)]
pub struct Topo {
    /// NUMA nodes.
    pub nodes: Vec<Node>,
    /// GPUs, accelerators, NVSwitches, NVMe controllers and network cards, by address.
    pub devices: Vec<Device>,
    /// Every pair of them once.
    pub paths: Vec<Path>,
    /// The processes that hold GPUs, by GPU and pid.
    pub processes: Vec<Held>,
    /// What is wrong or worth knowing.
    pub findings: Vec<Note>,
    /// Sources that gave nothing, and what was left out.
    pub notes: Vec<String>,
}

/// A NUMA node.
#[derive(Debug, Serialize)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs; empty for memory of a device.
    pub cpus: Reading<String>,
    /// Its memory.
    pub mem_total: Reading<Bytes>,
    /// What is free of it.
    pub mem_free: Reading<Bytes>,
}

/// A device that matters.
#[derive(Debug, Serialize)]
pub struct Device {
    /// `GPU 0`, `nvme0n1`, or its kind.
    pub name: String,
    /// Where it sits.
    pub address: PciAddress,
    /// What it is.
    pub kind: String,
    /// The node that it is near; missing where firmware does not say.
    pub node: Reading<u32>,
    /// CPUs that are near it.
    pub cpus: Reading<String>,
    /// Its host bridge.
    pub root_bus: Reading<String>,
    /// Bridges above it, top first.
    pub bridges: Vec<PciAddress>,
    /// Lanes now, and at most.
    pub width: (Reading<u32>, Reading<u32>),
    /// Speed per lane now, and at most.
    pub speed: (Reading<MegaTransfers>, Reading<MegaTransfers>),
    /// How the two compare.
    pub link: LinkState,
}

/// How far apart two devices are.
#[derive(Debug, Serialize)]
pub struct Path {
    /// Place in `devices`.
    pub a: usize,
    /// Place in `devices`.
    pub b: usize,
    /// In the words of `nvidia-smi topo -m`.
    pub class: PathClass,
}

/// Something worth knowing.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Whether somebody should act.
    pub warn: bool,
    /// About which device or node.
    pub about: String,
    /// What it is.
    pub says: String,
}

impl Topo {
    /// Of a tick.
    #[must_use]
    pub fn of(tick: &Tick) -> Self {
        let gpus = value(tick.gpu.as_deref()).map_or(&[][..], |gpus| &gpus.devices);
        let none = Pci::default();
        let pci = value(tick.pci.as_deref()).unwrap_or(&none);
        let mut endpoints: Vec<&PciDevice> = pci.devices.iter().filter(|device| rank(device).is_some()).collect();
        let all = endpoints.len();
        endpoints.sort_by_key(|device| (rank(device), device.address));
        endpoints.truncate(PAIRED);
        let mut notes = Vec::new();
        if all > PAIRED {
            notes.push(format!("{PAIRED} of {all} devices are shown: GPUs first, then NVMe"));
        }
        for source in SOURCES {
            if let Some(sample) = tick.status(*source).filter(|sample| sample.value.get().is_none()) {
                notes.push(format!("{}: {}", source.as_str(), text::clean(&sample.why)));
            }
        }
        let mut paths = Vec::new();
        for (a, one) in endpoints.iter().enumerate() {
            for (b, other) in endpoints.iter().enumerate().skip(a + 1) {
                paths.push(Path { a, b, class: one.path_class(other) });
            }
        }
        let devices: Vec<Device> = endpoints.iter().map(|device| self::device(device, gpus, tick)).collect();
        let nodes: Vec<Node> =
            value(tick.numa.as_deref()).map_or(&[][..], |numa| &numa.nodes).iter().map(node).collect();
        let mut findings = Vec::new();
        for (place, endpoint) in endpoints.iter().enumerate() {
            let gpu = gpu_at(endpoint, gpus);
            let name = devices.get(place).map_or("", |device| device.name.as_str());
            findings.extend(link(endpoint, pci, gpu).map(|(warn, says)| Note { warn, about: name.to_owned(), says }));
        }
        placement(&devices, &paths, &nodes, &mut findings);
        let processes = placed::held(tick);
        findings.extend(placed::judge(&processes, tick));
        Self { nodes, devices, paths, processes, findings, notes }
    }
}

fn value<T>(sample: Option<&Sample<T>>) -> Option<&T> {
    sample.and_then(|sample| sample.value.get())
}

/// What is shown, and in which order.
fn rank(device: &PciDevice) -> Option<u8> {
    match device.kind.get()? {
        PciKind::Gpu | PciKind::Accelerator => Some(0),
        PciKind::NvSwitch => Some(1),
        PciKind::Nvme => Some(2),
        PciKind::Nic => Some(3),
        _ => None,
    }
}

fn gpu_at<'a>(device: &PciDevice, gpus: &'a [Gpu]) -> Option<&'a Gpu> {
    gpus.iter().find(|gpu| gpu.pci.get().is_some_and(|pci| pci.same_slot(device.address)))
}

fn node(node: &NumaNode) -> Node {
    let NumaNode { id, cpulist, mem_total, mem_free, .. } = node.clone();
    Node { id, cpus: cpulist, mem_total, mem_free }
}

fn device(device: &PciDevice, gpus: &[Gpu], tick: &Tick) -> Device {
    let kind = device.kind.get().map_or_else(|| "?".to_owned(), ToString::to_string);
    let drives = value(tick.block.as_deref()).map_or(&[][..], |block| &block.devices);
    let drive = drives.iter().find(|drive| drive.partition_of.is_none() && drive.pci.get() == Some(&device.address));
    let name = match (gpu_at(device, gpus), drive) {
        (Some(gpu), _) => format!("GPU {}", gpu.index),
        (None, Some(drive)) => text::clip(&text::clean(&drive.name), 16),
        (None, None) => {
            format!("{kind} {:02x}:{:02x}.{}", device.address.bus, device.address.device, device.address.function)
        }
    };
    let near = device.near_node();
    Device {
        name,
        address: device.address,
        kind,
        node: near.map_or_else(|| device.numa_node.as_ref().map(|node| *node), Reading::Value),
        // Where firmware does not know, it calls every CPU local: that says nothing.
        cpus: if near.is_some() {
            device.local_cpulist.clone()
        } else {
            device.numa_node.as_ref().map(|_| String::new())
        },
        root_bus: device.root_bus.clone(),
        bridges: device.bridges.clone(),
        width: (device.link.width, device.link.width_max),
        speed: (device.link.speed, device.link.speed_max),
        link: device.link.state(),
    }
}

/// What is wrong with a link, and at which end. Speed below the maximum is normal for a GPU that rests; width is not.
fn link(device: &PciDevice, pci: &Pci, gpu: Option<&Gpu>) -> Option<(bool, String)> {
    let port = device.bridges.last().and_then(|at| pci.devices.iter().find(|bridge| bridge.address == *at));
    let port = port.filter(|port| port.vendor.copied() != Some(VIRTUAL));
    let own = &device.link;
    let (width, most) = (own.width.copied()?, own.width_max.copied()?);
    let slot = port.and_then(|port| Some((port.address, port.link.width_max.copied()?)));
    if width < most {
        let end = match slot {
            Some((at, slot)) if slot < most => {
                format!("the port above ({at}) has x{slot}: the slot is the limit, no fault of the card")
            }
            Some((at, slot)) => format!(
                "the port above ({at}) has x{slot} too: lanes are lost between them (seat, riser, retimer, or a worn card)"
            ),
            None => "what the port above can do is not known".to_owned(),
        };
        let narrow = slot.is_some_and(|(_, slot)| slot < most && width >= slot);
        return Some((!narrow, format!("link x{width} of x{most}; {end}")));
    }
    let (speed, fastest) = (own.speed.copied()?, own.speed_max.copied()?);
    if speed >= fastest {
        return None;
    }
    let gigas = |speed: MegaTransfers| format!("{}", f64::from(speed.0) / 1000.0);
    let slot = port.and_then(|port| Some((port.address, port.link.speed_max.copied()?)));
    let text = format!("link {} of {} GT/s", gigas(speed), gigas(fastest));
    match slot {
        Some((at, slot)) if slot < fastest && speed >= slot => {
            Some((false, format!("{text}; the port above ({at}) has {} GT/s: the slot is the limit", gigas(slot))))
        }
        _ => match gpu {
            Some(gpu) if gpu.util.copied().is_some_and(|util| util >= WORKS) => {
                Some((true, format!("{text} while the GPU works: look for replays and at the riser")))
            }
            Some(_) => Some((false, format!("{text}; the GPU rests or does not say: normal then"))),
            None if device.kind.get() == Some(&PciKind::Gpu) => {
                Some((false, format!("{text}; normal for a GPU that rests")))
            }
            None if slot.is_none() => Some((false, format!("{text}; what the port above can do is not known"))),
            None => Some((true, format!("{text}; both ends can more"))),
        },
    }
}

/// What sits near each GPU, and nodes that are short of memory.
fn placement(devices: &[Device], paths: &[Path], nodes: &[Node], findings: &mut Vec<Note>) {
    let sockets = nodes.iter().filter(|node| node.cpus.get().is_some_and(|cpus| !cpus.is_empty())).count();
    let is_gpu = |device: &Device| device.kind == PciKind::Gpu.as_str() || device.kind == PciKind::Accelerator.as_str();
    for (place, gpu) in devices.iter().enumerate().filter(|(_, device)| is_gpu(device)) {
        let mut parts = Vec::new();
        match gpu.node.copied() {
            _ if sockets < 2 => {}
            None => parts.push("firmware does not say on which node it is".to_owned()),
            Some(node) => {
                let cpus = gpu.cpus.get().filter(|cpus| !cpus.is_empty());
                let cpus = cpus.map(|cpus| format!(": pin to CPUs {}", text::clean(cpus))).unwrap_or_default();
                parts.push(format!("node {node}{cpus}"));
            }
        }
        for (kind, word) in [(PciKind::Nic, "network card"), (PciKind::Nvme, "NVMe")] {
            if let Some((name, class)) = nearest(place, kind.as_str(), devices, paths) {
                parts.push(format!("nearest {word} {name} ({class})"));
            }
        }
        if !parts.is_empty() {
            findings.push(Note { warn: false, about: gpu.name.clone(), says: parts.join("; ") });
        }
    }
    for node in nodes {
        let (Some(total), Some(free)) = (node.mem_total.copied(), node.mem_free.copied()) else { continue };
        if sockets > 1 && total.0 > 0 && free.0 < total.0 / 50 {
            let says = format!(
                "{} of {} free: what is placed here takes memory of another node",
                text::bytes(free.0),
                text::bytes(total.0)
            );
            findings.push(Note { warn: true, about: format!("node {}", node.id), says });
        }
    }
}

/// The nearest device of a kind; of equals the first by name.
fn nearest(of: usize, kind: &str, devices: &[Device], paths: &[Path]) -> Option<(String, PathClass)> {
    let far = |class: &PathClass| match class {
        PathClass::Pix => 0_u8,
        PathClass::Pxb => 1,
        PathClass::Phb => 2,
        PathClass::Node => 3,
        PathClass::Sys => 4,
        _ => 5,
    };
    let ends = paths.iter().filter_map(|path| match path {
        Path { a, b, class } if *a == of => Some((*b, class)),
        Path { a, b, class } if *b == of => Some((*a, class)),
        _ => None,
    });
    let of_kind = ends.filter_map(|(place, class)| Some((devices.get(place)?, class)));
    let best =
        of_kind.filter(|(device, _)| device.kind == kind).min_by_key(|(device, class)| (far(class), device.address));
    best.filter(|(_, class)| far(class) < 5).map(|(device, class)| (device.name.clone(), class.clone()))
}
