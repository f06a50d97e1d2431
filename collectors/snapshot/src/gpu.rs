//! GPUs as NVML shows them, and the driver's error lines.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Reading;
use crate::topology::PciAddress;
use crate::units::{Bytes, Celsius, MegaHertz, Millijoules, Milliwatts, Nanos, Permille, Ppb};

words! {
    /// Who made the device.
    Vendor { Nvidia = "nvidia", Amd = "amd", Intel = "intel" }
}

words! {
    /// Whether the driver can still talk to the device.
    GpuHealth {
        /// It answers.
        Ok = "ok",
        /// NVML_ERROR_GPU_IS_LOST: fallen off the bus.
        Lost = "lost",
        /// NVML_ERROR_RESET_REQUIRED.
        ResetRequired = "reset_required",
    }
}

/// All GPUs that NVML lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// Driver version, as `nvmlSystemGetDriverVersion` prints it.
    pub driver: Reading<String>,
    /// The devices in NVML's order.
    pub devices: Vec<Gpu>,
}

/// One GPU. A field that the device or driver does not have is Missing; it never spoils the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// NVML's index: for people only, it changes with the device order.
    pub index: u32,
    /// The identity, `GPU-…`.
    pub uuid: Reading<String>,
    /// Who made it.
    pub vendor: Reading<Vendor>,
    /// Where it sits.
    pub pci: Reading<PciAddress>,
    /// The product name.
    pub model: Reading<String>,
    /// Whether it answers.
    pub health: Reading<GpuHealth>,
    /// Share of the last window in which at least one kernel was resident. Time, not work.
    pub util: Reading<Permille>,
    /// Share of the last window in which memory was read or written. Time, not capacity.
    pub util_mem: Reading<Permille>,
    /// Framebuffer size.
    pub mem_total: Reading<Bytes>,
    /// Framebuffer in use, without the driver's own reserve.
    pub mem_used: Reading<Bytes>,
    /// The driver's own reserve.
    pub mem_reserved: Reading<Bytes>,
    /// Board power.
    pub power: Reading<Milliwatts>,
    /// The limit in force.
    pub power_limit: Reading<Milliwatts>,
    /// The limit that the product ships with.
    pub power_limit_default: Reading<Milliwatts>,
    /// Energy since the driver was loaded.
    pub energy: Reading<Millijoules>,
    /// Core temperature.
    pub temp: Reading<Celsius>,
    /// Memory temperature.
    pub temp_mem: Reading<Celsius>,
    /// SM clock.
    pub clock_sm: Reading<MegaHertz>,
    /// Largest SM clock.
    pub clock_sm_max: Reading<MegaHertz>,
    /// Memory clock.
    pub clock_mem: Reading<MegaHertz>,
    /// Why the clocks are not higher: NVML's bit mask (0x1 idle, 0x4 software power cap, 0x8 hardware slowdown,
    /// 0x20 software thermal, 0x40 hardware thermal, 0x80 hardware power brake).
    pub clock_reasons: Reading<u64>,
    /// Performance state, 0 (fastest) to 15.
    pub pstate: Reading<u32>,
    /// PCIe counters and link.
    pub pcie: GpuPcie,
    /// Memory errors.
    pub ecc: GpuEcc,
    /// NVLink bytes, summed over the links.
    pub nvlink_tx: Reading<Bytes>,
    /// NVLink bytes received, summed over the links.
    pub nvlink_rx: Reading<Bytes>,
    /// Activity by unit, where the hardware has GPM (Hopper and newer).
    pub gpm: Reading<Gpm>,
    /// MIG on or off.
    pub mig: Reading<bool>,
    /// Compute slices of the largest MIG profile; missing where the device has no MIG.
    pub mig_slices: Reading<u32>,
    /// MIG GPU instances.
    pub instances: Vec<MigInstance>,
    /// Processes with a context on the device.
    pub processes: Reading<Vec<GpuProcess>>,
}

/// PCIe as NVML counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuPcie {
    /// Bytes sent by the GPU, a counter that can wrap (field 197).
    pub tx: Reading<Bytes>,
    /// Bytes received by the GPU, a counter that can wrap (field 198).
    pub rx: Reading<Bytes>,
    /// Replays.
    pub replay: Reading<u64>,
    /// Link generation now.
    pub generation: Reading<u32>,
    /// Link width now.
    pub width: Reading<u32>,
    /// Largest generation of card and slot together.
    pub generation_max: Reading<u32>,
    /// Largest width of card and slot together.
    pub width_max: Reading<u32>,
}

/// Memory errors and their remedies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuEcc {
    /// Corrected errors since the driver was loaded.
    pub corrected: Reading<u64>,
    /// Uncorrected errors since the driver was loaded.
    pub uncorrected: Reading<u64>,
    /// A row remap waits for a reset.
    pub remap_pending: Reading<bool>,
    /// A row remap failed.
    pub remap_failed: Reading<bool>,
    /// What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX (field 230).
    pub recovery_action: Reading<u32>,
}

/// GPM activity between two samples of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpm {
    /// SMs with at least one warp.
    pub sm: Reading<Ppb>,
    /// Warps resident, of the largest number.
    pub occupancy: Reading<Ppb>,
    /// Any tensor pipe issuing.
    pub tensor: Reading<Ppb>,
    /// DRAM interface busy.
    pub dram: Reading<Ppb>,
}

/// A MIG GPU instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigInstance {
    /// The identity, `MIG-…`.
    pub uuid: Reading<String>,
    /// GPU instance id.
    pub gi: u32,
    /// Compute slices.
    pub slices: Reading<u32>,
    /// Memory in use.
    pub mem_used: Reading<Bytes>,
    /// Memory of the instance.
    pub mem_total: Reading<Bytes>,
    /// Activity by unit.
    pub gpm: Reading<Gpm>,
}

words! {
    /// How a process uses the device.
    ContextKind { Compute = "compute", Graphics = "graphics", Mps = "mps" }
}

/// A process with a context on a GPU. A context is not activity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Pid in the host's namespace.
    pub pid: u32,
    /// How it uses the device.
    pub kind: ContextKind,
    /// Memory that it holds.
    #[serde(default)]
    pub mem_used: Reading<Bytes>,
    /// SM share of the last window.
    #[serde(default)]
    pub sm: Reading<Permille>,
    /// GPU instance, under MIG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gi: Option<u32>,
}

/// New error lines of the driver in the kernel log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Xids {
    /// New events since the last read, oldest first.
    pub events: Vec<Xid>,
    /// Records that the kernel overwrote before we read them.
    pub overwritten: u64,
}

/// One error line: `NVRM: Xid (PCI:0000:9b:00): 119, pid=…, name=…, …`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    /// The kernel's record number: (boot, seq) is the identity of an event.
    pub seq: u64,
    /// Time of the record since boot (CLOCK_MONOTONIC).
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// The code. A "has fallen off the bus" line without a code counts as 79.
    pub code: u32,
    /// The device; the line carries no PCI function.
    pub pci: Reading<PciAddress>,
    /// The process named in the line: often the one that waited, not the guilty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name, as far as the line tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// GPU instance, under MIG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gi: Option<u32>,
    /// Compute instance, under MIG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci: Option<u32>,
    /// The earlier code that this line calls its cause (45: "caused by previous Xid 149").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<u32>,
    /// What the driver now asks for (154), in the codes of [`GpuEcc::recovery_action`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_action: Option<u32>,
}
