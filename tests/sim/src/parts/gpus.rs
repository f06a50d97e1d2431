//! GPUs as NVML would show them, and the driver's error lines.

use gpuprod_snapshot::gpu::{ContextKind, Gpm, Gpu, GpuHealth, GpuPcie, GpuProcess, Gpus, Vendor, Xid, Xids};
use gpuprod_snapshot::units::{Bytes, Celsius, MegaHertz, Millijoules, Milliwatts, Nanos, Permille, Ppb, from_f64};
use gpuprod_snapshot::{Missing, Reading};

use super::{pid, topology};
use crate::device::show;
use crate::scenario::Scenario;
use crate::words::{whole, whole32};
use crate::world::{Board, IDLE_WATTS, Job, World};

/// What is printed on a board: part of its name, memory, largest SM and memory clock, PCIe generation.
type Kind = (&'static str, u64, u32, u32, u32);

const KINDS: &[Kind] = &[
    ("H200", 150_754_820_096, 1980, 3201, 5),
    ("H100", 85_520_809_984, 1980, 2619, 5),
    ("A100", 85_899_345_920, 1410, 1593, 4),
    ("", 48_305_799_168, 1740, 7251, 4),
];
/// The driver's own reserve.
const RESERVED: u64 = 502_267_904;
/// A context without anything in it.
const CONTEXT: f64 = 524_288_000.0;
/// What an engine that sleeps keeps on its GPU.
const SLEEPING: f64 = 1e9;

fn kind(model: &str) -> Kind {
    KINDS.iter().copied().find(|kind| model.contains(kind.0)).unwrap_or(KINDS[0])
}

/// The identity of a GPU.
pub(crate) fn uuid(gpu: usize) -> String {
    format!("GPU-51b00000-0000-4000-8000-{gpu:012x}")
}

/// All of them.
pub(crate) fn gpus(world: &World<'_>, boot: u64) -> Gpus {
    let boards = world.boards.iter().enumerate();
    Gpus {
        driver: world.scenario.driver(world.second).to_owned().into(),
        devices: boards.map(|(index, board)| gpu(world, index, board, boot)).collect(),
    }
}

fn gpu(world: &World<'_>, index: usize, board: &Board, boot: u64) -> Gpu {
    let scenario = world.scenario;
    let (_, mem_total, clock_max, clock_mem, generation) = kind(&scenario.gpus.model);
    let mut gpu = Gpu {
        index: u32::try_from(index).unwrap_or(0),
        uuid: uuid(index).into(),
        vendor: Vendor::Nvidia.into(),
        pci: topology::gpu_address(index).into(),
        model: scenario.gpus.model.clone().into(),
        health: GpuHealth::Ok.into(),
        mem_total: Bytes(mem_total).into(),
        power_limit_default: Milliwatts(whole(scenario.gpus.limit * 1e3)).into(),
        clock_sm_max: MegaHertz(clock_max).into(),
        mig: false.into(),
        mig_slices: 7.into(),
        pcie: GpuPcie { generation_max: generation.into(), width_max: 16.into(), ..GpuPcie::default() },
        ..Gpu::default()
    };
    if scenario.is_lost(index, world.second) {
        gone(&mut gpu);
        return gpu;
    }
    let users = scenario.works.iter().zip(&world.jobs).enumerate();
    // The first workload of a board drives it; another one in turns with it has its own share of the time.
    let first = world.owner(index);
    let share = |at: usize, job: &Job| {
        if Some(at) == first { board.work } else { (job.knobs.util * job.pace.speed).clamp(0.0, 1.0) }
    };
    let processes: Vec<GpuProcess> = users
        .filter(|(_, (work, job))| work.gpus.contains(&index) && job.pace.up)
        .map(|(at, (_, job))| GpuProcess {
            pid: pid(at, job.generation, boot),
            kind: ContextKind::Compute,
            mem_used: Bytes(whole(
                if job.pace.sleeps { SLEEPING } else { job.knobs.mem + job.host.gpu_grown } + CONTEXT,
            ))
            .into(),
            sm: Permille(whole32(share(at, job) * 100.0) * 10).into(),
            gi: None,
        })
        .collect();
    let held: u64 = processes.iter().filter_map(|process| process.mem_used.get()).map(|bytes| bytes.0).sum();
    let busy = board.util > 0.0;
    let percent = |share: f64| Reading::Value(Permille(whole32(share * 100.0) * 10));
    gpu.util = percent(board.util);
    gpu.util_mem = percent(board.work * 0.4);
    gpu.mem_used = Bytes(held.min(mem_total - RESERVED)).into();
    gpu.mem_reserved = Bytes(RESERVED).into();
    gpu.power = Milliwatts(whole(board.watts * 1e3)).into();
    gpu.power_limit = Milliwatts(whole(scenario.gpus.limit * 1e3)).into();
    gpu.energy = Millijoules(whole(board.joules * 1e3)).into();
    let heat = i32::try_from(whole((board.watts - IDLE_WATTS).max(0.0) * 0.05)).unwrap_or(0);
    gpu.temp = Celsius(32 + heat).into();
    gpu.temp_mem = Celsius(40 + heat).into();
    let full = f64::from(clock_max) * board.clock;
    gpu.clock_sm = MegaHertz(if busy { whole32(full) } else { 345 }).into();
    gpu.clock_mem = MegaHertz(clock_mem).into();
    gpu.clock_reasons = board.reasons.into();
    gpu.pstate = 0.into();
    gpu.pcie.tx = Bytes(whole(board.sent)).into();
    gpu.pcie.rx = Bytes(whole(board.received)).into();
    gpu.pcie.replay = whole(board.replays.floor()).into();
    let link = scenario.link(index, generation, busy, world.second);
    (gpu.pcie.generation, gpu.pcie.generation_max) = (link.generation.into(), link.generation_max.into());
    (gpu.pcie.width, gpu.pcie.width_max) = (link.width.into(), link.width_max.into());
    show(&mut gpu, &scenario.ails(index, world.second));
    let nvlink = Bytes(whole(board.nvlink / 1024.0) * 1024);
    gpu.nvlink_tx = nvlink.into();
    gpu.nvlink_rx = nvlink.into();
    gpu.gpm = if scenario.gpus.gpm { activity(board).into() } else { Reading::Missing(Missing::Unsupported) };
    gpu.processes = processes.into();
    gpu
}

/// Shares of a decoding engine at full speed: most SMs, little tensor work, half of the memory's bandwidth.
fn activity(board: &Board) -> Gpm {
    let share = |part: f64| {
        // Tenths of a per cent.
        let tenths = whole((board.work * part).min(1.0) * 1000.0);
        Reading::Value(Ppb(tenths * 1_000_000))
    };
    Gpm { sm: share(0.9), occupancy: share(0.3), tensor: share(0.25), dram: share(0.6) }
}

fn gone(gpu: &mut Gpu) {
    gpu.health = GpuHealth::Lost.into();
    macro_rules! take { ($($($field:ident).+;)+) => { $(gpu.$($field).+ = Reading::Missing(Missing::Gone);)+ } }
    take! {
        util; util_mem; mem_used; mem_reserved; power; power_limit; energy; temp; temp_mem; clock_sm; clock_mem;
        clock_reasons; pstate; pcie.tx; pcie.rx; pcie.replay; pcie.generation; pcie.width; ecc.corrected;
        ecc.uncorrected; ecc.remap_pending; ecc.remap_failed; ecc.recovery_action; nvlink_tx; nvlink_rx; gpm; processes;
    }
}

/// New error lines at a second. `seq` is the kernel's next record number.
pub(crate) fn xids(scenario: &Scenario, second: u64, monotonic: Nanos, seq: &mut u64) -> Xids {
    let new = scenario.xids(second).into_iter().map(|(gpu, code)| {
        *seq += 1;
        Xid {
            seq: *seq,
            at: Nanos(monotonic.0 / 1000 * 1000),
            code,
            pci: topology::gpu_address(gpu).into(),
            pid: None,
            name: None,
            gi: None,
            ci: None,
            caused_by: None,
            recovery_action: None,
        }
    });
    Xids { events: new.collect(), overwritten: 0 }
}

/// A float as nanoseconds on a grid.
pub(crate) fn nanos(seconds: f64, grid: u64) -> Nanos {
    let steps = from_f64(seconds * 1e9).unwrap_or(0) / grid;
    Nanos(steps * grid)
}
