//! The state file. In each field `null` means "this board does not have it"; an absent field has a default.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Everything that the library answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// `nvmlSystemGetDriverVersion`.
    pub driver: String,
    /// The boards, in NVML's order. One that is taken out of the list is lost to those who hold its handle.
    pub gpus: Vec<Gpu>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

impl Default for State {
    fn default() -> Self {
        Self { driver: "570.148.08".into(), gpus: Vec::new(), faults: Vec::new() }
    }
}

/// One thing that goes wrong: `{"hang":{"call":"nvmlDeviceGetPowerUsage"}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The call does not come back.
    Hang {
        /// Which call (`nvmlDeviceGetPowerUsage`).
        call: String,
        /// Read this file instead of sleeping. On a suspended device-mapper device the caller is then in state
        /// D and cannot be killed. Sleeping ends when the fault is taken out of the state file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<PathBuf>,
    },
    /// The call fails.
    Error {
        /// Which call.
        call: String,
        /// With which `nvmlReturn_t`.
        code: u32,
        /// After so many calls that went well (counted since the state was first read by this process).
        #[serde(default)]
        after: u64,
        /// For this board only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu: Option<usize>,
    },
    /// These boards (by index) have fallen off the bus: every call on them says `NVML_ERROR_GPU_IS_LOST`.
    Lost(Vec<usize>),
}

impl Fault {
    /// A call that sleeps until the fault is taken away.
    pub fn hang(call: impl Into<String>) -> Self {
        Self::Hang { call: call.into(), via: None }
    }
}

/// One board. The default is an idle H100.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// `GPU-…`; by default made from the index.
    pub uuid: Option<String>,
    /// `DDDD:BB:DD.F`; by default bus 0x10 plus the index.
    pub pci: Option<String>,
    /// Product name.
    pub name: String,
    /// NVML's architecture number (7 Ampere, 9 Hopper, 10 Blackwell).
    pub architecture: u32,
    /// Percent of time with a kernel resident.
    pub util: Option<u32>,
    /// Percent of time with memory traffic.
    pub util_mem: Option<u32>,
    /// Bytes of memory.
    pub mem_total: Option<u64>,
    /// Bytes in use, without the reserve.
    pub mem_used: Option<u64>,
    /// Bytes that the driver keeps.
    pub mem_reserved: u64,
    /// Milliwatts.
    pub power_mw: Option<u32>,
    /// Milliwatts.
    pub power_limit_mw: Option<u32>,
    /// Milliwatts.
    pub power_limit_default_mw: Option<u32>,
    /// Millijoules; by default they accumulate from the power over time.
    pub energy_mj: Option<u64>,
    /// Degrees Celsius.
    pub temp: Option<i32>,
    /// Degrees Celsius.
    pub temp_mem: Option<u32>,
    /// MHz.
    pub clock_sm: Option<u32>,
    /// MHz.
    pub clock_sm_max: Option<u32>,
    /// MHz.
    pub clock_mem: Option<u32>,
    /// NVML's bit mask.
    pub clock_reasons: Option<u64>,
    /// 0 to 15.
    pub pstate: Option<u32>,
    /// Percent.
    pub fan: Option<u32>,
    /// PCIe.
    pub pcie: Pcie,
    /// Memory errors; null for a board without ECC.
    pub ecc: Option<Ecc>,
    /// KiB, a counter over all links.
    pub nvlink_tx_kib: Option<u64>,
    /// KiB, a counter over all links.
    pub nvlink_rx_kib: Option<u64>,
    /// Activity by unit; null where the hardware has no GPM.
    pub gpm: Option<Gpm>,
    /// MIG mode; null for a board that cannot.
    pub mig: Option<bool>,
    /// GPU instances, with MIG on.
    pub instances: Vec<Mig>,
    /// Processes with a context.
    pub processes: Vec<Process>,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            uuid: None,
            pci: None,
            name: "NVIDIA H100 80GB HBM3".into(),
            architecture: 9,
            util: Some(0),
            util_mem: Some(0),
            mem_total: Some(85_520_809_984),
            mem_used: Some(0),
            mem_reserved: 502_267_904,
            power_mw: Some(70_000),
            power_limit_mw: Some(700_000),
            power_limit_default_mw: Some(700_000),
            energy_mj: None,
            temp: Some(35),
            temp_mem: Some(40),
            clock_sm: Some(345),
            clock_sm_max: Some(1980),
            clock_mem: Some(2619),
            clock_reasons: Some(1),
            pstate: Some(0),
            fan: None,
            pcie: Pcie::default(),
            ecc: Some(Ecc::default()),
            nvlink_tx_kib: Some(0),
            nvlink_rx_kib: Some(0),
            gpm: None,
            mig: Some(false),
            instances: Vec::new(),
            processes: Vec::new(),
        }
    }
}

/// PCIe of one board.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pcie {
    /// Bytes sent, a counter.
    pub tx: Option<u64>,
    /// Bytes received, a counter.
    pub rx: Option<u64>,
    /// Replays.
    pub replay: Option<u32>,
    /// Generation now.
    pub generation: Option<u32>,
    /// Width now.
    pub width: Option<u32>,
    /// Largest generation.
    pub generation_max: Option<u32>,
    /// Largest width.
    pub width_max: Option<u32>,
}

impl Default for Pcie {
    fn default() -> Self {
        Self {
            tx: Some(0),
            rx: Some(0),
            replay: Some(0),
            generation: Some(5),
            width: Some(16),
            generation_max: Some(5),
            width_max: Some(16),
        }
    }
}

/// Memory errors of one board.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    /// Corrected, volatile.
    pub corrected: u64,
    /// Uncorrected, volatile.
    pub uncorrected: u64,
    /// A row remap waits for a reset.
    pub remap_pending: bool,
    /// A row remap failed.
    pub remap_failed: bool,
    /// Field 230.
    pub recovery_action: u32,
}

/// GPM activity in percent, as NVML gives it. JSON cannot carry NaN; `nan` makes every value one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpm {
    /// SM active.
    pub sm: f64,
    /// SM occupancy.
    pub occupancy: f64,
    /// Any tensor pipe.
    pub tensor: f64,
    /// DRAM bandwidth.
    pub dram: f64,
    /// Answer NaN for all.
    pub nan: bool,
}

/// A MIG GPU instance with one compute instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    /// `MIG-…`; by default made from the board's.
    pub uuid: Option<String>,
    /// GPU instance id.
    pub gi: u32,
    /// Compute slices.
    pub slices: u32,
    /// Bytes.
    pub mem_total: u64,
    /// Bytes.
    pub mem_used: u64,
    /// Activity of the instance.
    pub gpm: Option<Gpm>,
}

/// How a process uses the board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// CUDA.
    #[default]
    Compute,
    /// OpenGL, Vulkan.
    Graphics,
    /// CUDA under MPS.
    Mps,
}

/// A process with a context. The pid should exist, since tools look it up in `/proc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Pid.
    pub pid: u32,
    /// How it uses the board.
    pub kind: Kind,
    /// Bytes; null is "not available" (all bits one).
    pub mem_used: Option<u64>,
    /// Percent of the SMs in the last window; null leaves it out of the list of utilizations.
    pub sm: Option<u32>,
    /// GPU instance, under MIG.
    pub gi: Option<u32>,
}

impl State {
    /// So many boards of one kind.
    #[must_use]
    pub fn of(gpus: impl IntoIterator<Item = Gpu>) -> Self {
        Self { gpus: gpus.into_iter().collect(), ..Self::default() }
    }

    /// The uuid of a board, given or made from its index.
    #[must_use]
    pub fn uuid(&self, index: usize) -> String {
        let given = self.gpus.get(index).and_then(|gpu| gpu.uuid.clone());
        given.unwrap_or_else(|| format!("GPU-fa4e0000-0000-4000-8000-{index:012x}"))
    }

    /// The PCI address of a board: domain, bus, device.
    #[must_use]
    pub fn pci(&self, index: usize) -> (u32, u32, u32) {
        let given = self.gpus.get(index).and_then(|gpu| gpu.pci.as_deref());
        given.and_then(parse_pci).unwrap_or_else(|| (0, 0x10 + u32::try_from(index).unwrap_or_default() % 0xf0, 0))
    }

    /// The uuid of an instance.
    #[must_use]
    pub fn mig_uuid(&self, index: usize, mig: usize) -> String {
        let given = self.gpus.get(index).and_then(|gpu| gpu.instances.get(mig)?.uuid.clone());
        given.unwrap_or_else(|| format!("MIG-fa4e0000-0000-4000-{mig:04x}-{index:012x}"))
    }

    /// Writes the file in one step: a reader sees the old state or the new one, never half of it.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let temporary = PathBuf::from(name);
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&temporary, path)
    }
}

pub(crate) fn parse_pci(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split(['.', ':']);
    let mut next = || u32::from_str_radix(parts.next()?, 16).ok();
    Some((next()?, next()?, next()?))
}
