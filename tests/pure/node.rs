//! A full node: 8 GPUs, 8 NVMe disks, 4 arrays, 1 engine, with every field that a series is made of.

use gpuprod_snapshot::engine::{Engine, EngineKind, Engines, Histogram, PageSize};
use gpuprod_snapshot::gpu::{ContextKind, Gpu, GpuEcc, GpuHealth, GpuPcie, GpuProcess, Gpus, Vendor};
use gpuprod_snapshot::host::{CgroupPressures, Pressure, Pressures, Process, Processes, Psi, Stall};
use gpuprod_snapshot::storage::{Block, BlockDevice, IoCounters, Md, MdAction, MdArray, MdState, SyncState};
use gpuprod_snapshot::topology::{Link, Numa, Pci, PciAddress, PciDevice, PciKind};
use gpuprod_snapshot::units::{
    Bytes, BytesPerSecond, Celsius, MegaHertz, MegaTransfers, Millijoules, Milliwatts, Nanos, Permille, Ppb,
};
use gpuprod_snapshot::{BootId, Part, Reading, Sample, Stamp, Tick};

const AT: Nanos = Nanos::from_secs(1_000);

/// The tick.
pub(crate) fn full() -> Tick {
    let stamp =
        Stamp { boot_id: BootId("b".into()), boottime: AT, monotonic: AT, realtime: Nanos::from_secs(1_800_000_000) };
    let mut tick = Tick { stamp, period: Nanos::from_secs(1), ..Tick::default() };
    let parts = [
        Part::Gpu(Gpus { driver: "570.86".to_owned().into(), devices: (0..8).map(gpu).collect() }),
        Part::Engine(Engines { engines: vec![engine()] }),
        Part::Md(Md { arrays: (0..4).map(array).collect() }),
        Part::Block(Block { devices: disks(), mounts: Vec::new() }),
        Part::Psi(psi()),
        Part::Pci(pci()),
        Part::Numa(Numa::default()),
        Part::Proc(Processes { processes: vec![process()] }),
    ];
    for part in parts {
        tick.put(Sample { at: AT, took: Nanos(1_000), value: Reading::Value(part), why: String::new(), hung: None });
    }
    tick
}

fn address(bus: u32) -> PciAddress {
    PciAddress { bus: u8::try_from(bus).unwrap(), ..PciAddress::default() }
}

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-0000000{index}-0000-0000-0000-000000000000").into(),
        vendor: Vendor::Nvidia.into(),
        pci: address(0x10 + index).into(),
        model: "NVIDIA H100 80GB HBM3".to_owned().into(),
        health: GpuHealth::Ok.into(),
        util: Permille(840).into(),
        util_mem: Permille(300).into(),
        mem_total: Bytes(80 << 30).into(),
        mem_used: Bytes(70 << 30).into(),
        power: Milliwatts(412_345).into(),
        power_limit: Milliwatts(700_000).into(),
        energy: Millijoules(123_456_789).into(),
        temp: Celsius(61).into(),
        temp_mem: Celsius(70).into(),
        clock_sm: MegaHertz(1_980).into(),
        clock_mem: MegaHertz(2_619).into(),
        clock_reasons: 4.into(),
        pcie: GpuPcie { tx: Bytes(1).into(), rx: Bytes(2).into(), replay: 0.into(), ..GpuPcie::default() },
        ecc: GpuEcc { corrected: 0.into(), uncorrected: 0.into(), ..GpuEcc::default() },
        processes: vec![GpuProcess {
            pid: 424_242,
            kind: ContextKind::Compute,
            mem_used: Bytes(69 << 30).into(),
            sm: Permille(840).into(),
            gi: None,
        }]
        .into(),
        ..Gpu::default()
    }
}

fn engine() -> Engine {
    let histogram = || Reading::Value(Histogram { count: 5, sum: Nanos(9), buckets: Vec::new() });
    Engine {
        url: "http://127.0.0.1:8000/metrics".into(),
        at: AT,
        page: PageSize { bytes: 100, samples: 10, bad_lines: 0 }.into(),
        kind: EngineKind::Vllm.into(),
        model: "llama".to_owned().into(),
        running: 3.into(),
        waiting: 2.into(),
        swapped: 0.into(),
        kv_usage: Ppb(420_000_000).into(),
        prompt_tokens: 10.into(),
        generation_tokens: 20.into(),
        preemptions: 0.into(),
        requests_success: 5.into(),
        prefix_queries: 1.into(),
        prefix_hits: 1.into(),
        // No engine has them: the page of a training job does.
        steps: 1.into(),
        ttft: histogram(),
        itl: histogram(),
        e2e: histogram(),
        queue_time: histogram(),
        ..Engine::default()
    }
}

fn array(number: u32) -> MdArray {
    MdArray {
        name: format!("md{number}"),
        level: "raid5".to_owned().into(),
        state: MdState::Clean.into(),
        raid_disks: 4.into(),
        active_disks: 3.into(),
        degraded: 1.into(),
        action: MdAction::Recover.into(),
        sync: SyncState::Running.into(),
        sync_percent: Ppb(100_000_000).into(),
        sync_done: Bytes(1).into(),
        sync_total: Bytes(2).into(),
        sync_speed: BytesPerSecond(3).into(),
        sync_speed_min: BytesPerSecond(1).into(),
        mismatch_sectors: 0.into(),
        ..MdArray::default()
    }
}

/// 8 disks with 2 partitions each, and the 4 arrays.
fn disks() -> Vec<BlockDevice> {
    let io = || Reading::Value(IoCounters { fields: 17, reads: 10, sectors_read: 8, ..IoCounters::default() });
    let device = |name: String, partition_of| BlockDevice { name, partition_of, io: io(), ..BlockDevice::default() };
    let disk = |n: u32| {
        let name = format!("nvme{n}n1");
        let part = |p: u32| device(format!("{name}p{p}"), Some(name.clone()));
        [device(name.clone(), None), part(1), part(2)]
    };
    let arrays = (0..4).map(|n| device(format!("md{n}"), None));
    (0..8).flat_map(disk).chain(arrays).collect()
}

fn psi() -> Psi {
    let pressure = || Reading::Value(Pressure { some: Stall::default(), full: Stall::default().into() });
    let all = || Pressures { cpu: pressure(), io: pressure(), memory: pressure() };
    Psi { system: all(), cgroups: vec![CgroupPressures { path: "/secret.slice".into(), pressures: all() }] }
}

/// 8 GPUs, 8 NVMe, 4 network cards, 20 bridges.
fn pci() -> Pci {
    let device = |bus: u32, kind: PciKind| PciDevice {
        address: address(bus),
        kind: kind.into(),
        root_bus: "pci0000:00".to_owned().into(),
        numa_node: 0.into(),
        link: Link {
            speed: MegaTransfers(32_000).into(),
            width: 16.into(),
            speed_max: MegaTransfers(32_000).into(),
            width_max: 16.into(),
        },
        ..PciDevice::default()
    };
    let range = |from: u32, count: u32, kind: PciKind| (from..from + count).map(move |bus| device(bus, kind.clone()));
    let devices = range(0x10, 8, PciKind::Gpu)
        .chain(range(0x30, 8, PciKind::Nvme))
        .chain(range(0x50, 4, PciKind::Nic))
        .chain(range(0x70, 20, PciKind::Bridge));
    Pci { devices: devices.collect() }
}

fn process() -> Process {
    Process { pid: 424_242, comm: "secret-command".to_owned().into(), ..Process::default() }
}
