//! The GPU is held and does nothing: by the dead, by a hang, or by somebody who has no use for it.
//!
//! Silence of demand is no squatting: an engine that answers its page is a reserve, whatever it does. Power decides
//! nothing either: 70 GB held cost an H200 no watt more than an empty context. What counts is who holds it, whether
//! that holder lives, and whether anything at all moved for long enough.

use alloc::format;
use alloc::string::String;

use gpuprod_snapshot::gpu::GpuHealth;
use gpuprod_snapshot::units::Nanos;

use super::{Claim, Outcome, Text, View};
use crate::facts::Demand;
use crate::policy::table::thresholds;
use crate::usage::End;
use crate::{Cause, Evidence, Gate, Part, Rejected, Severity};

mod words;

use words::{minutes, percent};

/// Confidence in each variant. A zombie is a fact; a holder that was left by its parent may be a nohup.
const DEAD: f64 = 0.95;
const WEDGED: f64 = 0.9;
const LEFT: f64 = 0.75;
const SPIN_GPM: f64 = 0.9;
const SPIN_POWER: f64 = 0.7;
const SEED: f64 = 0.75;
/// Lower where the CPUs of the workload work: it may be in a phase without GPU.
const SEED_CPU_BUSY: f64 = 0.5;
const STANDBY: &str = "declared as a standby (rules.allocations)";
/// So many CPUs are busy.
const CPUS_BUSY: f64 = 0.5;

thresholds! {
    /// Thresholds of `squatter`.
    pub struct Thresholds {
        /// Memory in use from which a GPU that does nothing counts as squatted, in millionths: half. A context takes
        /// .004 to .07, the public cases hold .63 to .96, 70 GB held on an H200 are .50; the .95 that the pattern is
        /// told with misses every engine at its default of .90.
        mem: Part = Part(500_000), Part(0)..=Part::ONE;
        /// Activity (utilization, SM, tensor, DRAM) up to which a GPU does nothing, in millionths: 5 %, as in the
        /// published traces (Philly, PAI, Acme).
        util: Part = Part(50_000), Part(0)..=Part::ONE;
        /// A GPU must do nothing for so long before its holder squats: ten minutes, the shortest that a live fleet's
        /// pauses leave quiet (GenTD26).
        for_ns: Nanos = Nanos::from_secs(600), Nanos(0)..=Nanos::from_secs(3_600);
        /// The same where a person works (login session, notebook, Slurm's interactive step): people pause.
        interactive_ns: Nanos = Nanos::from_secs(3_600), Nanos(0)..=Nanos::from_secs(86_400);
        /// A workload that has not served yet may load for so long. Half an hour: 500 GB at 300 MB/s; longer is a
        /// hang.
        loading_cap_ns: Nanos = Nanos::from_secs(1_800), Nanos(0)..=Nanos::from_secs(86_400);
        /// Memory that a dead holder must keep to count, in millionths: 5 %, since a context alone is no harm.
        dead_mem: Part = Part(50_000), Part(0)..=Part::ONE;
        /// A holder must be dead for so long: a driver takes its time to tear down, two minutes is not that.
        dead_ns: Nanos = Nanos::from_secs(120), Nanos(0)..=Nanos::from_secs(3_600);
        /// An engine's page must be refused for so long before the engine counts as gone. A restart of the server
        /// takes seconds; two scrapes of 30 s must fail.
        refused_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
        /// Bytes per second of file I/O, over a minute, from which a workload loads or saves, and does not squat. 10
        /// MB/s is a twelfth of a network of 1 Gbit/s, the slowest at which weights are sensibly loaded: whoever shares
        /// it with others still saves; logs and progress files are less.
        io_bytes: f64 = 10e6, 0.0..=1e12;
        /// CPUs that the workload keeps busy for each of its GPUs, over a minute, from which it is in a phase without GPU:
        /// that may last as long as a person's pause (interactive_ns). A rank that hangs or polls spins on one or two.
        phase_cpus: f64 = 4.0, 0.0..=4096.0;
        /// Bytes per second on PCIe and NVLink up to which a GPU is cut off. NVML's own polling moves .6 to 1.0 MB/s on
        /// an H200, batch-1 decode 25.
        quiet_link_bytes: f64 = 4e6, 0.0..=1e12;
        /// Utilization from which a GPU may spin, in millionths. The kernel of a hung collective is always resident:
        /// 100 %, less what the sampling loses.
        spin_util: Part = Part(950_000), Part(0)..=Part::ONE;
        /// SM activity up to which full utilization is a spin, in millionths: one block is .008 on an H200, batch-1
        /// decode .80.
        spin_sm: Part = Part(100_000), Part(0)..=Part::ONE;
        /// DRAM and tensor activity up to which it is one, in millionths. A spin reads one flag from the cache; work
        /// reads its weights from memory.
        spin_dram: Part = Part(20_000), Part(0)..=Part::ONE;
        /// Without GPM: power, as a part of the span from bare idle to the limit, up to which it is one, in millionths.
        /// Public hangs draw .14 to .24 of the limit, busy GPUs .65 and more.
        spin_power: Part = Part(350_000), Part(0)..=Part::ONE;
        /// A GPU must spin for so long: shorter waits at a barrier are ordinary (another rank's checkpoint or evaluation).
        spin_for_ns: Nanos = Nanos::from_secs(300), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The GPU is held and does nothing: by the dead, by a hang, or by somebody who has no use for it.",
    inputs: "Memory in use, utilization, GPM or power, bytes on PCIe and NVLink; the holders' process states, parents, \
             cgroups, listeners and files; the engine's page.",
    formula: "crashed_holder and orphan: a dead or left holder for dead_ns. hung_spin: full utilization without work for \
              spin_for_ns with all ranks local. seed_signature: mem held and at most util done for for_ns, with less than \
              io_bytes of file I/O and quiet_link_bytes over PCIe and NVLink. Ends with the first sign of life.",
    silent: "An engine that answers its page (idle_reserve, information only), loading, sleep mode, a record that says \
             standby (rules.allocations), a stopped or debugged process, a person's session or a phase on phase_cpus for \
             interactive_ns, a GPU that waits for a peer elsewhere (peer_wait). A hang that engine_stall tells is no \
             finding of its own.",
    advice: "Ask the holder named in the evidence, then end it; the finding says whether it is dead.",
    blind: "Holders in another pid namespace; servers without a known page; spins on MIG instances.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if unit.rest {
        return Outcome::Absent;
    }
    let Some(gpu) = unit.gpu else {
        return Outcome::Suspended("the driver does not answer: nobody can tell what the GPU does".into());
    };
    if gpu.health.get().is_some_and(|health| *health != GpuHealth::Ok) {
        return Outcome::Suspended("the GPU is faulted".into());
    }
    let block = &unit.usage.block;
    if block.util.is_none() && block.silicon().is_none() {
        return if unit.mig {
            Outcome::Unsupported("nothing measures the activity of a MIG instance before Hopper".into())
        } else {
            Outcome::Suspended("neither utilization nor activity is read".into())
        };
    }
    if unit.holders.is_empty() && !unit.holders.hidden {
        return Outcome::Absent;
    }
    if let Some(claim) = reserve(view) {
        return Outcome::Claim(claim);
    }
    if unit.holders.hidden {
        return Outcome::Suspended(
            "its processes cannot be looked at: run in the host's pid namespace, as root".into(),
        );
    }
    for variant in [dead, wedged, spin, seed] {
        match variant(view) {
            Outcome::Silent => {}
            spoken => return spoken,
        }
    }
    Outcome::Silent
}

/// An engine answers: whatever it does not do, it is there to do it.
fn reserve(view: &View<'_>) -> Option<Claim> {
    let unit = view.unit;
    let alive = view.policy.asks(Gate::Liveness);
    let engine = unit.engine.filter(|engine| alive && engine.page.get().is_some())?;
    if matches!(unit.demand, Demand::Present { .. }) {
        return None;
    }
    let since = unit.usage.still.lasts(view.host.now, view.policy.squatter.for_ns)?;
    let idle = view.host.now.saturating_sub(since);
    let mut claim = words::claim(view, "idle_reserve", Severity::Info, since);
    claim.cause = None;
    claim.confidence = Part::ONE;
    claim.summary =
        format!("{}: a reserve: its engine answers and has had nothing to do for {}", unit.name, minutes(idle));
    claim.rejected.push(words::not_squatting(format!("{} answers: an engine that answers is a reserve", engine.url)));
    claim.advice = "nothing, if this reserve is wanted; else scale the deployment down".into();
    Some(claim)
}

/// Its holders have ended, or the job that they belong to, and the memory is still taken.
fn dead(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    let (Some(since), Some(end)) =
        (unit.usage.ended.lasts(view.host.now, view.policy.squatter.dead_ns), unit.usage.end)
    else {
        return Outcome::Silent;
    };
    let Some(still) = unit.usage.still.lasts(view.host.now, view.policy.squatter.dead_ns) else {
        return Outcome::Silent;
    };
    if let Some(why) = works_elsewhere(view, view.policy.squatter.dead_ns) {
        return Outcome::Suspended(why.into());
    }
    if end == End::EngineGone && unit.usage.refused.lasts(view.host.now, view.policy.squatter.refused_ns).is_none() {
        return Outcome::Silent;
    }
    // A process that its parent left may work on: then its CPUs do.
    if end == End::Reparented && unit.standby {
        return Outcome::Suspended(STANDBY.into());
    }
    if end == End::Reparented && (unit.usage.block.cpus.is_none_or(|cpus| cpus >= 0.02) || unit.listens.is_some()) {
        return Outcome::Silent;
    }
    if let Some(why) = stopped(view, view.policy.squatter.dead_ns) {
        return Outcome::Suspended(why.into());
    }
    let (variant, severity, confidence, says) = match end {
        End::Dead => ("crashed_holder", Severity::Critical, DEAD, "whose process is dead"),
        End::CgroupGone => ("orphan", Severity::Critical, DEAD, "whose job is over: its cgroup was removed"),
        End::JobOver => ("orphan", Severity::Critical, DEAD, "whose job is over, says its scheduler"),
        End::EngineGone => ("crashed_holder", Severity::Warn, LEFT, "whose engine answers no more"),
        End::Reparented => ("orphan", Severity::Warn, LEFT, "whose parent process died"),
    };
    let mut claim = words::claim(view, variant, severity, since.max(still));
    claim.confidence = Part::from_fraction(confidence);
    claim.summary = format!("{}: {} held by a process {says}", unit.name, words::memory(unit));
    claim.advice = if end == End::Dead {
        "nothing can be sent to a dead process: end its parent, so that it is reaped; if the memory stays taken, drain the node and reset the GPU".into()
    } else {
        format!("{}; then see that its memory is free again", words::end_it(unit))
    };
    Outcome::Claim(claim)
}

/// A holder hangs in the driver: it cannot be ended, and the GPU does nothing.
fn wedged(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    let now = view.host.now;
    let held = unit.usage.block.memory.is_some_and(|memory| memory >= view.policy.squatter.dead_mem.as_fraction());
    let (Some(since), Some(still), true) = (
        unit.usage.wedged.lasts(now, view.policy.squatter.dead_ns),
        unit.usage.still.lasts(now, view.policy.squatter.dead_ns),
        held,
    ) else {
        return Outcome::Silent;
    };
    let mut claim = words::claim(view, "crashed_holder", Severity::Critical, since.max(still));
    claim.cause = Some(Cause::Stall);
    claim.confidence = Part::from_fraction(WEDGED);
    claim.summary = format!(
        "{}: {} held by a process that hangs in the GPU driver for {}",
        unit.name,
        words::memory(unit),
        minutes(now.saturating_sub(since))
    );
    claim.advice = "it cannot be killed while it hangs there: look for Xids in the kernel log, drain the node, reset the GPU or reboot".into();
    Outcome::Claim(claim)
}

/// Full utilization and an empty silicon, for minutes, on all GPUs of the workload.
fn spin(view: &View<'_>) -> Outcome {
    let (unit, now) = (view.unit, view.host.now);
    let Some(since) = unit.usage.spins.lasts(now, view.policy.squatter.spin_for_ns) else {
        return Outcome::Silent;
    };
    // A multi-GPU engine without requests may poll; it answers, so it is there.
    if unit.demand == Demand::Met {
        return Outcome::Silent;
    }
    if let Some(why) = stopped(view, view.policy.squatter.spin_for_ns) {
        return Outcome::Suspended(why.into());
    }
    let elsewhere = unit.elsewhere.clone().or_else(|| unit.kin.iter().find_map(|kin| kin.elsewhere.clone()));
    // A rank that worked until just now is the one that the others wait for.
    let for_long = |since: Nanos| now.saturating_sub(since) >= view.policy.squatter.spin_for_ns;
    let laggard = unit.kin.iter().find(|kin| !kin.spins.is_some_and(for_long));
    let length = minutes(now.saturating_sub(since));
    let spins = format!("{}: kernels have been resident for {length} and do nothing", unit.name);
    let gpm = unit.usage.block.sm.is_some();
    if let Some(wait) = laggard
        .map(|kin| format!("it waits for {} of the same workload ({} utilization)", kin.name, percent(kin.util)))
        .or_else(|| elsewhere.map(|why| format!("{why}: the rank that it waits for may be on another node")))
    {
        let mut claim = words::claim(view, "peer_wait", Severity::Info, since);
        claim.cause = Some(Cause::Peer);
        claim.confidence = Part::from_fraction(0.5);
        claim.summary = format!("{spins}; {wait}");
        claim.rejected.push(words::not_squatting("a GPU that waits for a peer is a victim".into()));
        claim.advice = "look at the other ranks of the job: the one that does not spin is the one to look at".into();
        claim.holders.clear();
        return Outcome::Claim(claim);
    }
    let mut claim = words::claim(view, "hung_spin", Severity::Critical, since);
    claim.cause = Some(Cause::Stall);
    claim.confidence = Part::from_fraction(if gpm { SPIN_GPM } else { SPIN_POWER });
    claim.summary = format!(
        "{spins}: {} utilization at {} of the power limit{}",
        percent(unit.usage.block.util),
        percent(unit.usage.block.power),
        if unit.kin.is_empty() {
            String::new()
        } else {
            format!(", like all {} GPUs of its workload", unit.kin.len() + 1)
        }
    );
    claim.rejected.push(Rejected {
        cause: Cause::Peer,
        of: String::new(),
        why: "no process of it has an RDMA device open or a connection with another host".into(),
    });
    claim.advice = format!(
        "take its stacks first (`py-spy dump --pid PID`), then {}; a watchdog of the framework (NCCL timeout) would have ended it",
        words::end_it(unit)
    );
    Outcome::Claim(claim)
}

/// Memory held, nothing done, for long.
fn seed(view: &View<'_>) -> Outcome {
    let (unit, now, policy) = (view.unit, view.host.now, view.policy);
    let memory = unit.usage.block.memory;
    // To stay takes less than to enter: allocators give back a little.
    let least = policy.squatter.mem.as_fraction() - if view.active { 0.05 } else { 0.0 };
    let Some(since) = unit.usage.still.lasts(now, policy.squatter.for_ns) else {
        return Outcome::Silent;
    };
    if memory.is_none_or(|memory| memory < least) {
        return Outcome::Silent;
    }
    let excuse = stopped(view, policy.squatter.for_ns).or_else(|| works_elsewhere(view, policy.squatter.for_ns));
    if let Some(why) = excuse {
        return Outcome::Suspended(why.into());
    }
    if unit.age.is_some_and(|age| age < policy.squatter.for_ns) {
        // A new holder begins anew.
        return Outcome::Silent;
    }
    if unit.usage.waits.since().is_some() || unit.usage.waits_remote.since().is_some() {
        return Outcome::Suspended("the workload waits for I/O: it is starved, not squatting".into());
    }
    if let Some(answered) = unit.usage.answered.filter(|_| policy.asks(Gate::Liveness))
        && now.saturating_sub(answered) < policy.squatter.for_ns
    {
        let ago = minutes(now.saturating_sub(answered));
        return Outcome::Suspended(
            format!("its engine answered {ago} ago: an engine that answers is a reserve").into(),
        );
    }
    if unit.standby {
        return Outcome::Suspended(STANDBY.into());
    }
    let engine = unit.engine.is_some();
    if engine && unit.usage.served.is_none() && unit.age.is_none_or(|age| age < policy.squatter.loading_cap_ns) {
        return Outcome::Suspended("its engine has not served yet and may be loading".into());
    }
    if let (false, Some(port)) = (engine, unit.listens) {
        return Outcome::Suspended(
            format!("it listens on port {port} and may be a server: give its metrics page with --engine URL").into(),
        );
    }
    if let Some(what) = unit.work.interactive.as_ref().filter(|_| policy.asks(Gate::Class))
        && unit.usage.still.lasts(now, policy.squatter.interactive_ns).is_none()
    {
        return Outcome::Suspended(
            format!("{what}: a person may pause, up to {}", minutes(policy.squatter.interactive_ns)).into(),
        );
    }
    let gpus = f64::from(u32::try_from(unit.kin.len() + 1).unwrap_or(u32::MAX));
    if let Some(cpus) = unit.usage.computes.filter(|cpus| cpus / gpus >= policy.squatter.phase_cpus)
        && unit.usage.still.lasts(now, policy.squatter.interactive_ns).is_none()
    {
        let cpus = words::rounded(cpus);
        let most = minutes(policy.squatter.interactive_ns);
        return Outcome::Suspended(format!("it keeps {cpus} CPUs busy: a phase without GPU, up to {most}").into());
    }
    let block = &unit.usage.block;
    let hot = unit.usage.hot.lasts(now, Nanos::from_secs(60)).is_some();
    // Power near the limit and no activity contradict each other. With GPM agreeing that nothing runs it is worth
    // a louder word; without it the utilization counter itself may be broken.
    let severity = if hot && block.silicon().is_some() { Severity::Critical } else { Severity::Warn };
    let cpu_busy = block.cpus.is_some_and(|cpus| cpus >= CPUS_BUSY);
    let mut claim = words::claim(view, "seed_signature", severity, since);
    claim.confidence = Part::from_fraction(if cpu_busy || hot { SEED_CPU_BUSY } else { SEED });
    claim.summary = format!(
        "{}: {} held and unused for {}: {}{}",
        unit.name,
        words::memory(unit),
        minutes(now.saturating_sub(since)),
        words::measured(block),
        if hot { "; its power is near the limit, which no idle GPU draws: a counter may be broken" } else { "" }
    );
    if cpu_busy {
        claim.evidence.push(Evidence::plain(
            "CPUs that the workload keeps busy",
            &unit.name,
            block.cpus.unwrap_or(0.0),
            "CPUs",
        ));
    }
    claim.rejected.push(words::not_reserve());
    claim.advice = format!("ask the owner, or {}", words::end_it(unit));
    Outcome::Claim(claim)
}

/// Another GPU of the same workload was at work within this time.
fn works_elsewhere(view: &View<'_>, time: Nanos) -> Option<String> {
    let rests = |since: Option<Nanos>| since.is_some_and(|since| view.host.now.saturating_sub(since) >= time);
    let at_work = view.unit.kin.iter().find(|kin| !rests(kin.still) && kin.spins.is_none());
    at_work.map(|kin| format!("{} of the same workload is or was at work", kin.name))
}

/// A process that was stopped on purpose is not its own master: its time begins when it goes on.
fn stopped(view: &View<'_>, time: Nanos) -> Option<String> {
    let at = view.unit.usage.stopped?;
    (view.host.now.saturating_sub(at) < time).then(|| "a holder is or was stopped, by a debugger or a scheduler".into())
}
