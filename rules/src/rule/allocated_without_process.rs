//! Somebody has the GPU by the scheduler's word, and no process of theirs is on it.

use alloc::format;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::GpuHealth;
use gpuprod_snapshot::units::Nanos;

use super::{Claim, Outcome, Text, View};
use crate::policy::Allocation;
use crate::policy::table::thresholds;
use crate::{Class, Evidence, Micro, Part, Severity};

thresholds! {
    /// Thresholds of `allocated_without_process`.
    pub struct Thresholds {
        /// Without a process for so long it is told: images are pulled, data is staged, environments are built.
        for_ns: Nanos = Nanos::from_secs(900), Nanos(0)..=Nanos::from_secs(86_400);
        /// From here on it is a warning. An hour is longer than images and data sets take to come, and is a GPU-hour
        /// that somebody pays for.
        warn_ns: Nanos = Nanos::from_secs(3_600), Nanos(0)..=Nanos::from_secs(604_800);
    }
}

pub(super) const TEXT: Text = Text {
    means: "A GPU is allocated, and no process has a context on it: paid for, kept from others, and not begun or long over.",
    inputs: "Records of who has which GPU (rules.allocations); the driver's list of processes.",
    formula: "Information after for_ns without a process, a warning after warn_ns. Ends with the first process, or with the \
              record.",
    silent: "A record that says standby; serving, whose replicas may stand by, below warn_ns; processes that cannot be seen \
             (another pid namespace); a driver that does not answer; a broken GPU.",
    advice: "Ask the owner named in the record; give the GPU back to the scheduler.",
    blind: "Neither kubelet's pod-resources nor Slurm's controller is asked: without a declared record the rule is \
            unsupported.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if view.policy.declared.allocations.is_empty() {
        return Outcome::Unsupported("no record of allocations is read here: declare them as rules.allocations".into());
    }
    if !unit.declared {
        return Outcome::Absent;
    }
    let index = unit.gpu.map(|gpu| format!("{}", gpu.index)).filter(|_| !unit.mig && !unit.rest);
    let own = |record: &&Allocation| *record.gpu == *unit.id.0 || index.as_ref() == Some(&record.gpu);
    let Some(record) = view.policy.declared.allocations.iter().find(own) else {
        return Outcome::Suspended("the driver does not say which GPU the record means".into());
    };
    if record.standby {
        return Outcome::Absent;
    }
    let Some(gpu) = unit.gpu else {
        return Outcome::Suspended("the driver does not answer: nobody can tell who is on the GPU".into());
    };
    if gpu.health.get().is_some_and(|health| *health != GpuHealth::Ok) {
        return Outcome::Suspended("the GPU is faulted".into());
    }
    if gpu.processes.get().is_none() {
        return Outcome::Suspended("the driver's list of processes cannot be read".into());
    }
    if unit.util.is_some_and(|util| util > 0.0) && unit.vacant_since.is_none() && unit.holders.is_empty() {
        return Outcome::Suspended("somebody who cannot be seen works on it: another pid namespace".into());
    }
    let Some(since) = unit.vacant_since else { return Outcome::Silent };
    let idle = view.host.now.saturating_sub(since);
    let limits = &view.policy.allocated_without_process;
    let least = if record.class == Some(Class::Serving) { limits.warn_ns } else { limits.for_ns };
    if idle < least {
        return Outcome::Silent;
    }
    let minutes = Micro::from_f64(idle.as_secs_f64() / 60.0);
    let owner = if record.owner.is_empty() { "somebody" } else { record.owner.as_str() };
    Outcome::Claim(Claim {
        variant: None,
        severity: if idle >= limits.warn_ns { Severity::Warn } else { Severity::Info },
        cause: None,
        object: unit.name.clone(),
        deficit: Part(0),
        onset: since,
        pressure: Part(0),
        confidence: Part::from_fraction(0.9),
        summary: format!("{}: allocated to {owner}, and no process has been on it for {minutes} min", unit.name),
        evidence: alloc::vec![Evidence {
            what: "without a process".into(),
            of: unit.name.clone(),
            value: minutes,
            unit: "min".into(),
            normal: None,
        }],
        rejected: Vec::new(),
        advice: format!("ask {owner}, or give {} back to the scheduler", unit.name),
        holders: Vec::new(),
    })
}
