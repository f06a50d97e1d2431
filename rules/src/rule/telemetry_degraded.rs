//! What is read cannot be believed, or is not read at all: said as that, and never as a verdict on the GPU.

use alloc::format;
use alloc::string::String;

use gpuprod_snapshot::units::Nanos;

use super::{Claim, Outcome, Text, View};
use crate::facts::UnitFacts;
use crate::policy::table::thresholds;
use crate::signals::device::Lie;
use crate::{Evidence, Micro, Part, Severity};

pub(super) const TEXT: Text = Text {
    means: "Readings of the GPU or its engine cannot be believed, or do not come. It is said as that: no other verdict is \
            made from them.",
    inputs: "The driver's answers and how long it is silent; energy, power, temperature, clocks and PCIe bytes from reading to \
             reading; utilization against GPM, processes, memory and power; the engine's page.",
    formula: "probe_hung: an NVML call is out for hung_ns. driver_errors: the driver answers with errors for errors_ns. frozen: \
              energy stands still under power (without it: power, temperature, clock and bytes) for frozen_ns. \
              dead_utilization: utilization 0 while the silicon works, for frozen_ns; without GPM: while the page counts \
              tokens or steps and power is above works_power. ghost_utilization: utilization of 90 % \
              and more without process, memory and power, for ghost_ns. page_dead: the engine's page is silent for page_ns \
              while its GPU works. Warnings. Information: provenance_conflict, tokens or steps and GPM contradict each other by \
              more than four tenths for conflict_ns; coverage, the GPU was read in less than coverage of the last ten \
              minutes.",
    silent: "A GPU without GPM whose page counts nothing, or that draws no more than one at rest; an engine that restarts or loads; a page that is silent while the GPU does nothing (that is \
             the squatter's, or a reserve).",
    advice: "Hung or failing driver: the kernel log, then reset or reboot. Ghost: open and close a context on the GPU. Page: \
             look at the server's port and load.",
    blind: "Readings that are wrong and move: a sensor that is off by a constant. Clocks of other hosts.",
};

thresholds! {
    /// Thresholds of `telemetry_degraded`.
    pub struct Thresholds {
        /// An NVML call that is out for so long hangs: calls take milliseconds, a GSP timeout six seconds each.
        hung_ns: Nanos = Nanos::from_secs(10), Nanos(0)..=Nanos::from_secs(3_600);
        /// The driver must answer with errors for so long: a reload takes seconds.
        errors_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// Counters must stand still, or contradict each other, for so long: the energy counter moves ten times a second.
        frozen_ns: Nanos = Nanos::from_secs(30), Nanos::from_secs(5)..=Nanos::from_secs(3_600);
        /// Utilization without anybody must last so long: a process that ends leaves a window of a second.
        ghost_ns: Nanos = Nanos::from_secs(60), Nanos::from_secs(5)..=Nanos::from_secs(3_600);
        /// An engine's page must be silent for so long while the GPU works: a busy server answers late at times.
        page_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// Tokens or steps and GPM must contradict each other for so long; from then on steps are not believed.
        conflict_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
        /// Utilization or activity, in millionths, from which a GPU works though its engine's page is silent. A tenth
        /// is above what a context, a display or polling shows (to .05), and below any real work.
        works: Part = Part(100_000), Part(0)..=Part::ONE;
        /// Without GPM: power, as a part of the span from bare idle to the limit, from which a GPU works though its
        /// utilization reads 0. Public hangs draw .14 to .24 of the limit, busy GPUs .65 and more. Where it was seen
        /// with a context and nothing to do, it must also draw a tenth of the limit more than then.
        works_power: Part = Part(350_000), Part(0)..=Part::ONE;
        /// Share of the last ten minutes, in millionths, below which too little was read. Half a minute of ten: the
        /// agent's restart misses less.
        coverage: Part = Part(950_000), Part(0)..=Part::ONE;
    }
}

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (unit, now, thresholds) = (view.unit, view.host.now, &view.policy.telemetry_degraded);
    if unit.rest {
        return Outcome::Absent;
    }
    let Some(signals) = unit.device.signals else {
        return Outcome::Unsupported("the GPU was never read".into());
    };
    if let Some((since, call)) = view.host.signals.devices.silence(now) {
        let lasts = now.saturating_sub(since);
        let (variant, least, says) = match call {
            Some(call) => ("probe_hung", thresholds.hung_ns, format!("the driver does not come back from {call}")),
            None => ("driver_errors", thresholds.errors_ns, "the driver answers with errors".into()),
        };
        if lasts >= least {
            let summary = format!("{says}: nothing can be said of its GPUs");
            let advice =
                "look at the kernel log for Xids and at `gpuprod doctor`; reset the GPUs or reboot if it stays";
            let claim = claim(view, variant, "GPU driver", since, summary, advice);
            return Outcome::Claim(with(claim, "the driver has been silent", lasts.as_secs_f64(), "s"));
        }
    }
    if let Some((lie, since)) = unit.device.lie {
        return Outcome::Claim(lies(view, lie, since));
    }
    if let Some(claim) = page(view) {
        return Outcome::Claim(claim);
    }
    if let Some(since) = unit.device.conflict.filter(|since| now.saturating_sub(*since) >= thresholds.conflict_ns) {
        let counted = if unit.trainer.page.is_some() { "job's steps" } else { "engine's tokens" };
        let summary = format!("{}: its {counted} and its own activity contradict each other", unit.name);
        let advice = "tokens stand still and the silicon works: recomputed or thrown-away work, or a page that lies; the other way round: the driver's activity counters";
        let claim = claim(view, "provenance_conflict", &unit.name, since, summary, advice);
        return Outcome::Claim(Claim { severity: Severity::Info, ..claim });
    }
    let coverage = signals.trust.coverage();
    if let Some(coverage) = coverage.filter(|coverage| *coverage < thresholds.coverage.as_fraction()) {
        let percent = Micro::from_f64(libm::floor(coverage * 1000.0) / 10.0);
        let summary = format!("{}: read in {percent} % of the last ten minutes", unit.name);
        let advice = "the time that was not read is booked as unknown: see `gpuprod doctor` for the reason";
        let claim = claim(view, "coverage", &unit.name, now, summary, advice);
        let claim = Claim { severity: Severity::Info, ..claim };
        return Outcome::Claim(with(claim, "read, of the last ten minutes", coverage * 100.0, "%"));
    }
    Outcome::Silent
}

fn claim(view: &View<'_>, variant: &str, object: &str, since: Nanos, summary: String, advice: &str) -> Claim {
    let mut claim = Claim {
        variant: Some(variant.into()),
        severity: Severity::Warn,
        cause: None,
        object: object.into(),
        deficit: Part(0),
        onset: since,
        pressure: Part(0),
        confidence: Part::from_fraction(0.9),
        summary,
        evidence: alloc::vec::Vec::new(),
        rejected: alloc::vec::Vec::new(),
        advice: advice.into(),
        holders: alloc::vec::Vec::new(),
    };
    let block = &view.unit.usage.block;
    let gpu = view.unit.gpu;
    let util = gpu.and_then(|gpu| gpu.util.copied()).map(|util| util.as_fraction() * 100.0);
    let power = gpu.and_then(|gpu| gpu.power.copied()).map(|power| gpuprod_snapshot::units::to_f64(power.0) / 1e3);
    let silicon = block.silicon().map(|silicon| silicon * 100.0);
    for (what, value, unit) in [
        ("utilization as it is read", util, "%"),
        ("the busiest of SM, tensor and DRAM in the last block", silicon, "%"),
        ("power as it is read", power, "W"),
        ("work of the engine in the last block", block.work, "tok/s"),
        ("steps of the job in the last block", block.steps, "steps/s"),
    ] {
        if let Some(value) = value {
            claim.evidence.push(Evidence::plain(what, &view.unit.name, value, unit));
        }
    }
    claim
}

fn with(mut claim: Claim, what: &'static str, value: f64, unit: &'static str) -> Claim {
    let of = claim.object.clone();
    claim.evidence.insert(0, Evidence::plain(what, &of, value, unit));
    claim
}

fn lies(view: &View<'_>, lie: Lie, since: Nanos) -> Claim {
    let name = &view.unit.name;
    let (variant, summary, advice) = match lie {
        Lie::Frozen => (
            "frozen",
            format!("{name}: its counters stand still: none of its readings is believed"),
            "restart what serves them (the agent's NVML child, the driver); reset the GPU if they stay",
        ),
        Lie::DeadUtil => (
            "dead_utilization",
            format!("{name}: utilization reads 0 while {}: it is not idle", works(view.unit)),
            "utilization is not used for this GPU while it lasts; reload the driver when the node is next free",
        ),
        Lie::Ghost => (
            "ghost_utilization",
            format!("{name}: utilization reads full, and nobody is on it: no process, no memory, no power"),
            "open and close a context on the GPU (any small CUDA program): that has cleared it in public reports",
        ),
    };
    claim(view, variant, name, since, summary, advice)
}

/// The engine's page is silent while its GPU works.
fn page(view: &View<'_>) -> Option<Claim> {
    let unit = view.unit;
    let url = unit.usage.served.as_ref()?;
    let answered = unit.usage.answered?;
    let silent = view.host.now.saturating_sub(answered);
    let works = view.policy.telemetry_degraded.works.as_fraction();
    let busy = unit.usage.block.silicon().or(unit.usage.block.util).is_some_and(|busy| busy >= works);
    if !busy || silent < view.policy.telemetry_degraded.page_ns || unit.gpu.is_none() {
        return None;
    }
    let summary = format!("{}: the page of {url} is silent while the GPU works", unit.name);
    let advice = "look at the server's port, at its load, and at what stands between it and the agent: without the page progress is told by the GPU alone";
    let claim = claim(view, "page_dead", url, answered, summary, advice);
    Some(with(claim, "the page has been silent", silent.as_secs_f64(), "s"))
}

/// Who says that a GPU works whose utilization reads 0.
fn works(unit: &UnitFacts<'_>) -> &'static str {
    match (unit.usage.block.silicon(), unit.engine) {
        (Some(_), _) => "its silicon works",
        (None, Some(_)) => "its engine makes tokens under power",
        (None, None) => "its job makes steps under power",
    }
}
