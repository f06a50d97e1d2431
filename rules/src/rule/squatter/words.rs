//! How a claim about a holder is worded: the same evidence for all variants, and who it is.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::units::{Nanos, to_f64};

use crate::facts::{Kin, UnitFacts};
use crate::judgement::AHEAD;
use crate::rule::{Claim, View};
use crate::usage::Readings;
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity};

/// A claim with everything but its own words. The object is the first GPU of the workload among those that do
/// nothing: one job that holds eight GPUs is one page.
pub(super) fn claim(view: &View<'_>, variant: &str, severity: Severity, onset: Nanos) -> Claim {
    let unit = view.unit;
    let lead = alike(unit).map(|kin| &kin.name).chain([&unit.name]).min_by_key(|name| (name.len(), (*name).clone()));
    Claim {
        variant: Some(variant.into()),
        severity,
        cause: Some(Cause::Squat),
        object: lead.unwrap_or(&unit.name).clone(),
        deficit: Part::ONE,
        onset,
        pressure: Part::ONE,
        confidence: Part::ONE,
        summary: String::new(),
        evidence: evidence(view, onset),
        rejected: rejected(unit),
        advice: String::new(),
        holders: unit.holders.shown(),
    }
}

/// The other GPUs of the workload that do the same: who spins is told apart from who stands still.
fn alike<'a>(unit: &'a UnitFacts<'_>) -> impl Iterator<Item = &'a Kin> {
    let spins = unit.usage.spins.since().is_some();
    unit.kin.iter().filter(move |kin| if spins { kin.spins.is_some() } else { kin.still.is_some() })
}

fn evidence(view: &View<'_>, onset: Nanos) -> Vec<Evidence> {
    let unit = view.unit;
    let (name, block) = (unit.name.as_str(), &unit.usage.block);
    let mut evidence = Vec::new();
    let mut share = |what: &'static str, value: Option<f64>| {
        evidence.extend(value.map(|value| Evidence::plain(what, name, value * 100.0, "%")));
    };
    share("memory in use", block.memory);
    share("utilization", block.util);
    share("SM activity", block.sm);
    share("DRAM activity", block.dram);
    share("power, of its limit", block.power);
    if let Some(class) = power_class(unit) {
        evidence.push(Evidence::plain(
            format!("power above bare idle ({class}), of the span to the limit"),
            name,
            block.power_share().unwrap_or(0.0) * 100.0,
            "%",
        ));
    }
    evidence.extend(block.links.map(|rate| Evidence::plain("PCIe and NVLink traffic", name, rate / 1e6, "MB/s")));
    evidence.extend(block.cpus.map(|cpus| Evidence::plain("CPUs that the workload uses", name, cpus, "CPUs")));
    if let (Some(page), Some(since)) =
        (unit.trainer.page, unit.trainer.signals.and_then(|steps| steps.since(view.host.now)))
    {
        let usual = unit.trainer.signals.and_then(|steps| steps.step(view.policy));
        let usual = usual.map_or_else(String::new, |step| format!(" (usually one in {} s)", Micro::from_f64(step)));
        evidence.push(Evidence::plain(format!("since its job last made a step{usual}"), &page.url, since, "s"));
    }
    let since = view.host.now.saturating_sub(onset).as_secs_f64();
    evidence.push(Evidence::plain("since the GPU last did anything", name, since, "s"));
    if let Some(job) = &unit.job {
        if let Some(state) = &job.over {
            evidence.push(Evidence::plain(
                format!("its job ended as {state}, in the scheduler's words"),
                &job.id,
                1.0,
                "job",
            ));
        }
        if job.oom_kills > 0 {
            let kills = to_f64(job.oom_kills);
            evidence.push(Evidence::plain("kills for lack of memory in its cgroup", &job.id, kills, "kills"));
        }
        if let (Some(left), None) = (job.left, &job.over) {
            let left = left.as_secs_f64() / 3600.0;
            evidence.push(Evidence::plain("until its wall limit", &job.id, left, "h"));
            let gpus = u32::try_from(alike(unit).count() + 1).unwrap_or(u32::MAX);
            evidence.push(Evidence::plain(AHEAD, &job.id, left * f64::from(gpus), "GPU-h"));
        }
    }
    evidence
}

/// Power as a label: it tells a squatter from nothing.
fn power_class(unit: &UnitFacts<'_>) -> Option<&'static str> {
    let share = unit.usage.block.power_share()?;
    Some(match share {
        ..0.02 => "bare idle",
        ..0.35 => "context idle",
        ..0.6 => "elevated",
        _ => "near the limit",
    })
}

fn rejected(unit: &UnitFacts<'_>) -> Vec<Rejected> {
    let mut rejected = Vec::new();
    let mut no = |cause: Cause, why: String| rejected.push(Rejected { cause, of: String::new(), why });
    let block = &unit.usage.block;
    if let Some(io) = block.io {
        no(
            Cause::Storage,
            format!("the workload reads and writes {} MB/s: it neither loads nor saves", Micro::from_f64(io / 1e6)),
        );
    }
    if let Some(reasons) = unit.gpu.and_then(|gpu| gpu.clock_reasons.copied())
        && !unit.throttled
    {
        no(Cause::Throttle, format!("no thermal or brake clock event (reasons {reasons:#x})"));
    }
    rejected
}

pub(super) fn not_squatting(why: String) -> Rejected {
    Rejected { cause: Cause::Squat, of: String::new(), why }
}

pub(super) fn not_reserve() -> Rejected {
    Rejected {
        cause: Cause::Upstream,
        of: String::new(),
        why: "no engine answers for it, so it is no reserve".to_string(),
    }
}

/// `70.6 GB (50 %)`.
pub(super) fn memory(unit: &UnitFacts<'_>) -> String {
    let whole = unit.gpu.and_then(|gpu| gpu.mem_used.copied()).filter(|_| !unit.mig);
    let share = percent(unit.usage.block.memory);
    match whole {
        Some(bytes) => format!("{} GB ({share})", Micro::from_f64(to_f64(bytes.0) / 1e9)),
        None => format!("{share} of its memory"),
    }
}

/// What ends the holder: the job where one is known, else the process.
pub(super) fn end_it(unit: &UnitFacts<'_>) -> String {
    let owner = unit.work.owner.as_deref().unwrap_or("");
    if let Some(job) = owner.strip_prefix("Slurm job ") {
        format!("end Slurm job {job} (`scancel {job}`)")
    } else if owner.is_empty() {
        "end the process that holds it (`gpuprod check` on the node names it)".into()
    } else {
        format!("end its owner, {owner} (`gpuprod check` on the node names the process)")
    }
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "unknown".into(), |share| format!("{} %", Micro::from_f64(share * 100.0)))
}

/// What was measured of a GPU that does nothing, and of its workload.
pub(super) fn measured(block: &Readings) -> String {
    let shown = [
        (block.util.or(block.silicon()).map(|share| share * 100.0), "% utilization"),
        (block.links.map(|rate| rate / 1e6), "MB/s on its links"),
        (block.io.map(|rate| rate / 1e6), "MB/s of files"),
        (block.cpus, "CPUs busy"),
    ];
    let shown = shown.into_iter().filter_map(|(value, what)| Some(format!("{} {what}", rounded(value?))));
    shown.collect::<Vec<_>>().join(", ")
}

pub(super) fn rounded(value: f64) -> Micro {
    Micro::from_f64(libm::round(value * 10.0) / 10.0)
}

/// `12 min`, `90 s`.
pub(super) fn minutes(time: Nanos) -> String {
    let seconds = time.0 / 1_000_000_000;
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}
