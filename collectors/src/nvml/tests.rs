//! The child and its supervisor against a fake library. Values are checked against the state file's own.
#![expect(clippy::disallowed_methods, reason = "deadlines are measured here")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpuprod_fake_nvml as fake;
use gpuprod_snapshot::gpu::{Gpu, GpuHealth, Gpus};
use gpuprod_snapshot::topology::PciAddress;
use gpuprod_snapshot::units::{Bytes, Celsius, MegaHertz, Millijoules, Milliwatts, Permille, Ppb};

use super::*;

/// A collector over a fake library in a directory of its own.
struct Lab {
    dir: PathBuf,
    host: Host,
    nvml: Nvml,
}

fn worker() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().join("../examples/nvml_worker");
    assert!(
        path.exists(),
        "the example nvml_worker is not built: cargo build --release -p gpuprod-collectors --examples"
    );
    path
}

impl Lab {
    fn new(name: &str, state: &fake::State) -> Self {
        Self::with(name, state, &[])
    }

    fn with(name: &str, state: &fake::State, flags: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("gpuprod-nvml-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        state.write(&dir.join("state.json")).unwrap();
        let library = fake::library().expect("the fake library beside this test");
        let nvml = Nvml::new(&Self::options(&dir, flags));
        let host = Host::at(Path::new("/")).with_nvml(Some(library));
        let mut lab = Self { dir, host, nvml };
        lab.nvml.patience = Duration::from_millis(1500);
        lab
    }

    fn options(dir: &Path, flags: &[&str]) -> Options {
        // The state file's name goes to this child alone: tests of one process run side by side.
        let mut program = vec!["/usr/bin/env".to_owned()];
        program.push(format!("{}={}", fake::STATE, dir.join("state.json").display()));
        program.push(format!("{}={}", fake::COUNT, dir.join("count").display()));
        program.push(worker().display().to_string());
        program.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Options { nvml_worker: Some(program), state_dir: Some(dir.to_owned()), ..Options::default() }
    }

    fn state(&self, state: &fake::State) {
        state.write(&self.dir.join("state.json")).unwrap();
    }

    fn collect(&mut self) -> Result<Gpus, CollectError> {
        // GPM takes no two samples closer than a tenth of a second.
        std::thread::sleep(Duration::from_millis(110));
        match self.nvml.collect(&self.host, &Focus::default())? {
            Part::Gpu(gpus) => Ok(gpus),
            other => panic!("{other:?}"),
        }
    }

    fn gpus(&mut self) -> Vec<Gpu> {
        self.collect().unwrap().devices
    }

    fn pid(&self) -> u32 {
        self.nvml.worker.as_ref().unwrap().pid()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A hanging fake sleeps until its state says otherwise: let it out.
        self.state(&fake::State::default());
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Tries until it succeeds, for ten seconds.
fn soon<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..200 {
        if let Some(value) = attempt() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within ten seconds");
}

fn one(gpu: fake::Gpu) -> fake::State {
    fake::State::of([gpu])
}

#[test]
fn eight_gpus_come_back_in_the_right_units() {
    let gpu = |i: u32| fake::Gpu {
        util: Some(10 * i),
        util_mem: Some(i),
        mem_used: Some(u64::from(i) << 30),
        power_mw: Some(70_000 + i),
        energy_mj: Some(1_000_000_000_000 + u64::from(i)),
        temp: Some(40 + i32::try_from(i).unwrap()),
        temp_mem: Some(50 + i),
        clock_sm: Some(1_000 + i),
        clock_reasons: Some(0x44),
        pstate: Some(2),
        nvlink_tx_kib: Some(3),
        pcie: fake::Pcie {
            tx: Some(5),
            rx: Some(u64::MAX - 1),
            replay: Some(i),
            width: Some(8),
            ..fake::Pcie::default()
        },
        ecc: Some(fake::Ecc { corrected: 9, remap_pending: true, recovery_action: 1, ..fake::Ecc::default() }),
        processes: vec![fake::Process { pid: 100 + i, mem_used: Some(4096), sm: Some(77), ..fake::Process::default() }],
        gpm: Some(fake::Gpm { sm: 91.5, occupancy: 40.0, tensor: 12.25, dram: 100.0, nan: false }),
        ..fake::Gpu::default()
    };
    let mut lab = Lab::new("units", &fake::State::of((0..8).map(gpu)));
    let first = lab.collect().unwrap();
    assert_eq!(first.driver, Reading::Value("570.148.08".to_owned()));
    assert_eq!(first.devices.len(), 8);
    assert_eq!(first.devices[0].gpm, Reading::Missing(Missing::NotYet), "one sample is no activity");
    let second = lab.gpus();
    for (i, got) in second.iter().enumerate() {
        let n = u32::try_from(i).unwrap();
        assert_eq!(got.index, n);
        assert_eq!(got.uuid, Reading::Value(format!("GPU-fa4e0000-0000-4000-8000-{i:012x}")));
        assert_eq!(
            got.pci,
            Reading::from_option(PciAddress::parse(&format!("0000:{:02x}:00.0", 0x10 + i)), Missing::Gone)
        );
        assert_eq!(got.model, Reading::Value("NVIDIA H100 80GB HBM3".to_owned()));
        assert_eq!(got.health, Reading::Value(GpuHealth::Ok));
        assert_eq!(got.util, Reading::Value(Permille(100 * n)));
        assert_eq!(got.util_mem, Reading::Value(Permille(10 * n)));
        assert_eq!(got.mem_total, Reading::Value(Bytes(85_520_809_984)));
        assert_eq!(got.mem_used, Reading::Value(Bytes(u64::from(n) << 30)));
        assert_eq!(got.mem_reserved, Reading::Value(Bytes(502_267_904)));
        assert_eq!(got.power, Reading::Value(Milliwatts(u64::from(70_000 + n))));
        assert_eq!(got.power_limit, Reading::Value(Milliwatts(700_000)));
        assert_eq!(got.power_limit_default, Reading::Value(Milliwatts(700_000)));
        assert_eq!(got.energy, Reading::Value(Millijoules(1_000_000_000_000 + u64::from(n))));
        assert_eq!(got.temp, Reading::Value(Celsius(40 + i32::try_from(n).unwrap())));
        assert_eq!(got.temp_mem, Reading::Value(Celsius(50 + i32::try_from(n).unwrap())));
        assert_eq!(got.clock_sm, Reading::Value(MegaHertz(1_000 + n)));
        assert_eq!(got.clock_sm_max, Reading::Value(MegaHertz(1980)));
        assert_eq!(got.clock_mem, Reading::Value(MegaHertz(2619)));
        assert_eq!(got.clock_reasons, Reading::Value(0x44));
        assert_eq!(got.pstate, Reading::Value(2));
        assert_eq!(got.nvlink_tx, Reading::Value(Bytes(3072)), "NVML counts KiB");
        assert_eq!(got.pcie.tx, Reading::Value(Bytes(5)));
        assert_eq!(got.pcie.rx, Reading::Value(Bytes(u64::MAX - 1)));
        assert_eq!(got.pcie.replay, Reading::Value(u64::from(n)));
        assert_eq!((got.pcie.width.copied(), got.pcie.width_max.copied()), (Some(8), Some(16)));
        assert_eq!((got.pcie.generation.copied(), got.pcie.generation_max.copied()), (Some(5), Some(5)));
        assert_eq!((got.ecc.corrected.copied(), got.ecc.uncorrected.copied()), (Some(9), Some(0)));
        assert_eq!((got.ecc.remap_pending.copied(), got.ecc.remap_failed.copied()), (Some(true), Some(false)));
        assert_eq!(got.ecc.recovery_action, Reading::Value(1));
        assert_eq!((got.mig.copied(), got.mig_slices.copied()), (Some(false), Some(7)));
        let gpm = got.gpm.get().unwrap();
        assert_eq!(gpm.sm, Reading::Value(Ppb(915_000_000)));
        assert_eq!(gpm.tensor, Reading::Value(Ppb(122_500_000)));
        assert_eq!(gpm.dram, Reading::Value(Ppb::ONE));
        let processes = got.processes.get().unwrap();
        assert_eq!((processes.len(), processes[0].pid), (1, 100 + n));
        assert_eq!(processes[0].mem_used, Reading::Value(Bytes(4096)));
        assert_eq!(processes[0].sm, Reading::Value(Permille(770)));
    }
}

/// The real boards of the shared samples, where they are: what other tools read of them is what we read.
#[test]
fn a_real_boards_numbers_come_through() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/gpu-samples/expected.json");
    let Ok(text) = tree::text(&path) else {
        println!("skipped: no {}", path.display());
        return;
    };
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let want = &all["files"]["smi_h100-80gb-hbm3_590.48.01_load.prom"];
    let number = |key: &str| want[key].as_f64().unwrap();
    let whole = |value: f64| gpuprod_snapshot::units::from_f64(value).unwrap();
    let small = |value: f64| u32::try_from(whole(value)).unwrap();
    let processes = want["processes"].as_array().unwrap().iter().map(|process| fake::Process {
        pid: small(process["pid"].as_f64().unwrap()),
        mem_used: Some(whole(process["mem_bytes"].as_f64().unwrap())),
        ..fake::Process::default()
    });
    let gpu = fake::Gpu {
        name: want["name"].as_str().unwrap().to_owned(),
        pci: Some(want["pci_bus_id"].as_str().unwrap().to_owned()),
        util: Some(small(number("util_gpu") * 100.0)),
        util_mem: Some(small(number("util_mem") * 100.0)),
        mem_total: Some(whole(number("mem_total_bytes"))),
        mem_used: Some(whole(number("mem_used_bytes"))),
        mem_reserved: whole(number("mem_reserved_bytes")),
        power_mw: Some(small(number("power_w") * 1e3)),
        power_limit_mw: Some(small(number("power_limit_w") * 1e3)),
        processes: processes.collect(),
        ..fake::Gpu::default()
    };
    let got = Lab::new("real", &one(gpu)).gpus().remove(0);
    assert_eq!(got.pci.copied().unwrap().to_string(), "0000:00:09.0");
    assert_eq!(got.util, Reading::Value(Permille(1000)));
    assert_eq!(got.util_mem, Reading::Value(Permille(110)));
    assert_eq!(got.power, Reading::Value(Milliwatts(631_950)));
    assert_eq!(got.mem_used, Reading::Value(Bytes(20_780_679_168)));
    let pids: Vec<u32> = got.processes.get().unwrap().iter().map(|process| process.pid).collect();
    assert_eq!(pids, [11327, 11328, 11345]);
}

#[test]
fn what_a_board_lacks_is_missing_and_nonsense_is_malformed() {
    let gpu = fake::Gpu {
        util: Some(4_000_000_000),
        temp_mem: None,
        energy_mj: None,
        power_mw: None,
        ecc: None,
        mig: None,
        nvlink_tx_kib: None,
        gpm: Some(fake::Gpm { nan: true, ..fake::Gpm::default() }),
        processes: vec![fake::Process { pid: 1, ..fake::Process::default() }],
        ..fake::Gpu::default()
    };
    let mut lab = Lab::new("lacks", &one(gpu));
    lab.gpus();
    let got = lab.gpus().remove(0);
    assert_eq!(got.util, Reading::Missing(Missing::Malformed));
    for missing in [
        got.temp_mem.missing(),
        got.energy.missing(),
        got.power.missing(),
        got.mig.missing(),
        got.mig_slices.missing(),
        got.ecc.corrected.missing(),
        got.ecc.remap_pending.missing(),
        got.nvlink_tx.missing(),
    ] {
        assert_eq!(missing, Some(Missing::Unsupported));
    }
    assert_eq!(got.gpm.get().unwrap().sm, Reading::Missing(Missing::Malformed));
    assert_eq!(got.processes.get().unwrap()[0].mem_used, Reading::Missing(Missing::Unsupported));
    assert_eq!(got.health, Reading::Value(GpuHealth::Ok));
}

#[test]
fn a_call_that_a_board_lacks_is_not_repeated_and_every_call_is_listed() {
    let gpu = fake::Gpu { power_mw: None, gpm: Some(fake::Gpm::default()), mig: Some(true), ..fake::Gpu::default() };
    let gpu = fake::Gpu { instances: vec![fake::Mig { gi: 1, ..fake::Mig::default() }], ..gpu };
    let mut lab = Lab::new("probe", &one(gpu));
    for _ in 0..20 {
        lab.gpus();
    }
    // The counts are written when the library is let go of.
    lab.nvml.set_released(true);
    assert_eq!(lab.collect().unwrap_err().missing, Missing::Released);
    let counts = tree::text(&lab.dir.join("count")).unwrap();
    let count = |name: &str| -> u64 {
        let line = counts.lines().find(|line| line.ends_with(&format!(" {name}")));
        line.map_or(0, |line| line.split(' ').next().unwrap().parse().unwrap())
    };
    assert_eq!(count("nvmlDeviceGetPowerUsage"), 1);
    assert_eq!(count("nvmlDeviceGetTemperatureV"), 20);
    assert_eq!(count("nvmlDeviceGetComputeRunningProcesses_v3"), 4);
    assert_eq!(count("nvmlDeviceGetTotalEccErrors"), 2);
    assert_eq!(count("nvmlDeviceGetName"), 1);
    for line in counts.lines() {
        let (_, name) = line.split_once(' ').unwrap();
        assert!(CALLS.contains(&name), "{name} is called and not listed");
    }
    assert_eq!(count("nvmlShutdown"), 1);
    assert!(lab.nvml.worker.is_none() && lab.nvml.retired.is_none(), "the child is gone, not idle");
    lab.nvml.set_released(false);
    assert_eq!(lab.gpus().len(), 1);
}

/// These are made only where the library lacks the newer call, or at the end.
const OTHER: &[&str] = &[
    "dlopen",
    "nvmlShutdown",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlGpmSampleFree",
];

#[test]
fn a_hang_in_any_call_costs_the_deadline_and_names_the_call() {
    let calls: Vec<&str> = CALLS.iter().copied().filter(|call| !OTHER.contains(call)).collect();
    std::thread::scope(|scope| {
        for some in calls.chunks(6) {
            scope.spawn(move || some.iter().for_each(|call| hang(call)));
        }
    });
}

fn hang(call: &str) {
    let gpu = fake::Gpu {
        gpm: Some(fake::Gpm::default()),
        mig: Some(true),
        instances: vec![fake::Mig { gi: 1, gpm: Some(fake::Gpm::default()), ..fake::Mig::default() }],
        ..fake::Gpu::default()
    };
    let mut state = fake::State::of([gpu.clone(), gpu]);
    state.faults = vec![fake::Fault::hang(call)];
    let mut lab = Lab::new(&format!("hang-{}", thread_name(call)), &state);
    lab.nvml.patience = Duration::from_millis(500);
    let watch = lab.nvml.watch().unwrap();
    let begin = Instant::now();
    // GPM gives metrics from the second sample on.
    let error = lab.collect().err().or_else(|| lab.collect().err()).expect(call);
    assert!(begin.elapsed() < Duration::from_secs(2), "{call}");
    assert_eq!(error.missing, Missing::TimedOut, "{call}: {error}");
    assert!(error.to_string().contains(call), "{error}");
    assert_eq!(watch().as_deref(), Some(call));
    let pid = lab.pid();
    let again = lab.collect().unwrap_err();
    assert_eq!((again.missing, lab.pid()), (Missing::TimedOut, pid), "no second child");
    let begin = Instant::now();
    drop(std::mem::replace(&mut lab.nvml, Nvml::new(&Options::default())));
    assert!(begin.elapsed() < Duration::from_secs(1), "{call}: the end waited for the child");
}

#[test]
fn an_outstanding_answer_is_fetched_when_it_comes() {
    let mut state = one(fake::Gpu { util: Some(42), ..fake::Gpu::default() });
    let mut lab = Lab::new("late", &state);
    lab.nvml.patience = Duration::from_millis(200);
    state.faults = vec![fake::Fault::hang("nvmlDeviceGetPowerUsage")];
    lab.state(&state);
    assert_eq!(lab.collect().unwrap_err().missing, Missing::TimedOut);
    let pid = lab.pid();
    state.faults.clear();
    lab.state(&state);
    let got = soon(|| lab.collect().ok());
    assert_eq!(got.devices[0].util, Reading::Value(Permille(420)));
    assert_eq!(lab.pid(), pid);
}

#[test]
fn a_stuck_child_of_another_agent_blocks_a_second_until_it_ends() {
    let mut state = one(fake::Gpu::default());
    state.faults = vec![fake::Fault::hang("nvmlDeviceGetUtilizationRates")];
    let mut lab = Lab::new("lock", &state);
    lab.nvml.patience = Duration::from_millis(300);
    assert_eq!(lab.collect().unwrap_err().missing, Missing::TimedOut);
    let old = lab.pid();
    lab.nvml = Nvml::new(&Lab::options(&lab.dir, &[]));
    let error = lab.collect().unwrap_err();
    assert_eq!(error.missing, Missing::TimedOut);
    let words = format!("an earlier child (pid {old}) is still stuck in nvmlDeviceGetUtilizationRates");
    assert!(error.to_string().contains(&words), "{error}");
    assert!(lab.nvml.worker.is_none());
    assert_eq!(lab.nvml.watch().unwrap()().as_deref(), Some("nvmlDeviceGetUtilizationRates"));
    state.faults.clear();
    lab.state(&state);
    assert_eq!(soon(|| lab.collect().ok()).devices.len(), 1);
    assert_ne!(lab.pid(), old);
}

#[test]
fn a_lock_file_that_cannot_be_had_costs_no_sight() {
    let state = one(fake::Gpu::default());
    // A directory of that name, a link to another's file, no state directory at all.
    let mut lab = Lab::new("lock-dir", &state);
    std::fs::create_dir(lab.dir.join(LOCK)).unwrap();
    assert_eq!(lab.gpus().len(), 1);
    assert!(lab.nvml.unlocked.contains("nvml.lock: Is a directory"), "{}", lab.nvml.unlocked);
    let mut lab = Lab::new("lock-link", &state);
    let victim = lab.dir.join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, lab.dir.join(LOCK)).unwrap();
    assert_eq!(lab.gpus().len(), 1);
    assert_eq!(tree::text(&victim).unwrap(), "precious");
    assert!(lab.nvml.unlocked.contains("no lock"), "{}", lab.nvml.unlocked);
    let mut lab = Lab::new("lock-nowhere", &state);
    lab.nvml.lock = Some("/nowhere/nvml.lock".into());
    assert_eq!(lab.gpus().len(), 1);
}

#[test]
fn the_lock_file_is_its_owners_alone_and_names_the_child() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut lab = Lab::new("lock-mode", &one(fake::Gpu::default()));
    lab.gpus();
    let lock = lab.dir.join(LOCK);
    assert_eq!(std::fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(tree::value::<u32>(&lock).copied(), Some(lab.pid()));
    assert_eq!(lab.nvml.unlocked, "");
}

#[test]
fn a_lock_held_by_a_stranger_costs_no_sight() {
    let mut lab = Lab::new("lock-stranger", &one(fake::Gpu::default()));
    let lock = lab.dir.join(LOCK);
    // This test's own process lives and is no child of the agent's; process 0 is nobody.
    for pid in [std::process::id(), 0] {
        lab.nvml = Nvml::new(&Lab::options(&lab.dir, &[]));
        std::fs::write(&lock, format!("{pid}\n")).unwrap();
        let held = File::open(&lock).unwrap();
        held.lock().unwrap();
        assert_eq!(lab.gpus().len(), 1);
        let words = format!("another process holds the lock file {}", lock.display());
        assert_eq!(lab.nvml.unlocked, words);
    }
}

#[test]
fn errors_of_one_call_spoil_one_field() {
    let mut state = fake::State::of([fake::Gpu::default(), fake::Gpu::default()]);
    let fault = |call: &str, code, after, gpu| fake::Fault::Error { call: call.to_owned(), code, after, gpu };
    state.faults =
        vec![fault("nvmlDeviceGetPowerUsage", 999, 4, None), fault("nvmlDeviceGetClockInfo", 16, 0, Some(1))];
    let mut lab = Lab::new("errors", &state);
    for _ in 0..2 {
        let got = lab.gpus();
        assert!(got[0].power.get().is_some() && got[1].power.get().is_some());
        assert_eq!(got[0].health, Reading::Value(GpuHealth::Ok));
        assert_eq!(got[1].health, Reading::Value(GpuHealth::ResetRequired));
        assert_eq!(got[1].clock_sm, Reading::Missing(Missing::Gone));
        assert_eq!(got[1].util, Reading::Value(Permille(0)));
    }
    let got = lab.gpus();
    assert_eq!(got[0].power, Reading::Missing(Missing::Malformed));
    assert_eq!(got[0].temp, Reading::Value(Celsius(35)));
}

#[test]
fn a_lost_gpu_keeps_its_identity_and_the_others_go_on() {
    let mut state = fake::State::of([fake::Gpu::default(), fake::Gpu { util: Some(50), ..fake::Gpu::default() }]);
    let mut lab = Lab::new("lost", &state);
    let before = lab.gpus();
    state.faults = vec![fake::Fault::Lost(vec![0])];
    lab.state(&state);
    for _ in 0..3 {
        let got = lab.gpus();
        assert_eq!(got.len(), 2);
        assert_eq!(got[0].health, Reading::Value(GpuHealth::Lost));
        assert_eq!(
            (&got[0].uuid, &got[0].pci, &got[0].mem_total),
            (&before[0].uuid, &before[0].pci, &before[0].mem_total)
        );
        assert_eq!((got[0].util.missing(), got[0].processes.missing()), (Some(Missing::Gone), Some(Missing::Gone)));
        assert_eq!((got[1].health.get(), got[1].util.copied()), (Some(&GpuHealth::Ok), Some(Permille(500))));
    }
    // It comes back after a reset, within the samples between two searches.
    state.faults.clear();
    lab.state(&state);
    let back = (0..61).find(|_| lab.gpus()[0].health == Reading::Value(GpuHealth::Ok));
    assert!(back.is_some(), "not found again");
}

#[test]
fn a_gpu_that_was_lost_before_the_first_look_is_in_the_list() {
    let mut state = fake::State::of([fake::Gpu::default(), fake::Gpu::default()]);
    state.faults = vec![fake::Fault::Lost(vec![0])];
    let got = Lab::new("lost-first", &state).gpus();
    assert_eq!((got.len(), got[0].index, got[1].index), (2, 0, 1));
    assert_eq!(got[0].health, Reading::Value(GpuHealth::Lost));
    assert_eq!(got[0].uuid, Reading::Missing(Missing::Gone));
    assert_eq!(got[1].health, Reading::Value(GpuHealth::Ok));
}

#[test]
fn a_gpu_that_vanishes_from_the_list_is_lost_and_the_rest_keep_their_names() {
    let gpu =
        |name: &str| fake::Gpu { uuid: Some(format!("GPU-{name}")), name: name.to_owned(), ..fake::Gpu::default() };
    let mut lab = Lab::new("vanish", &fake::State::of(["a", "b", "c"].map(gpu)));
    assert_eq!(lab.gpus().len(), 3);
    lab.state(&fake::State::of(["a", "c"].map(gpu)));
    let got = lab.gpus();
    let find = |name: &str| got.iter().find(|gpu| gpu.uuid == Reading::Value(format!("GPU-{name}"))).unwrap();
    assert_eq!(got.len(), 3);
    assert_eq!(find("b").health, Reading::Value(GpuHealth::Lost));
    assert_eq!((find("c").health.get(), find("c").index), (Some(&GpuHealth::Ok), 1));
    assert_eq!(find("c").model, Reading::Value("c".to_owned()));
}

#[test]
fn nothing_is_called_released_while_a_child_is_in_a_call() {
    let mut lab = Lab::new("release-stuck", &one(fake::Gpu::default()));
    lab.nvml.patience = Duration::from_millis(200);
    soon(|| lab.collect().ok());
    lab.state(&fake::State { faults: vec![fake::Fault::hang("nvmlDeviceGetPowerUsage")], ..one(fake::Gpu::default()) });
    assert_eq!(lab.collect().unwrap_err().missing, Missing::TimedOut);
    lab.nvml.set_released(true);
    for _ in 0..3 {
        let error = lab.collect().unwrap_err();
        assert_eq!(error.missing, Missing::TimedOut, "{error}");
        assert!(error.to_string().contains("nvmlDeviceGetPowerUsage"), "{error}");
    }
    // A restarted agent knows of the child by its lock.
    let mut next = Nvml::new(&Lab::options(&lab.dir, &[]));
    next.set_released(true);
    assert_eq!(next.collect(&lab.host, &Focus::default()).unwrap_err().missing, Missing::TimedOut);
    lab.state(&one(fake::Gpu::default()));
    let missing = soon(|| lab.collect().err().map(|error| error.missing).filter(|m| *m != Missing::TimedOut));
    assert_eq!(missing, Missing::Released);
    assert_eq!(next.collect(&lab.host, &Focus::default()).unwrap_err().missing, Missing::Released);
}

#[test]
fn a_child_that_dies_is_followed_by_another_after_a_pause() {
    let mut lab = Lab::new("dies", &one(fake::Gpu::default()));
    lab.gpus();
    let pid = lab.pid();
    // SAFETY: a process that this test started and that was not waited for yet.
    #[expect(unsafe_code, reason = "the test plays the out-of-memory killer")]
    unsafe {
        libc::kill(i32::try_from(pid).unwrap(), libc::SIGKILL)
    };
    let error = lab.collect().unwrap_err();
    assert_eq!(error.missing, Missing::Gone);
    assert!(error.to_string().contains("signal: 9"), "{error}");
    assert_eq!(lab.collect().unwrap_err().missing, Missing::Gone, "one look is skipped");
    assert_eq!(lab.gpus().len(), 1);
    assert_ne!(lab.pid(), pid);
}

#[test]
fn a_child_that_keeps_dying_is_started_ever_more_rarely() {
    let mut lab = Lab::with("keeps-dying", &fake::State::default(), &["--die"]);
    let mut ends = Vec::new();
    for look in 0..40 {
        let error = lab.collect().unwrap_err();
        assert_eq!(error.missing, Missing::Gone, "{error}");
        if error.to_string().contains("the NVML child ended (exit status: 7):") {
            ends.push(look);
        }
    }
    assert_eq!(ends, [0, 2, 5, 10, 19, 36]);
}

#[test]
fn a_child_that_writes_nonsense_is_replaced() {
    let mut lab = Lab::with("hostile", &fake::State::default(), &["--hostile"]);
    let error = lab.collect().unwrap_err();
    assert_eq!(error.missing, Missing::Malformed, "{error}");
    assert!(lab.nvml.worker.is_none());
}

#[test]
fn no_library_is_normal_and_no_driver_is_said() {
    let mut lab = Lab::new("absent", &fake::State::default());
    let host = Host::at(Path::new("/")).with_nvml(Some("/nowhere/libnvidia-ml.so.1".into()));
    let library = std::mem::replace(&mut lab.host, host);
    let error = lab.collect().unwrap_err();
    assert_eq!(error.missing, Missing::Unsupported);
    assert!(error.to_string().contains("normal on a node without NVIDIA GPUs"), "{error}");
    let mut lab = Lab::new("no-driver", &fake::State::default());
    std::fs::remove_file(lab.dir.join("state.json")).unwrap();
    lab.host = library;
    let error = lab.collect().unwrap_err();
    assert!(error.to_string().contains("nvmlInit_v2"), "{error}");
    assert_eq!(error.missing, Missing::Unsupported);
}

#[test]
fn instances_of_a_partitioned_gpu() {
    let mig = |gi, slices, used| fake::Mig {
        gi,
        slices,
        mem_total: 10 << 30,
        mem_used: used,
        gpm: Some(fake::Gpm { sm: 50.0, ..fake::Gpm::default() }),
        ..fake::Mig::default()
    };
    let gpu = fake::Gpu {
        mig: Some(true),
        util: Some(99),
        gpm: Some(fake::Gpm::default()),
        instances: vec![mig(9, 1, 7), mig(1, 3, 5)],
        processes: vec![fake::Process { pid: 5, gi: Some(9), ..fake::Process::default() }],
        ..fake::Gpu::default()
    };
    let mut lab = Lab::new("mig", &one(gpu));
    lab.gpus();
    let got = lab.gpus().remove(0);
    assert_eq!((got.mig.copied(), got.mig_slices.copied()), (Some(true), Some(7)));
    assert_eq!(got.util, Reading::Missing(Missing::Unsupported), "the driver has none under MIG");
    let seen: Vec<_> = got.instances.iter().map(|mig| (mig.gi, mig.slices.copied(), mig.mem_used.copied())).collect();
    assert_eq!(seen, [(1, Some(3), Some(Bytes(5))), (9, Some(1), Some(Bytes(7)))]);
    assert!(got.instances[0].uuid.get().unwrap().starts_with("MIG-"));
    assert_eq!(got.instances[0].gpm.get().unwrap().sm, Reading::Value(Ppb(500_000_000)));
    assert_eq!(got.processes.get().unwrap()[0].gi, Some(9));
}
