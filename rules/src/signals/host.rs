//! What was learnt of the node around the GPUs: waits for CPUs and memory by cgroup, CPU time, network ports, memory that grows.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use gpuprod_snapshot::host::{Pressure, Pressures};
use gpuprod_snapshot::topology::NetPort;
use gpuprod_snapshot::units::{Nanos, to_f64};
use gpuprod_snapshot::{Reading, Tick};
use serde::{Deserialize, Serialize};

use super::borne::Borne;
use super::{ENOUGH_SECONDS, Suspect};
use crate::baseline::{Last, Track, Worse};
use crate::window::Window;
use crate::{Policy, entries};

mod damage;
mod growth;

use damage::{DAMAGE, Damage};
pub(crate) use growth::{Growth, Trend};

/// Workloads and ports that are remembered.
const MOST: usize = 256;
/// A workload that was not seen for so long is forgotten.
const FORGOTTEN: Nanos = Nanos::from_secs(3_600);
/// Counters of a port that tell of congestion or loss, under the names of mlx5 and of the kernel's interfaces.
const CONGESTION: &[&str] = &[
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "port_xmit_discards",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "rp_cnp_handled",
    "rx_dropped",
    "rx_missed_errors",
    "tx_dropped",
];
/// Counters of a link that failed or recovered.
const FAILURES: &[&str] = &["carrier_changes", "link_downed", "link_error_recovery"];
/// InfiniBand's classic counters are 8 bits wide and stick: one that stands there tells nothing any more.
const STUCK: u64 = 255;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostSignals {
    /// By cgroup path; the empty path is the whole node.
    #[serde(with = "entries")]
    pub(crate) workloads: BTreeMap<String, Box<Workload>>,
    /// By name (`mlx5_0`, `mlx5_0/2`, `eth0`).
    #[serde(with = "entries")]
    pub(crate) ports: BTreeMap<String, Box<Port>>,
    /// Memory in use on a GPU, by UUID.
    #[serde(with = "entries")]
    pub(crate) boards: BTreeMap<String, Growth>,
    pub(crate) cpu: NodeCpu,
}

/// What a workload's cgroup waits for and uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Workload {
    /// Share of time in which a task waited for a CPU.
    pub(crate) cpu_wait: Track,
    /// The same for memory.
    pub(crate) mem_wait: Track,
    /// Share of quota periods in which it was held.
    pub(crate) throttled: Track,
    /// CPUs that it used.
    pub(crate) cpus: Last,
    /// Bytes per second read anew after they had been thrown out of the page cache, as far as pages of 4 KiB go.
    pub(crate) refaults: Track,
    /// Bytes per second by device, for the last two minutes.
    #[serde(with = "entries")]
    pub(crate) io: BTreeMap<(u32, u32), Box<Track>>,
    /// Memory of its processes that no file backs.
    pub(crate) anonymous: Growth,
    /// When the out-of-memory killer last took one of its processes.
    pub(crate) oom_killed: Option<Nanos>,
    seen: Nanos,
}

/// Where the node's CPU time goes, as shares of all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeCpu {
    pub(crate) busy: Track,
    pub(crate) steal: Track,
    pub(crate) interrupts: Track,
}

/// A network port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Port {
    /// Notifications of congestion, losses and repetitions per second.
    pub(crate) events: Track,
    /// `port_xmit_wait` per second: ticks of unspecified length in which it had something to send and could not.
    pub(crate) waits: Track,
    /// Bytes per second.
    pub(crate) bytes: Track,
    /// How bad the first two were while nobody suffered.
    #[serde(default)]
    pub(crate) borne: [Borne; 2],
    /// The counter that grew fastest in the last interval, and by how much per second.
    pub(crate) worst: Option<(String, f64)>,
    /// It was up at some time.
    pub(crate) was_up: bool,
    /// It is down, since.
    pub(crate) down_since: Option<Nanos>,
    /// Its link failed last at.
    pub(crate) failed: Option<Nanos>,
    /// Failures that were seen.
    pub(crate) failures: u64,
    /// Symbols that came broken.
    #[serde(default)]
    pub(crate) damage: Damage,
}

impl Default for NodeCpu {
    fn default() -> Self {
        let share = || Track::new(Worse::Higher, ENOUGH_SECONDS);
        Self { busy: share(), steal: share(), interrupts: share() }
    }
}

impl Workload {
    fn new() -> Self {
        let higher = || Track::new(Worse::Higher, ENOUGH_SECONDS);
        Self {
            cpu_wait: higher(),
            mem_wait: higher(),
            // Ten periods a second; the cgroup is read every five seconds.
            throttled: Track::new(Worse::Higher, 10.0),
            cpus: Last::default(),
            refaults: higher(),
            io: BTreeMap::new(),
            anonymous: Growth::default(),
            oom_killed: None,
            seen: Nanos(0),
        }
    }

    fn tracks(&mut self) -> impl Iterator<Item = &mut Track> {
        let Self { cpu_wait, mem_wait, throttled, refaults, io, .. } = self;
        [cpu_wait, mem_wait, throttled, refaults].into_iter().chain(io.values_mut().map(Box::as_mut))
    }
}

impl Port {
    fn new() -> Self {
        let higher = || Track::new(Worse::Higher, ENOUGH_SECONDS);
        Self {
            events: higher(),
            waits: higher(),
            bytes: higher(),
            borne: Default::default(),
            worst: None,
            was_up: false,
            down_since: None,
            failed: None,
            failures: 0,
            damage: Damage::default(),
        }
    }

    fn tracks(&mut self) -> [&mut Track; 3] {
        [&mut self.events, &mut self.waits, &mut self.bytes]
    }
}

/// `mlx5_0`, `mlx5_0/2`, `eth0`: most devices have one port.
pub(crate) fn name_of(port: &NetPort) -> String {
    if port.port <= 1 { port.device.clone() } else { alloc::format!("{}/{}", port.device, port.port) }
}

impl HostSignals {
    /// Takes in what the tick brought.
    pub(crate) fn update(&mut self, window: &Window, tick: &Tick) {
        let now = tick.stamp.boottime;
        if tick.psi.is_some() {
            self.pressures(window, now);
        }
        if tick.cgroup.is_some() {
            self.cgroups(window, now);
        }
        if tick.cpu.is_some() {
            self.cpu_time(window);
        }
        if tick.net.is_some() {
            self.network(window, now);
        }
        if growth::due(now, window.last.period) {
            self.memory(tick, now);
        }
    }

    /// Ends the block that began at `start`.
    pub(crate) fn close(&mut self, start: Nanos, suspect: &Suspect, policy: &Policy) {
        let calm = suspect.workloads.is_empty();
        self.workloads.retain(|_, workload| start.saturating_sub(workload.seen) < FORGOTTEN);
        for (path, workload) in &mut self.workloads {
            let healthy = if path.is_empty() { calm } else { !suspect.workloads.contains(path) };
            workload.tracks().for_each(|track| track.close(start, healthy, policy));
            workload.cpus.close(ENOUGH_SECONDS);
        }
        for track in [&mut self.cpu.busy, &mut self.cpu.steal, &mut self.cpu.interrupts] {
            track.close(start, calm, policy);
        }
        for port in self.ports.values_mut() {
            port.tracks().into_iter().for_each(|track| track.close(start, calm, policy));
            let Port { events, waits, borne: [told, waited], .. } = &mut **port;
            for (track, borne) in [(events, told), (waits, waited)] {
                borne.close(track.latest(), track.alarms(policy), calm);
            }
        }
    }

    /// Keeps every own normal and drops the present ([`Track::rest`]).
    pub(crate) fn rest(&mut self) {
        for workload in self.workloads.values_mut() {
            workload.tracks().for_each(Track::rest);
            workload.cpus = Last::default();
            (workload.anonymous, workload.oom_killed, workload.seen) = (Growth::default(), None, Nanos(0));
        }
        for port in self.ports.values_mut() {
            port.tracks().into_iter().for_each(Track::rest);
            (port.worst, port.was_up, port.down_since, port.failed) = (None, false, None, None);
            port.damage = Damage::default();
            port.borne = Default::default();
        }
        [&mut self.cpu.busy, &mut self.cpu.steal, &mut self.cpu.interrupts].into_iter().for_each(Track::rest);
        self.boards.clear();
    }

    fn workload(&mut self, path: &str, now: Nanos) -> Option<&mut Workload> {
        if !self.workloads.contains_key(path) {
            if self.workloads.len() >= MOST {
                return None;
            }
            self.workloads.insert(path.to_string(), Box::new(Workload::new()));
        }
        let workload = self.workloads.get_mut(path)?;
        workload.seen = now;
        Some(workload)
    }

    fn pressures(&mut self, window: &Window, now: Nanos) {
        let Some((old, new, between)) = window.pair(|tick| &tick.psi) else { return };
        let mut add = |path: &str, old: &Pressures, new: &Pressures| {
            let waited = |pick: fn(&Pressures) -> &Reading<Pressure>| {
                let (old, new) = (pick(old).get()?, pick(new).get()?);
                new.some.total.checked_sub(old.some.total)
            };
            let (cpu, memory) = (waited(|all| &all.cpu), waited(|all| &all.memory));
            let Some(workload) = self.workload(path, now) else { return };
            for (track, waited) in [(&mut workload.cpu_wait, cpu), (&mut workload.mem_wait, memory)] {
                if let Some(waited) = waited {
                    track.add(waited.as_secs_f64().min(between.as_secs_f64()), between.as_secs_f64());
                }
            }
        };
        add("", &old.system, &new.system);
        for (old, new) in pairs(&old.cgroups, &new.cgroups, |group| group.path.as_str()) {
            add(&new.path, &old.pressures, &new.pressures);
        }
    }

    fn cgroups(&mut self, window: &Window, now: Nanos) {
        let Some((old, new, between)) = window.pair(|tick| &tick.cgroup) else { return };
        let seconds = between.as_secs_f64();
        for (old, new) in pairs(&old.cgroups, &new.cgroups, |group| group.path.as_str()) {
            let Some(workload) = self.workload(&new.path, now) else { continue };
            let delta = |old: Option<u64>, new: Option<u64>| new?.checked_sub(old?).map(to_f64);
            let periods = delta(old.periods.copied(), new.periods.copied());
            let held = delta(old.throttled_periods.copied(), new.throttled_periods.copied());
            if let Some((periods, held)) = periods.zip(held).filter(|(periods, _)| *periods > 0.0) {
                workload.throttled.add(held.min(periods), periods);
            }
            if let Some(used) = delta(old.cpu_used.copied().map(|t| t.0), new.cpu_used.copied().map(|t| t.0)) {
                workload.cpus.add(used / 1e9, seconds);
            }
            if let Some(pages) = delta(old.refaults.copied(), new.refaults.copied()) {
                workload.refaults.add(pages * 4096.0, seconds);
            }
            if delta(old.oom_kills.copied(), new.oom_kills.copied()).is_some_and(|kills| kills > 0.0) {
                workload.oom_killed = Some(now);
            }
            for (old, new) in pairs_of_io(old, new) {
                let moved =
                    new.read.0.saturating_sub(old.read.0).saturating_add(new.written.0.saturating_sub(old.written.0));
                if workload.io.len() < 64 || workload.io.contains_key(&new.dev) {
                    let fresh = || Box::new(Track::new(Worse::Higher, ENOUGH_SECONDS));
                    let track = workload.io.entry(new.dev).or_insert_with(fresh);
                    track.add(to_f64(moved), seconds);
                }
            }
        }
    }

    fn cpu_time(&mut self, window: &Window) {
        let Some((old, new, between)) = window.pair(|tick| &tick.cpu) else { return };
        let Some(online) = new.online.copied().filter(|online| *online > 0) else { return };
        let seconds = between.as_secs_f64();
        let share = |old: &Reading<Nanos>, new: &Reading<Nanos>| {
            let spent = new.copied()?.checked_sub(old.copied()?)?;
            Some((spent.as_secs_f64() / f64::from(online)).min(seconds))
        };
        let cpu = &mut self.cpu;
        for (track, spent) in [
            (&mut cpu.busy, share(&old.busy, &new.busy)),
            (&mut cpu.steal, share(&old.steal, &new.steal)),
            (&mut cpu.interrupts, share(&old.interrupts, &new.interrupts)),
        ] {
            if let Some(spent) = spent {
                track.add(spent, seconds);
            }
        }
    }

    fn network(&mut self, window: &Window, now: Nanos) {
        let Some((old, new, between)) = window.pair(|tick| &tick.net) else { return };
        let seconds = between.as_secs_f64();
        for after in new.ports.iter().take(MOST) {
            let Some(before) = old.ports.iter().find(|p| p.device == after.device && p.port == after.port) else {
                continue;
            };
            let port = self.ports.entry(name_of(after)).or_insert_with(|| Box::new(Port::new()));
            let delta = |name: &str| {
                let of = |port: &NetPort| port.counters.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
                of(after)?.checked_sub(of(before)?).filter(|_| of(before) != Some(STUCK))
            };
            let grown = CONGESTION.iter().filter_map(|name| Some((*name, to_f64(delta(name)?) / seconds)));
            let (mut all, mut worst) = (None, None);
            for (name, rate) in grown {
                all = Some(all.unwrap_or(0.0) + rate);
                if worst.as_ref().is_none_or(|(_, most)| rate > *most) {
                    worst = Some((name.to_string(), rate));
                }
            }
            if let Some(all) = all {
                port.events.add(all * seconds, seconds);
            }
            port.worst = worst;
            if let Some(waits) = delta("port_xmit_wait") {
                port.waits.add(to_f64(waits), seconds);
            }
            let moved = |pick: fn(&NetPort) -> Option<u64>| pick(after)?.checked_sub(pick(before)?).map(to_f64);
            let both = moved(|port| port.tx.copied().map(|b| b.0)).zip(moved(|port| port.rx.copied().map(|b| b.0)));
            if let Some((sent, received)) = both {
                port.bytes.add(sent + received, seconds);
            }
            port.damage.add(DAMAGE.iter().filter_map(|name| delta(name)), seconds);
            let failures: u64 = FAILURES.iter().filter_map(|name| delta(name)).sum();
            if failures > 0 && port.was_up {
                port.failed = Some(now);
                port.failures = port.failures.saturating_add(failures);
            }
            match after.up.copied() {
                Some(true) => (port.was_up, port.down_since) = (true, None),
                Some(false) if port.was_up => {
                    port.down_since.get_or_insert(now);
                    port.failed = Some(now);
                }
                _ => {}
            }
        }
    }

    fn memory(&mut self, tick: &Tick, now: Nanos) {
        if let Some(gpus) = tick.gpu.as_ref().and_then(|sample| sample.value.get()) {
            for gpu in gpus.devices.iter().take(MOST) {
                if let Some((uuid, used)) = gpu.uuid.get().zip(gpu.mem_used.copied()) {
                    self.boards.entry(uuid.clone()).or_default().add(now, to_f64(used.0));
                }
            }
        }
        let Some(all) = tick.proc.as_ref().and_then(|sample| sample.value.get()) else { return };
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for process in &all.processes {
            if let Some((path, own)) = process.cgroup.get().zip(process.anonymous.copied()) {
                *sums.entry(path.as_str()).or_default() += to_f64(own.0);
            }
        }
        for (path, sum) in sums.into_iter().filter(|(path, _)| *path != "/") {
            if let Some(workload) = self.workload(path, now) {
                workload.anonymous.add(now, sum);
            }
        }
    }
}

/// The same thing in two lists, by name.
fn pairs<'a, T>(old: &'a [T], new: &'a [T], name: fn(&T) -> &str) -> impl Iterator<Item = (&'a T, &'a T)> {
    new.iter().filter_map(move |after| Some((old.iter().find(|before| name(before) == name(after))?, after)))
}

fn pairs_of_io<'a>(
    old: &'a gpuprod_snapshot::tenant::Cgroup,
    new: &'a gpuprod_snapshot::tenant::Cgroup,
) -> impl Iterator<Item = (&'a gpuprod_snapshot::tenant::CgroupIo, &'a gpuprod_snapshot::tenant::CgroupIo)> {
    let before = old.io.get().map(alloc::vec::Vec::as_slice).unwrap_or_default();
    let after = new.io.get().map(alloc::vec::Vec::as_slice).unwrap_or_default();
    after.iter().filter_map(move |new| Some((before.iter().find(|old| old.dev == new.dev)?, new)))
}
