//! The workload waits for CPU time: a quota, the hypervisor, interrupts, others, or its own work.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::around::{self, Raised, percent, raised};
use super::{Outcome, Text, View};
use crate::attribution::{Candidate, Link, Saturation};
use crate::policy::table::thresholds;
use crate::signals::host::Workload;
use crate::{Cause, Evidence, Part, Rejected};

thresholds! {
    /// Thresholds of `cpu_starved_loader`.
    pub struct Thresholds {
        /// Share of time in which a thread of the workload waits for a CPU from which it is held up, in millionths.
        /// Pressure of .15 says that for so much of the time at least one thread stood ready without a CPU (kernel,
        /// accounting/psi): who loses the deficit that warns to such waits waits at least as long. What prefetch hides
        /// costs nothing, and nobody asks.
        wait_some: Part = Part(150_000), Part(0)..=Part(1_000_001);
        /// Share of quota periods in which its cgroup is held from which the quota is the cause, in millionths: one in
        /// ten already stretches the longest step of a batch.
        throttled: Part = Part(100_000), Part(0)..=Part(1_000_001);
        /// Share of all CPU time that the hypervisor takes from which it is the cause, in millionths. The kernel's
        /// steal counter is time that the guest wanted and did not get: a tenth is what a quota takes (throttled).
        steal: Part = Part(100_000), Part(0)..=Part(1_000_001);
        /// Share of all CPU time spent in interrupts from which they are the cause, in millionths. A choice: as much
        /// as a quota takes (throttled).
        interrupts: Part = Part(100_000), Part(0)..=Part(1_000_001);
        /// Share of the node's busy CPUs that the workload itself uses from which it is its own work, in millionths.
        /// Half: above it nobody else can use more than the workload does.
        own_share: Part = Part(500_000), Part(0)..=Part::ONE;
    }
}

pub(super) const TEXT: Text = Text {
    means: "The GPU waits for CPU time: data loaders, tokenizers or the engine's own threads get less than they need.",
    inputs: "PSI cpu of the workload's cgroup, its quota periods (cpu.stat), its CPU time, the node's CPU time with steal and \
             interrupts (/proc/stat); the engine's progress, or the GPU's activity.",
    formula: "The victim makes less progress than its own normal (or its GPU has little to do), and one of these is high, out of \
              its own normal, and did not begin after the victim's trouble: periods held (throttled: cfs_quota), stolen time \
              (steal), interrupts (irq), or threads that wait (wait_some: decode if the workload uses own_share of the busy CPUs \
              itself, else contended), for starved_for_ns. Ends after starved_clear_ns.",
    silent: "Waits that are as they always were, waits that harm nobody, waits that began after the slowdown, a workload that \
             waits for I/O.",
    advice: "Raise the quota or the number of CPUs, move the neighbour, decode less on the host, move interrupts to other CPUs.",
    blind: "A single busy thread (an interpreter lock) does not wait for a CPU; without PSI only quotas, steal and interrupts \
            can be told.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let nothing = waits(view).is_none_or(|waits| waits.cpu_wait.latest().is_none())
        && own(view).is_none_or(|own| own.throttled.latest().is_none());
    if view.unit.work.family.is_empty() {
        return Outcome::Absent;
    }
    if nothing && view.host.around.cpu.is_none() {
        return Outcome::Unsupported("neither CPU pressure (psi=1), nor quota periods, nor CPU time is read".into());
    }
    if view.unit.gpu.is_none() && view.unit.engine.is_none() {
        return Outcome::Suspended("neither the GPU nor an engine speaks for it".into());
    }
    if view.unit.host.loads.current.is_some() {
        return Outcome::Suspended("it is loading".into());
    }
    let waits_for_io =
        view.unit.usage.block.io_some.is_some_and(|some| some >= view.policy.io_stall.wait_some.as_fraction());
    if waits_for_io && !view.active {
        return Outcome::Silent;
    }
    let Some((variant, candidate)) = candidate(view) else { return Outcome::Silent };
    match around::blame(view, Some(variant), candidate) {
        Ok(mut claim) => {
            claim.rejected.extend(unread(view));
            Outcome::Claim(claim)
        }
        Err(_) => Outcome::Silent,
    }
}

/// What holds the CPU back: the first that is out of its own normal, from the most exact to the least.
pub(crate) fn candidate(view: &View<'_>) -> Option<(&'static str, Candidate)> {
    let thresholds = &view.policy.cpu_starved_loader;
    let signals = &view.host.signals.host;
    let cpu = &signals.cpu;
    let path = view.unit.work.ties.cgroup.as_deref();
    let (own, waits) = (own(view), waits(view));
    let path = path.unwrap_or("/");
    let waited = waits.and_then(|waits| waits.cpu_wait.latest());
    let make =
        |variant: &'static str, raised: Raised, (what, of): (&'static str, &str), says: String, pressure: f64| {
            let mut evidence = alloc::vec![raised.evidence(what, of, 100.0, "%")];
            evidence
                .extend(waited.map(|some| Evidence::plain("some thread waited for a CPU", path, some * 100.0, "%")));
            evidence.extend(
                cpu.busy.latest().map(|busy| Evidence::plain("of all CPU time is used", "node", busy * 100.0, "%")),
            );
            let object = match variant {
                "steal" => "cpu:hypervisor".into(),
                "irq" => "cpu:interrupts".into(),
                _ => format!("cpu:{path}"),
            };
            let high = u8::from(waited.is_some_and(|some| some >= thresholds.wait_some.as_fraction()));
            (
                variant,
                Candidate {
                    cause: Cause::HostCpu,
                    object,
                    onset: raised.onset,
                    pressure: Part::from_fraction(pressure),
                    saturation: Saturation::of(1 + high),
                    link: if matches!(variant, "steal" | "irq") { Link::Unknown } else { Link::Proven },
                    series: raised.series,
                    switch: raised.switch,
                    uses: |unit, object| {
                        let nodes = matches!(object, "cpu:hypervisor" | "cpu:interrupts");
                        nodes || object.strip_prefix("cpu:") == unit.work.ties.cgroup.as_deref()
                    },
                    evidence,
                    says,
                    advice: advice(variant, path),
                },
            )
        };
    if let Some(own) = own
        && let Ok(held) = raised(view, &own.throttled, thresholds.throttled.as_fraction())
    {
        let says = format!("the CPU quota of {path} holds it in {} of all periods", percent(held.value));
        let pressure = held.value.max(waited.unwrap_or(0.0));
        return Some(make("cfs_quota", held, ("of the quota's periods it was held", path), says, pressure));
    }
    if let Ok(steal) = raised(view, &cpu.steal, thresholds.steal.as_fraction()) {
        let says = format!("the hypervisor takes {} of all CPU time", percent(steal.value));
        // Whoever runs is stopped for this part of its own time.
        let pressure = steal.value / (steal.value + cpu.busy.latest().unwrap_or(0.0)).max(steal.value);
        return Some(make("steal", steal, ("of all CPU time was stolen", "node"), says, pressure));
    }
    let needed = thresholds.wait_some.as_fraction() / if view.active { 2.0 } else { 1.0 };
    if waited.is_none_or(|some| some >= needed)
        && let Ok(irq) = raised(view, &cpu.interrupts, thresholds.interrupts.as_fraction())
    {
        let says = format!("interrupts take {} of all CPU time", percent(irq.value));
        let pressure = waited.unwrap_or(irq.value);
        return Some(make("irq", irq, ("of all CPU time went to interrupts", "node"), says, pressure));
    }
    let wait = raised(view, &waits?.cpu_wait, thresholds.wait_some.as_fraction()).ok()?;
    let share = own_share(view);
    let others = share.is_some_and(|share| share < thresholds.own_share.as_fraction());
    let (variant, says) = if others {
        ("contended", "others use the CPUs that the workload's threads wait for")
    } else {
        ("decode", "the workload's own threads have more to do than CPUs to do it on")
    };
    let says = format!("{says}: some thread waits {} of the time", percent(wait.value));
    let pressure = wait.value;
    let (variant, mut candidate) = make(variant, wait, ("some thread waited for a CPU", path), says, pressure);
    candidate
        .evidence
        .extend(share.map(|share| Evidence::plain("of the busy CPUs are its own", path, share * 100.0, "%")));
    Some((variant, candidate))
}

fn own<'a>(view: &View<'a>) -> Option<&'a Workload> {
    view.host.signals.host.workloads.get(view.unit.work.ties.cgroup.as_deref()?).map(|own| &**own)
}

/// Whose CPU pressure is looked at: its own, or, in the old hierarchy, the node's.
fn waits<'a>(view: &View<'a>) -> Option<&'a Workload> {
    let node = || view.host.signals.host.workloads.get("").map(|node| &**node);
    own(view).filter(|own| own.cpu_wait.latest().is_some()).or_else(node)
}

/// The workload's part of the CPUs that are busy.
fn own_share(view: &View<'_>) -> Option<f64> {
    let online = f64::from(view.host.around.cpu?.online.copied()?);
    let busy = view.host.signals.host.cpu.busy.latest()? * online;
    (busy > 0.0).then_some(own(view)?.cpus.latest()? / busy)
}

/// Subtypes that this node cannot tell.
fn unread(view: &View<'_>) -> Vec<Rejected> {
    let no = |of: &str, why: &str| Rejected { cause: Cause::HostCpu, of: of.into(), why: why.into() };
    match view.host.around.cpu {
        None => alloc::vec![no("steal", "CPU time is not read"), no("interrupts", "CPU time is not read")],
        Some(cpu) if cpu.steal.get().is_none() => alloc::vec![no("steal", "this kernel does not count it")],
        Some(_) => Vec::new(),
    }
}

fn advice(variant: &str, path: &str) -> String {
    match variant {
        "cfs_quota" => format!(
            "raise or drop the limit (cpu.max of {path}; resources.limits.cpu, --cpus-per-task), or start fewer loader threads than it allows CPUs"
        ),
        "steal" => "the host of this virtual machine is overcommitted: ask for dedicated CPUs, or move the machine".into(),
        "irq" => "find the source in /proc/interrupts and /proc/softirqs, spread or move it (irqbalance, smp_affinity), coalesce interrupts".into(),
        "contended" => format!("find who else runs (`systemd-cgtop`, `top`), and reserve CPUs for {path} (cpuset, cpu.weight)"),
        _ => format!(
            "give {path} more CPUs, decode ahead of time or on the GPU (DALI, nvJPEG), or use a cheaper format"
        ),
    }
}
