//! The readings of one unit and its workload at one tick, as rates and shares.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

use gpuprod_snapshot::Reading;
use gpuprod_snapshot::gpu::{Gpu, Gpus};
use gpuprod_snapshot::host::Process;
use gpuprod_snapshot::units::{Bytes, to_f64};

use crate::Policy;
use crate::facts::work::{Rates, Work};
use crate::gather::Gather;
use crate::signals::EngineSignals;
use crate::unit::Unit;
use crate::usage::Readings;
use crate::wait::{self, Wait};

/// So much of the limit a GPU that works draws above what it draws with a context and nothing to do, where that was seen: a
/// card with a low limit rests at a larger part of it.
const ABOVE_CONTEXT: f64 = 0.1;

/// Names of processes in front of which a person sits, as far as they can be known by name.
const INTERACTIVE: &[&str] = &["jupyter", "ipython", "ipykernel", "code-server", "rstudio"];

impl Gather<'_> {
    pub(crate) fn readings(
        &self,
        unit: &Unit,
        gpu: Option<&Gpu>,
        engine: Option<&EngineSignals>,
        waits: &Work<'_>,
    ) -> Readings {
        let mut readings = Readings {
            work: engine.filter(|engine| engine.is_fresh(self.now)).and_then(EngineSignals::rate),
            io_some: waits.io_some.filter(|_| !waits.family.is_empty()).map(|(some, _)| some),
            ..Readings::default()
        };
        (readings.io, readings.written, readings.cpus) = (waits.rates.moved, waits.rates.written, waits.rates.cpus);
        if let Some((threads, place)) = &waits.blocked {
            let wait = place.as_deref().map_or(Wait::Unknown, wait::of);
            let is = |yes: bool| Some(if *threads > 0 && yes { 1.0 } else { 0.0 });
            readings.blocked = is(matches!(wait, Wait::Io | Wait::Remote));
            readings.blocked_remote = is(wait == Wait::Remote);
        }
        let Some(gpu) = gpu else { return readings };
        let instance = unit.gi.and_then(|gi| gpu.instances.iter().find(|instance| instance.gi == gi));
        let (gpm, used, total, reserved) = match (unit.gi, instance) {
            (None, _) => (&gpu.gpm, &gpu.mem_used, &gpu.mem_total, gpu.mem_reserved.copied().unwrap_or_default()),
            (Some(_), Some(instance)) => (&instance.gpm, &instance.mem_used, &instance.mem_total, Bytes(0)),
            (Some(_), None) => return readings,
        };
        if let Some(gpm) = gpm.get() {
            let share =
                |reading: &Reading<gpuprod_snapshot::units::Ppb>| reading.copied().map(|share| share.as_fraction());
            (readings.sm, readings.tensor, readings.dram) = (share(&gpm.sm), share(&gpm.tensor), share(&gpm.dram));
        }
        let total = total.copied().and_then(|total| total.0.checked_sub(reserved.0)).filter(|total| *total > 0);
        readings.memory = used.copied().zip(total).map(|(used, total)| to_f64(used.0) / to_f64(total));
        // A board's utilization, power and links are not those of one of its instances.
        if unit.gi.is_none() {
            readings.util = gpu.util.copied().map(|util| util.as_fraction());
            let limit = gpu.power_limit.copied().filter(|limit| limit.0 > 0);
            readings.power = gpu.power.copied().zip(limit).map(|(power, limit)| to_f64(power.0) / to_f64(limit.0));
            let most = gpu.clock_sm_max.copied().filter(|clock| clock.0 > 0);
            readings.clock = gpu.clock_sm.copied().zip(most).map(|(now, most)| f64::from(now.0) / f64::from(most.0));
            readings.links = self.links(unit);
        }
        readings
    }

    /// Bytes per second over PCIe and NVLink, as far as there are counters.
    fn links(&self, unit: &Unit) -> Option<f64> {
        let (old, new, between) = self.window.pair(|tick| &tick.gpu)?;
        fn of<'g>(unit: &Unit, gpus: &'g Gpus) -> Option<&'g Gpu> {
            unit.gpu(Some(gpus))
        }
        let (old, new) = (of(unit, old)?, of(unit, new)?);
        let delta = |pick: fn(&Gpu) -> &Reading<Bytes>| {
            let (old, new) = (pick(old).copied()?, pick(new).copied()?);
            new.0.checked_sub(old.0).map(to_f64)
        };
        let moved = [
            delta(|gpu| &gpu.pcie.tx),
            delta(|gpu| &gpu.pcie.rx),
            delta(|gpu| &gpu.nvlink_tx),
            delta(|gpu| &gpu.nvlink_rx),
        ];
        moved.into_iter().flatten().reduce(|sum, more| sum + more).map(|bytes| bytes / between.as_secs_f64())
    }

    /// What the processes of the family did that were there before.
    pub(crate) fn rates(&self, family: &BTreeSet<u32>) -> Rates {
        let Some((_, _, between)) = self.window.pair(|tick| &tick.proc) else {
            return Rates::default();
        };
        let seconds = between.as_secs_f64();
        let (mut moved, mut written, mut cpu) = (None, None, None);
        for process in family.iter().filter_map(|pid| self.processes.get(pid)) {
            let Some(before) = self.before.get(&process.pid).filter(|before| before.start == process.start) else {
                continue;
            };
            let delta = |pick: fn(&Process) -> Option<u64>| {
                pick(process).zip(pick(before)).map(|(new, old)| to_f64(new.saturating_sub(old)))
            };
            let read = delta(|process| process.read_chars.copied().map(|bytes| bytes.0));
            let wrote = delta(|process| process.written_chars.copied().map(|bytes| bytes.0));
            add(&mut moved, read);
            add(&mut moved, wrote);
            add(&mut written, wrote);
            add(&mut cpu, delta(|process| process.cpu.copied().map(|cpu| cpu.0)));
        }
        let per = |sum: Option<f64>| sum.map(|sum| sum / seconds);
        Rates { moved: per(moved), written: per(written), cpus: per(cpu).map(|nanos| nanos / 1e9) }
    }

    /// Bytes per second of the workload's cgroups, by device.
    pub(crate) fn io_by_device(&self, family: &BTreeSet<u32>) -> BTreeMap<(u32, u32), f64> {
        let mut rates = BTreeMap::new();
        let Some((old, new, between)) = self.window.pair(|tick| &tick.cgroup) else { return rates };
        let paths: BTreeSet<&str> = family.iter().filter_map(|pid| self.cgroup_of(*pid)).collect();
        for cgroup in new.cgroups.iter().filter(|cgroup| paths.contains(cgroup.path.as_str())) {
            let before = old.cgroups.iter().find(|before| before.path == cgroup.path);
            let Some((before, after)) = before.and_then(|before| before.io.get()).zip(cgroup.io.get()) else {
                continue;
            };
            for io in after {
                let Some(before) = before.iter().find(|before| before.dev == io.dev) else { continue };
                let bytes = io
                    .read
                    .0
                    .saturating_sub(before.read.0)
                    .saturating_add(io.written.0.saturating_sub(before.written.0));
                *rates.entry(io.dev).or_default() += to_f64(bytes) / between.as_secs_f64();
            }
        }
        rates
    }

    fn cgroup_of(&self, pid: u32) -> Option<&str> {
        self.processes.get(&pid)?.cgroup.get().map(String::as_str).filter(|path| *path != "/")
    }

    /// Mount points that the family has open and that are on no block device of this node.
    pub(crate) fn mounts(&self, family: &BTreeSet<u32>) -> BTreeSet<String> {
        let Some(block) = self.block else { return BTreeSet::new() };
        let opens = family.iter().filter_map(|pid| self.processes.get(pid)?.opens.get()).flatten();
        let remote = opens
            .filter(|place| !place.starts_with("/dev/") && block.mounts.iter().all(|mount| mount.point != **place));
        remote.cloned().collect()
    }

    /// The job, pod, container or unit that the family belongs to.
    pub(crate) fn owner(&self, family: &BTreeSet<u32>) -> Option<String> {
        family.iter().find_map(|pid| {
            let owner = &self.cgroups.get(self.cgroup_of(*pid)?)?.owner;
            let short = |id: &String| id.chars().take(12).collect::<String>();
            let job = owner.slurm_job.as_ref().map(|job| format!("Slurm job {job}"));
            let pod = || owner.pod_uid.as_ref().map(|uid| format!("pod {uid}"));
            let container = || owner.container_id.as_ref().map(|id| format!("container {}", short(id)));
            let unit = || owner.unit.as_ref().map(|unit| format!("unit {unit}"));
            job.or_else(pod).or_else(container).or_else(unit)
        })
    }

    /// A login session, Slurm's interactive step, or a notebook. Names can be chosen: what they say buys time and
    /// nothing else.
    pub(crate) fn interactive(&self, family: &BTreeSet<u32>) -> Option<String> {
        family.iter().find_map(|pid| {
            let process = self.processes.get(pid)?;
            let path = process.cgroup.get().map_or("", String::as_str);
            let last = path.rsplit('/').next().unwrap_or_default();
            let step = path.split('/').any(|part| part == "step_interactive");
            let name = process.comm.get().filter(|comm| INTERACTIVE.iter().any(|known| comm.starts_with(known)));
            match name {
                _ if last.starts_with("session-") && last.ends_with(".scope") => Some("a login session".into()),
                _ if step => Some("an interactive step of Slurm".into()),
                Some(_) => Some("a notebook or an interactive interpreter".into()),
                None => None,
            }
        })
    }
}

/// Whether utilization reads 0 while the page counts work (`counted` in the time of a block) and the board draws what no
/// resting one does. Nothing where the silicon is measured: that is the better witness.
pub(crate) fn dead(
    unit: &Unit,
    (gpu, readings): (Option<&Gpu>, &Readings),
    counted: Option<f64>,
    policy: &Policy,
) -> Option<f64> {
    let (util, counted, power) = (readings.util?, counted?, readings.power?);
    let limit = gpu?.power_limit.copied().map(|limit| to_f64(limit.0))?;
    let context = unit.power.references(policy).context;
    let works = readings.power_share()? >= policy.telemetry_degraded.works_power.as_fraction()
        && context.is_none_or(|rests| power - rests / limit >= ABOVE_CONTEXT);
    readings.silicon().is_none().then_some(if util <= 0.0 && counted > 0.0 && works { 1.0 } else { 0.0 })
}

fn add(sum: &mut Option<f64>, value: Option<f64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0.0) + value);
    }
}
