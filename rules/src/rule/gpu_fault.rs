//! The GPU is broken: the driver, the kernel log or the memory says so. Whoever waits for it is its victim.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::GpuHealth;
use gpuprod_snapshot::units::{Nanos, to_f64};

use super::{Claim, Outcome, Text, View};
use crate::facts::Demand;
use crate::policy::table::thresholds;
use crate::signals::device::{Errors, Line, meaning};
use crate::{Cause, Evidence, Fault, Part, Severity, WeightSource};

pub(super) const TEXT: Text = Text {
    means: "The GPU is broken, or asks for a reset. Its time is lost, and so is that of the GPUs that wait for it.",
    inputs: "Xid lines of the kernel log; NVML's health of the GPU, uncorrected memory errors, row remapping, the recovery \
             action that the driver asks for; which GPUs work for the same processes.",
    formula: "Critical at once: a fatal Xid (48, 62, 64, 74, 79, 95, 119, 120, 140, 143), a GPU that is lost or asks for a \
              reset or reboot, uncorrected memory errors that were not contained, a row remap that failed; and, as victims of \
              the same finding, the other GPUs of its workload from a deficit of peer_deficit. A warning for told_for_ns: \
              other Xids after which the catalogue asks for a reset or a look; as long as it lasts: a row remap that waits \
              for a reset, a recovery action other than none. It ends when the GPU has answered in health for fault_hold_ns.",
    silent: "An application's own fault (Xid 13, 31, 32, 43, 45), contained memory errors (94) and what the driver merely notes \
             (63, 92, 154): information for told_for_ns. An old line that the agent finds at its start on a GPU that is well. A \
             driver that does not answer and has printed nothing is no broken GPU.",
    advice: "Drain the node; reset the GPU or reboot, as the finding says; if it comes back, replace the board.",
    blind: "NVLink's CRC and replay counters are not read: a bad link shows as Xid 74 or 144 to 150. Without the kernel log \
            (root or CAP_SYSLOG) only what NVML says counts.",
};

thresholds! {
    /// Thresholds of `gpu_fault`.
    pub struct Thresholds {
        /// Productivity deficit, in millionths, from which a GPU of the same workload as a broken one is its victim: as
        /// for any starvation that warns.
        peer_deficit: Part = Part(150_000), Part(0)..=Part::ONE;
        /// An Xid that breaks nothing is shown for so long after its last line. Two scrapes of the usual 30 s must see
        /// it.
        told_for_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(86_400);
    }
}

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let device = &view.unit.device;
    let Some(signals) = device.signals else {
        return Outcome::Unsupported("the GPU was never read".into());
    };
    let errors = &signals.errors;
    if let Some(fault) = device.fault {
        return Outcome::Claim(broken(view, errors, fault));
    }
    if let Some(peer) = &device.broken_peer
        && let Some(claim) = waits(view, peer)
    {
        return Outcome::Claim(claim);
    }
    if let Some(claim) = warning(view, errors).or_else(|| errors.told.as_ref().map(|line| told(view, line))) {
        return Outcome::Claim(claim);
    }
    if view.unit.gpu.is_none() {
        return Outcome::Suspended("the driver does not answer, and the kernel log says nothing".into());
    }
    Outcome::Silent
}

fn claim(view: &View<'_>, variant: &str, severity: Severity, summary: String) -> Claim {
    Claim {
        variant: Some(variant.into()),
        severity,
        cause: None,
        object: view.unit.name.clone(),
        deficit: Part(0),
        onset: view.host.now,
        pressure: Part(0),
        confidence: Part::ONE,
        summary,
        evidence: evidence(view),
        rejected: Vec::new(),
        advice: String::new(),
        holders: Vec::new(),
    }
}

fn broken(view: &View<'_>, errors: &Errors, fault: Fault) -> Claim {
    let name = &view.unit.name;
    let lost = view.unit.gpu.is_none_or(|gpu| gpu.health.get() == Some(&GpuHealth::Lost));
    let (summary, advice) = match (fault, &errors.fatal) {
        (_, Some(line)) => {
            let (_, _, remedy) = meaning(line.code);
            let gone = if lost && line.code != 79 { "; the driver cannot reach it" } else { "" };
            (format!("{}{gone}", words(name, line)), remedy.to_string())
        }
        (Fault::Lost, _) => {
            (format!("{name}: fallen off the bus: the driver lists it no more"), meaning(79).2.to_string())
        }
        (Fault::Ecc, _) => {
            let new = errors.uncorrected.map_or(0, |(new, _)| new);
            (format!("{name}: {new} uncorrected memory errors that nothing contained"), meaning(48).2.to_string())
        }
        (Fault::Remap, _) => {
            (format!("{name}: a row remap failed: its memory has no spare rows left"), meaning(64).2.into())
        }
        (Fault::Reset | Fault::Xid, _) => {
            let action = asks(errors.action().unwrap_or(1));
            (format!("{name}: the driver asks for {action}"), format!("drain the node; then {action}"))
        }
    };
    let onset = errors.fatal.as_ref().map(|line| line.at).or(errors.uncorrected.map(|(_, at)| at));
    Claim {
        cause: Some(Cause::Fault),
        deficit: Part::ONE,
        pressure: Part::ONE,
        onset: onset.unwrap_or(view.host.now),
        advice,
        holders: view.unit.holders.shown(),
        ..claim(view, fault.as_str(), Severity::Critical, summary)
    }
}

/// A GPU of the same workload: it can do nothing without the broken one.
fn waits(view: &View<'_>, peer: &str) -> Option<Claim> {
    let unit = view.unit;
    let idle = unit.demand == Demand::Met || unit.weight.source == WeightSource::None;
    if idle || unit.weight.w.rest() < view.policy.gpu_fault.peer_deficit {
        return None;
    }
    let summary = format!("{} waits for {peer}, which is broken", unit.name);
    Some(Claim {
        cause: Some(Cause::Peer),
        object: peer.into(),
        deficit: unit.weight.w.rest(),
        pressure: Part::ONE,
        confidence: unit.weight.source.confidence(),
        advice: "end or move the job: it cannot go on without the broken GPU".into(),
        ..claim(view, "peer", Severity::Warn, summary)
    })
}

fn warning(view: &View<'_>, errors: &Errors) -> Option<Claim> {
    let name = &view.unit.name;
    let warn = |variant: &str, summary: String, advice: &str| Claim {
        advice: advice.into(),
        ..claim(view, variant, Severity::Warn, summary)
    };
    if let Some(line) = &errors.serious {
        return Some(Claim { onset: line.at, ..warn("xid", words(name, line), meaning(line.code).2) });
    }
    if view.unit.gpu.and_then(|gpu| gpu.ecc.remap_pending.copied()) == Some(true) {
        let summary = format!("{name}: a row remap waits for a reset");
        return Some(warn(
            "remap_pending",
            summary,
            "reset the GPU when the node is next free: until then it works on",
        ));
    }
    let action = errors.action().map(asks)?;
    let advice = format!("{action}, when the jobs on it are done");
    Some(warn("recovery_action", format!("{name}: the driver asks for {action}"), &advice))
}

fn told(view: &View<'_>, line: &Line) -> Claim {
    Claim {
        onset: line.at,
        advice: meaning(line.code).2.into(),
        ..claim(view, "xid", Severity::Info, words(&view.unit.name, line))
    }
}

/// `GPU-3: Xid 79, fallen off the bus (process 4711 python)`.
fn words(name: &str, line: &Line) -> String {
    let (_, meaning, _) = meaning(line.code);
    let process = match (line.pid, line.name.as_deref()) {
        (Some(pid), Some(name)) => format!(" (the line names process {pid}, {name})"),
        (Some(pid), None) => format!(" (the line names process {pid})"),
        _ => String::new(),
    };
    format!("{name}: Xid {}, {meaning}{process}", line.code)
}

/// The driver's recovery action (NVML field 230) in words.
fn asks(action: u32) -> &'static str {
    match action {
        1 => "a reset of the GPU",
        2 => "a reboot of the node",
        3 => "draining its peer-to-peer traffic",
        4 => "draining and a reset of the GPU",
        5 => "recovery of the NVLink domain (IMEX)",
        _ => "an action that this version does not know",
    }
}

fn evidence(view: &View<'_>) -> Vec<Evidence> {
    let unit = view.unit;
    let mut evidence = Vec::new();
    let mut push = |what: String, value: f64, of: &'static str| {
        evidence.push(Evidence::plain(what, &unit.name, value, of));
    };
    if let Some(signals) = unit.device.signals {
        let errors = &signals.errors;
        for line in [&errors.fatal, &errors.serious, &errors.told].into_iter().flatten() {
            push(format!("lines of Xid {} and what followed", line.code), f64::from(line.count), "lines");
        }
        if let Some((new, _)) = errors.uncorrected {
            push("new uncorrected memory errors".into(), to_f64(new), "errors");
        }
        let [app, noted, serious, fatal] = errors.lines;
        if fatal + serious > 0 {
            push("fatal lines since the agent began to learn".into(), f64::from(fatal), "lines");
            push("lines that ask for a look since then".into(), f64::from(serious), "lines");
            push("harmless lines since then".into(), f64::from(app.saturating_add(noted)), "lines");
        }
    }
    if unit.device.fault.is_none() && unit.device.broken_peer.is_some() {
        push("progress".into(), unit.weight.w.as_fraction() * 100.0, "% of its normal");
    }
    if let Some(gpu) = unit.gpu {
        if let Some(action) = gpu.ecc.recovery_action.copied() {
            push("recovery action that the driver asks for (0: none)".into(), f64::from(action), "code");
        }
        if let Some(uncorrected) = gpu.ecc.uncorrected.copied().filter(|errors| *errors > 0) {
            push("uncorrected memory errors since the driver was loaded".into(), to_f64(uncorrected), "errors");
        }
    }
    evidence
}
