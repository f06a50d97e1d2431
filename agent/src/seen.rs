//! What a tick shows of the node, one line per thing: the common part of `snapshot`, `check` and `top`.

use gpuprod_snapshot::gpu::{Gpu, GpuHealth, Gpus};
use gpuprod_snapshot::host::{Cpu, Psi};
use gpuprod_snapshot::storage::{Block, Md, MdArray, SyncState};
use gpuprod_snapshot::topology::{LinkState, Net, NetPort, Pci, PciKind};
use gpuprod_snapshot::units::{Bytes, Milliwatts, Ppb};
use gpuprod_snapshot::{Reading, Sample, Source, Tick};

use crate::text::{bytes, clean, clip, count, percent, percent_ppb};

/// What each source shows; a source that gave nothing says why.
#[must_use]
pub fn lines(tick: &Tick) -> Vec<(Source, Vec<String>)> {
    let line = |source| (source, of(tick, source));
    Source::ALL.iter().copied().map(line).collect()
}

/// What one source shows. Empty: it was not read. Whatever foreign text is in it, it is clean.
#[must_use]
pub fn of(tick: &Tick, source: Source) -> Vec<String> {
    raw(tick, source).iter().map(|line| clean(line)).collect()
}

fn raw(tick: &Tick, source: Source) -> Vec<String> {
    match source {
        Source::Gpu => said(tick.gpu.as_deref(), gpus),
        Source::Engine => said(tick.engine.as_deref(), engines),
        Source::Md => said(tick.md.as_deref(), arrays),
        Source::Block => said(tick.block.as_deref(), disks),
        Source::Psi => said(tick.psi.as_deref(), pressure),
        Source::Pci => said(tick.pci.as_deref(), pci),
        Source::Xid => said(tick.xid.as_deref(), |xids| {
            let events = xids.events.len();
            vec![count(events, "new error line of the NVIDIA driver", "new error lines of the NVIDIA driver")]
        }),
        Source::Cpu => said(tick.cpu.as_deref(), cpu),
        Source::Net => said(tick.net.as_deref(), ports),
        Source::Numa => said(tick.numa.as_deref(), |numa| vec![count(numa.nodes.len(), "NUMA node", "NUMA nodes")]),
        Source::Proc => said(tick.proc.as_deref(), processes),
        Source::Cgroup => said(tick.cgroup.as_deref(), |cgroups| {
            let mut lines = vec![count(cgroups.cgroups.len(), "cgroup holds GPUs", "cgroups hold GPUs")];
            lines.extend(cgroups.unread.iter().map(|why| format!("a note about a job is left out: {why}")));
            lines
        }),
        _ => match tick.status(source) {
            Some(sample) => said(Some(&sample), |()| vec!["read".to_owned()]),
            None => Vec::new(),
        },
    }
}

fn said<T>(sample: Option<&Sample<T>>, show: fn(&T) -> Vec<String>) -> Vec<String> {
    match sample.map(|sample| (&sample.value, sample)) {
        None => Vec::new(),
        Some((Reading::Value(value), _)) => show(value),
        Some((Reading::Missing(missing), sample)) if sample.why.is_empty() => {
            vec![format!("nothing: {missing}")]
        }
        Some((Reading::Missing(_), sample)) => vec![format!("nothing: {}", sample.why)],
    }
}

/// A reading as text, or its reason.
fn show<T>(reading: &Reading<T>, print: impl FnOnce(&T) -> String) -> String {
    match reading {
        Reading::Value(value) => print(value),
        Reading::Missing(missing) => missing.to_string(),
    }
}

fn cpu(cpu: &Cpu) -> Vec<String> {
    let memory = |reading: &Reading<Bytes>| show(reading, |memory| bytes(memory.0));
    let available = memory(&cpu.mem_available);
    vec![format!(
        "{} CPUs, memory {}, available {available}",
        show(&cpu.online, u32::to_string),
        memory(&cpu.mem_total)
    )]
}

fn ports(net: &Net) -> Vec<String> {
    if net.ports.is_empty() {
        return vec!["no network port".to_owned()];
    }
    let state = |up: &bool| if *up { "up" } else { "down" }.to_owned();
    let port = |port: &NetPort| {
        let number = if port.port == 0 { String::new() } else { format!("/{}", port.port) };
        let layer = show(&port.layer, ToString::to_string);
        let speed = show(&port.speed, |speed| format!("{} Gbit/s", f64::from(*speed) / 1e3));
        format!("{}{number} ({layer}): {}, {speed}", port.device, show(&port.up, state))
    };
    net.ports.iter().map(port).collect()
}

fn gpus(gpus: &Gpus) -> Vec<String> {
    if gpus.devices.is_empty() {
        return vec!["NVML lists no GPU".to_owned()];
    }
    gpus.devices.iter().map(gpu).collect()
}

fn gpu(gpu: &Gpu) -> String {
    let watts = |reading: &Reading<Milliwatts>| show(reading, |power| (power.0 / 1_000).to_string());
    let memory = match (gpu.mem_used.copied(), gpu.mem_total.copied()) {
        (Some(used), Some(total)) => format!("{} of {}", bytes(used.0), bytes(total.0)),
        _ => show(&gpu.mem_used, |used| bytes(used.0)),
    };
    let health = match gpu.health.get() {
        None | Some(GpuHealth::Ok) => String::new(),
        Some(health) => format!("{}, ", health.as_str().to_uppercase()),
    };
    format!(
        "GPU {} {}: {health}util {}, memory {memory}, power {} of {} W, {}",
        gpu.index,
        show(&gpu.model, String::clone),
        show(&gpu.util, |util| percent(*util)),
        watts(&gpu.power),
        watts(&gpu.power_limit),
        show(&gpu.processes, |processes| count(processes.len(), "process", "processes")),
    )
}

fn engines(engines: &gpuprod_snapshot::engine::Engines) -> Vec<String> {
    if engines.engines.is_empty() {
        return vec!["no engine was named (--engine URL)".to_owned()];
    }
    let line = |engine: &gpuprod_snapshot::engine::Engine| match engine.page.missing() {
        Some(missing) => {
            let why = if engine.why.is_empty() { missing.to_string() } else { engine.why.clone() };
            format!("{}: no page ({why})", engine.url)
        }
        None => format!(
            "{} {}: {} running, {} waiting, KV cache {}, {} tokens generated",
            show(&engine.kind, ToString::to_string),
            engine.url,
            show(&engine.running, u64::to_string),
            show(&engine.waiting, u64::to_string),
            show(&engine.kv_usage, |usage| percent_ppb(*usage)),
            show(&engine.generation_tokens, u64::to_string),
        ),
    };
    engines.engines.iter().map(line).collect()
}

fn arrays(md: &Md) -> Vec<String> {
    if md.arrays.is_empty() {
        return vec!["no md array".to_owned()];
    }
    md.arrays.iter().map(array).collect()
}

/// One array in one line; what matters first.
fn array(array: &MdArray) -> String {
    let name = &array.name;
    let level = show(&array.level, String::clone);
    if array.is_container {
        return format!("{name}: container of {}", count(array.members.len(), "member", "members"));
    }
    let mut line = format!("{name} {level}: {}", show(&array.state, ToString::to_string));
    if let (Some(active), Some(all)) = (array.active_disks.copied(), array.raid_disks.copied()) {
        line += &format!(", {active} of {all} members in sync");
    }
    if let Some(missing) = array.degraded.copied().filter(|missing| *missing > 0) {
        line += &format!(", DEGRADED by {missing}");
    }
    let (Some(action), Some(sync)) = (array.action.get(), array.sync.get()) else {
        return line;
    };
    if *sync != SyncState::None {
        line += &format!(", {action}");
        if *sync != SyncState::Running {
            line += &format!(" ({sync})");
        }
        if let Some(done) = sync_percent(array) {
            line += &format!(" {}", percent_ppb(done));
        }
        if let Some(speed) = array.sync_speed.copied() {
            line += &format!(" at {}/s", bytes(speed.0));
        }
    }
    line
}

/// How far the action is: as mdstat prints it, else from sysfs' done and total, cut as mdstat cuts (tenths of a
/// percent, rounded down).
#[must_use]
pub fn sync_percent(array: &MdArray) -> Option<Ppb> {
    let counted = || {
        let (done, total) = (array.sync_done.copied()?, array.sync_total.copied()?);
        let permille = u128::from(done.0).saturating_mul(1000).checked_div(u128::from(total.0))?;
        Some(Ppb(u64::try_from(permille).ok()?.saturating_mul(1_000_000)))
    };
    array.sync_percent.copied().or_else(counted)
}

fn disks(block: &Block) -> Vec<String> {
    let whole: Vec<_> = block.devices.iter().filter(|d| d.partition_of.is_none()).collect();
    let names: Vec<&str> = whole.iter().map(|device| device.name.as_str()).collect();
    let in_flight: u64 =
        whole.iter().filter_map(|device| device.io.get()).fold(0, |sum, io| sum.saturating_add(io.in_flight));
    let names = if names.is_empty() { String::new() } else { format!(" ({})", clip(&names.join(" "), 48)) };
    vec![format!("{}{names}, {in_flight} in flight", count(whole.len(), "block device", "block devices"))]
}

fn pressure(psi: &Psi) -> Vec<String> {
    let some = |reading: &Reading<gpuprod_snapshot::host::Pressure>| {
        show(reading, |pressure| percent_ppb(pressure.some.avg10))
    };
    let system = &psi.system;
    vec![format!(
        "tasks waited in the last 10 s: cpu {}, io {}, memory {}",
        some(&system.cpu),
        some(&system.io),
        some(&system.memory)
    )]
}

fn pci(pci: &Pci) -> Vec<String> {
    let of = |kind: &PciKind| pci.devices.iter().filter(|d| d.kind.get() == Some(kind)).count();
    let narrow = |device: &&gpuprod_snapshot::topology::PciDevice| {
        device.kind.get().is_some_and(|kind| *kind != PciKind::Bridge) && device.link.state() == LinkState::ReducedWidth
    };
    let mut lines = vec![format!(
        "{}, {}, {} NVMe, {} in all",
        count(of(&PciKind::Gpu) + of(&PciKind::Accelerator), "GPU", "GPUs"),
        count(of(&PciKind::Nic), "network card", "network cards"),
        of(&PciKind::Nvme),
        count(pci.devices.len(), "device", "devices")
    )];
    lines.extend(pci.devices.iter().filter(narrow).map(|device| {
        format!(
            "{} {}: link x{} of x{}",
            show(&device.kind, ToString::to_string),
            device.address,
            show(&device.link.width, u32::to_string),
            show(&device.link.width_max, u32::to_string)
        )
    }));
    lines
}

fn processes(processes: &gpuprod_snapshot::host::Processes) -> Vec<String> {
    let mut lines = vec![count(processes.processes.len(), "process holds GPUs", "processes hold GPUs")];
    lines.extend(processes.processes.iter().take(16).map(|process| {
        format!(
            "pid {} {}: {}, {} threads, {} blocked",
            process.pid,
            show(&process.comm, String::clone),
            show(&process.state, char::to_string),
            show(&process.threads, u32::to_string),
            show(&process.threads_blocked, u32::to_string)
        )
    }));
    lines
}
