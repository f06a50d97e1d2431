//! What is left of each resource of the node. What it has in all must be known or have been learnt: a resource whose
//! capacity is unknown is not listed, and never zero.

use alloc::vec::Vec;
use core::fmt;

use gpuprod_snapshot::Source;
use gpuprod_snapshot::gpu::{Gpu, GpuHealth};
use gpuprod_snapshot::units::{Bytes, Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::signals::Signals;
use crate::window::Window;
use crate::words::words;
use crate::{Micro, Part, Policy};

words! {
    /// What a job needs of a node.
    Resource {
        /// GPUs, by what runs on them.
        Gpu = "gpu",
        /// GPU memory.
        Hbm = "hbm",
        /// The GPUs' links to the host, in the direction that is fuller.
        Pcie = "pcie",
        /// Bytes per second of the node's drives, of the most that they were seen to give.
        StorageBandwidth = "storage_bandwidth",
        /// Operations per second of the drives, likewise.
        StorageIops = "storage_iops",
        /// Time in which a task that wants a CPU gets one at once: the kernel's own I/O threads are among them.
        IoCpu = "io_cpu",
        /// CPUs.
        Cpu = "cpu",
        /// Memory of the host.
        HostMemory = "host_memory",
        /// Network ports that are up, in the direction that is fuller.
        Network = "network",
    }
}

impl Resource {
    /// What its amounts are counted in (UCUM).
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Gpu => "{gpu}",
            Self::Hbm | Self::HostMemory => "By",
            Self::Pcie | Self::StorageBandwidth | Self::Network => "By/s",
            Self::StorageIops => "{operation}/s",
            Self::IoCpu => "1",
            Self::Cpu => "{cpu}",
        }
    }
}

/// What is left of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residual {
    /// Of which.
    pub resource: Resource,
    /// Free part of the whole.
    pub ratio: Part,
    /// Free, in the resource's unit.
    pub free: Micro,
    /// All of it.
    pub capacity: Micro,
}

impl Residual {
    pub(crate) fn new(resource: Resource, free: f64, capacity: f64) -> Option<Self> {
        let free = free.clamp(0.0, capacity.max(0.0));
        (capacity > 0.0 && capacity.is_finite()).then(|| Self {
            resource,
            ratio: Part::from_fraction(free / capacity),
            free: Micro::from_f64(free),
            capacity: Micro::from_f64(capacity),
        })
    }
}

/// Free part and free memory of one GPU, for jobs that share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    pub(crate) idle: f64,
    pub(crate) memory: Option<f64>,
    /// Nobody has it.
    pub(crate) unallocated: bool,
    pub(crate) memory_total: Option<f64>,
}

/// Everything that can be told. `storage_hit` says that a rule has found the node's storage stalled or syncing under a
/// victim: then nothing of it is left, whatever the counters say.
pub(crate) fn measure(window: &Window, signals: &Signals, storage_hit: bool, policy: &Policy) -> Vec<Residual> {
    let list = [
        gpu(window),
        hbm(window),
        pcie(window),
        storage(signals, storage_hit, policy),
        iops(signals, storage_hit, policy),
        io_cpu(window),
        cpu(window),
        host_memory(window),
        network(window),
    ];
    list.into_iter().flatten().collect()
}

fn devices(window: &Window) -> &[Gpu] {
    let gpus = window.value(Source::Gpu, |tick| &tick.gpu).get().copied();
    gpus.map_or(&[], |gpus| gpus.devices.as_slice())
}

/// What of a GPU does nothing: by SM activity where it is measured, else by utilization. A broken one gives nothing.
pub(crate) fn idle(gpu: &Gpu) -> Option<f64> {
    if gpu.health.get().is_some_and(|health| *health != GpuHealth::Ok) {
        return Some(0.0);
    }
    let sm = gpu.gpm.get().and_then(|gpm| gpm.sm.copied()).map(|sm| sm.as_fraction());
    let busy = sm.or_else(|| gpu.util.copied().map(|util| util.as_fraction()))?;
    Some((1.0 - busy).clamp(0.0, 1.0))
}

fn gpu(window: &Window) -> Option<Residual> {
    let devices = devices(window);
    let idle = devices.iter().map(idle).sum::<Option<f64>>()?;
    Residual::new(Resource::Gpu, idle, to_f64(u64::try_from(devices.len()).ok()?))
}

/// Free memory and all of it.
pub(crate) fn memory(gpu: &Gpu) -> Option<(f64, f64)> {
    let (used, total) = (gpu.mem_used.copied()?, gpu.mem_total.copied()?);
    let reserved = gpu.mem_reserved.copied().unwrap_or_default();
    Some((to_f64(total.saturating_sub(used).saturating_sub(reserved).0), to_f64(total.0)))
}

fn hbm(window: &Window) -> Option<Residual> {
    let all = devices(window).iter().map(memory).collect::<Option<Vec<_>>>()?;
    let (free, total) = all.iter().fold((0.0, 0.0), |(free, total), one| (free + one.0, total + one.1));
    Residual::new(Resource::Hbm, free, total)
}

/// Bytes per second of a lane, after encoding, by generation (2.5, 5, 8, 16, 32, 64 GT/s; 8b/10b up to the second,
/// 128b/130b up to the fifth, 242B/256B flits from the sixth).
const LANE: [f64; 6] = [0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9];

fn pcie(window: &Window) -> Option<Residual> {
    let (old, new, between) = window.pair(|tick| &tick.gpu)?;
    let (mut free, mut total) = (0.0, 0.0);
    for gpu in &new.devices {
        let generation = usize::try_from(gpu.pcie.generation_max.copied()?).ok()?;
        let lane = LANE.get(generation.checked_sub(1)?)?;
        let capacity = lane * f64::from(gpu.pcie.width_max.copied()?);
        let before = old.devices.iter().find(|before| before.index == gpu.index && before.uuid == gpu.uuid)?;
        let tx = rate(before.pcie.tx.copied(), gpu.pcie.tx.copied(), between)?;
        let rx = rate(before.pcie.rx.copied(), gpu.pcie.rx.copied(), between)?;
        total += capacity;
        free += (capacity - tx.max(rx)).max(0.0);
    }
    Residual::new(Resource::Pcie, free, total)
}

fn rate(before: Option<Bytes>, after: Option<Bytes>, between: Nanos) -> Option<f64> {
    Some(to_f64(after?.checked_sub(before?)?.0) / between.as_secs_f64())
}

/// Drives whose most is known; a drive that nobody has used yet has none.
fn storage(signals: &Signals, hit: bool, policy: &Policy) -> Option<Residual> {
    let tracks = signals.node.drives.iter().filter_map(|name| Some(&signals.disks.get(name)?.throughput));
    learnt(Resource::StorageBandwidth, tracks, hit, policy)
}

/// Whether a drive answers later than it normally does.
pub(crate) fn saturated(signals: &Signals, policy: &Policy) -> bool {
    let drives = signals.node.drives.iter().filter_map(|name| signals.disks.get(name)?.latency.deviation(policy));
    drives.into_iter().any(|latency| latency.ratio() >= policy.disk_await_ratio)
}

fn iops(signals: &Signals, hit: bool, policy: &Policy) -> Option<Residual> {
    learnt(Resource::StorageIops, signals.node.operations.values().map(|track| &**track), hit, policy)
}

fn learnt<'a>(
    resource: Resource,
    tracks: impl Iterator<Item = &'a crate::baseline::Track>,
    hit: bool,
    policy: &Policy,
) -> Option<Residual> {
    let (mut free, mut total) = (0.0, 0.0);
    for track in tracks.filter(|track| track.mature(policy)) {
        let (most, now) = (track.highest()?, track.latest()?);
        let most = most.max(now);
        total += most;
        free += most - now;
    }
    Residual::new(resource, if hit { 0.0 } else { free }, total)
}

fn io_cpu(window: &Window) -> Option<Residual> {
    let (old, new, between) = window.pair(|tick| &tick.psi)?;
    let waited = new.system.cpu.get()?.some.total.checked_sub(old.system.cpu.get()?.some.total)?;
    Residual::new(Resource::IoCpu, 1.0 - waited.as_secs_f64() / between.as_secs_f64(), 1.0)
}

fn cpu(window: &Window) -> Option<Residual> {
    let (old, new, between) = window.pair(|tick| &tick.cpu)?;
    let online = f64::from(new.online.copied()?);
    let busy = new.busy.copied()?.checked_sub(old.busy.copied()?)?.as_secs_f64() / between.as_secs_f64();
    let stolen = new.steal.copied().zip(old.steal.copied()).and_then(|(new, old)| new.checked_sub(old));
    let stolen = stolen.map_or(0.0, Nanos::as_secs_f64) / between.as_secs_f64();
    Residual::new(Resource::Cpu, online - busy - stolen, online)
}

fn host_memory(window: &Window) -> Option<Residual> {
    let cpu = window.value(Source::Cpu, |tick| &tick.cpu).get().copied()?;
    Residual::new(Resource::HostMemory, to_f64(cpu.mem_available.copied()?.0), to_f64(cpu.mem_total.copied()?.0))
}

/// A port without a known speed (virtual, or an interface over an RDMA port) is left out.
fn network(window: &Window) -> Option<Residual> {
    let (old, new, between) = window.pair(|tick| &tick.net)?;
    let (mut free, mut total) = (0.0, 0.0);
    for port in new.ports.iter().filter(|port| port.up.copied() == Some(true)) {
        let Some(speed) = port.speed.copied().filter(|speed| *speed > 0) else { continue };
        let before = old.ports.iter().find(|before| before.device == port.device && before.port == port.port)?;
        let capacity = f64::from(speed) * 125_000.0;
        let (tx, rx) = (
            rate(before.tx.copied(), port.tx.copied(), between)?,
            rate(before.rx.copied(), port.rx.copied(), between)?,
        );
        total += capacity;
        free += (capacity - tx.max(rx)).max(0.0);
    }
    Residual::new(Resource::Network, free, total)
}

/// Each GPU's share for jobs that fit beside others.
pub(crate) fn shares(window: &Window, unallocated: &dyn Fn(&Gpu) -> bool) -> Vec<Share> {
    let share = |gpu: &Gpu| {
        let memory = memory(gpu);
        Some(Share {
            idle: idle(gpu)?,
            memory: memory.map(|(free, _)| free),
            memory_total: memory.map(|(_, total)| total),
            unallocated: unallocated(gpu) && gpu.health.get().is_none_or(|health| *health == GpuHealth::Ok),
        })
    };
    devices(window).iter().filter_map(share).collect()
}
