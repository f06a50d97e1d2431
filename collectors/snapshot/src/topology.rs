//! Where things sit: PCI, NUMA, network ports.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Reading;
use crate::units::{Bytes, MegaTransfers};

/// A PCI address. Domains wider than 16 bits exist (VMD, Azure); NVML prints eight digits in upper case, sysfs
/// four or more in lower case, the kernel log leaves the function out: all are the same address here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
    /// Function; 0 where the source leaves it out.
    pub function: u8,
}

impl PciAddress {
    /// Reads `DDDD:BB:DD.F` or `DDDD:BB:DD`, in either case, with any width of domain.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, function) = match text.split_once('.') {
            Some((rest, function)) => (rest, u8::from_str_radix(function, 8).ok()?),
            None => (text, 0),
        };
        let mut parts = rest.split(':');
        let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || function > 7 {
            return None;
        }
        let device = hex(device, 2)?;
        (device < 32).then_some(())?;
        Some(Self {
            domain: hex(domain, 8)?,
            bus: u8::try_from(hex(bus, 2)?).ok()?,
            device: u8::try_from(device).ok()?,
            function,
        })
    }

    /// Equal but for the function: what a kernel line can tell.
    #[must_use]
    pub fn same_slot(self, other: Self) -> bool {
        Self { function: 0, ..self } == Self { function: 0, ..other }
    }
}

fn hex(text: &str, width: usize) -> Option<u32> {
    let fits = !text.is_empty() && text.len() <= width && text.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(alloc::format!("not a PCI address: {text:?}")))
    }
}

/// The PCI tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pci {
    /// The devices, by address.
    pub devices: Vec<PciDevice>,
}

words! {
    /// What a device is, by its class code.
    PciKind {
        Gpu = "gpu", Accelerator = "accelerator", Nic = "nic", Nvme = "nvme", NvSwitch = "nvswitch",
        Bridge = "bridge",
    }
}

words! {
    /// How its link compares with what device and slot can do.
    LinkState {
        Full = "full", ReducedSpeed = "reduced_speed", ReducedWidth = "reduced_width", Unknown = "unknown",
    }
}

words! {
    /// How far apart two devices are, in the words of `nvidia-smi topo -m`.
    PathClass { Pix = "PIX", Pxb = "PXB", Phb = "PHB", Node = "NODE", Sys = "SYS", Unknown = "UNKNOWN" }
}

/// One PCI device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciDevice {
    /// Its address.
    pub address: PciAddress,
    /// What it is; missing for classes that do not matter here.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub kind: Reading<PciKind>,
    /// Class code, 0xCCSSPP.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub class: Reading<u32>,
    /// Vendor id.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub vendor: Reading<u32>,
    /// Device id.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub device: Reading<u32>,
    /// The host bridge (`pci0000:00`).
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub root_bus: Reading<String>,
    /// Bridges between the root and the device, top first.
    pub bridges: Vec<PciAddress>,
    /// Own NUMA node, -1 and absent being unknown.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub numa_node: Reading<u32>,
    /// Node of the nearest ancestor that has one, when the device's own is unknown.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub numa_node_inherited: Reading<u32>,
    /// CPUs that firmware calls local; all CPUs when it does not know.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub local_cpulist: Reading<String>,
    /// The link.
    pub link: Link,
    /// Corrected errors (AER).
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub aer_correctable: Reading<u64>,
    /// Fatal errors (AER).
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub aer_fatal: Reading<u64>,
}

impl PciDevice {
    /// The node that it is near: its own, or that of the nearest ancestor.
    #[must_use]
    pub fn near_node(&self) -> Option<u32> {
        self.numa_node.copied().or_else(|| self.numa_node_inherited.copied())
    }

    /// How far apart two devices are by their paths, as `nvidia-smi topo -m` classes them. Where firmware does not
    /// say on which nodes two root buses are, the answer is unknown: nothing is guessed.
    #[must_use]
    pub fn path_class(&self, other: &Self) -> PathClass {
        let (Some(root), Some(other_root)) = (self.root_bus.get(), other.root_bus.get()) else {
            return PathClass::Unknown;
        };
        if root != other_root {
            return match (self.near_node(), other.near_node()) {
                (Some(a), Some(b)) if a == b => PathClass::Node,
                (Some(_), Some(_)) => PathClass::Sys,
                _ => PathClass::Unknown,
            };
        }
        let common = self.bridges.iter().zip(&other.bridges).take_while(|(a, b)| a == b).count();
        let below = |device: &Self| device.bridges.len() - common;
        match common {
            0 => PathClass::Phb,
            _ if below(self) <= 1 && below(other) <= 1 => PathClass::Pix,
            _ => PathClass::Pxb,
        }
    }
}

/// A PCIe link. Speed below maximum is normal for an idle GPU; width below maximum is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Speed per lane now.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub speed: Reading<MegaTransfers>,
    /// Lanes now.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub width: Reading<u32>,
    /// Largest speed.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub speed_max: Reading<MegaTransfers>,
    /// Largest width.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub width_max: Reading<u32>,
}

impl Link {
    /// How the link compares with its maximum.
    #[must_use]
    pub fn state(&self) -> LinkState {
        let (Some(width), Some(width_max)) = (self.width.copied(), self.width_max.copied()) else {
            return LinkState::Unknown;
        };
        let (Some(speed), Some(speed_max)) = (self.speed.copied(), self.speed_max.copied()) else {
            return LinkState::Unknown;
        };
        if width < width_max {
            LinkState::ReducedWidth
        } else if speed < speed_max {
            LinkState::ReducedSpeed
        } else {
            LinkState::Full
        }
    }
}

/// NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numa {
    /// The nodes, by number; numbers may have holes.
    pub nodes: Vec<NumaNode>,
}

/// One NUMA node. Without CPUs it is memory of a device, never "the other socket".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its CPUs as the kernel prints them; empty for a node without.
    pub cpulist: Reading<String>,
    /// The socket of its CPUs. Several nodes may share one (NPS, SNC).
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub package: Reading<u32>,
    /// Distances to the online nodes, in their order.
    pub distances: Reading<Vec<u32>>,
    /// Its memory.
    pub mem_total: Reading<Bytes>,
    /// Free memory.
    pub mem_free: Reading<Bytes>,
}

/// Network and RDMA ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Net {
    /// The ports, by device and number.
    pub ports: Vec<NetPort>,
}

words! {
    /// What a port speaks.
    PortLayer { InfiniBand = "infiniband", Roce = "roce", Ethernet = "ethernet" }
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetPort {
    /// Device (`mlx5_0`, `eth0`).
    pub device: String,
    /// Port number; 0 for a network interface.
    pub port: u32,
    /// What it speaks.
    pub layer: Reading<PortLayer>,
    /// Up or not.
    pub up: Reading<bool>,
    /// Megabits per second that the link came up with.
    pub speed: Reading<u32>,
    /// Bytes sent.
    pub tx: Reading<Bytes>,
    /// Bytes received.
    pub rx: Reading<Bytes>,
    /// Counters that tell of waiting, loss and failing links, under the driver's own names, sorted by name.
    pub counters: Vec<(String, u64)>,
}
