//! An array in the victim's path is being synchronised, and the victim pays for it.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::storage::{MdAction, MdArray, SyncState};
use gpuprod_snapshot::units::to_f64;

use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::{Cause, Evidence, Micro, Part, Severity, attribution};

thresholds! {
    /// Thresholds of `raid_rebuild_impact`; the deficits and holds that it shares with others stand in the policy itself.
    pub struct Thresholds {
        /// Member latency over its own normal from which a sync counts as the cause. A reader that waits for storage
        /// alone loses a deficit d when latency rises to 1/(1-d): 1.18 for the deficit that warns, 1.43 for the one that
        /// is critical. What a small rise cannot carry stays unexplained by the split.
        sync_await_ratio: f64 = 1.2, 1.0..=1_000.0;
    }
}

pub(super) const TEXT: Text = Text {
    means: "A software RAID array in the workload's path is being rebuilt or checked, and the workload pays for it.",
    inputs: "md's sync action, progress and speed; latency and queue of the members against their own normal; progress of \
             the workload against its own normal.",
    formula: "Information while a sync runs. A warning when the members answer sync_await_ratio times as late as normal and \
              more (and deviation_z spreads), the workload's deficit is starved_warn and more, and the sync did not begin \
              after the workload slowed down; critical from starved_critical.",
    silent: "An array that is not in the workload's path; a sync without a victim; a sync that began later than the trouble; \
             a workload that waits for none of the members' requests, or whose waits for I/O did not grow by a quarter of \
             what it lost.",
    advice: "Lower sync_speed_max of the array, or drain the node until the sync has ended.",
    blind: "Hardware RAID, and arrays of another host behind a network file system.",
};

/// Info while an array in the path syncs; warn when its latency and the victim's progress both left their own
/// baselines in that order; critical from the critical deficit.
pub(super) fn judge(view: &View<'_>) -> Outcome {
    let Some(md) = view.host.md else {
        let known = !view.host.signals.arrays.is_empty();
        return if known {
            Outcome::Suspended("software RAID cannot be read now".into())
        } else {
            Outcome::Unsupported("no reading of software RAID".into())
        };
    };
    let path: Vec<&MdArray> =
        md.arrays.iter().filter(|array| view.unit.work.path.arrays.contains(&array.name)).collect();
    if path.is_empty() {
        return Outcome::Absent;
    }
    let syncing = path.into_iter().filter(|array| array.sync.get() == Some(&SyncState::Running));
    let mut suspended = None;
    let mut info = None;
    for array in syncing {
        let Some(deviation) = &view.unit.deviation else {
            suspended = Some("the workload's own normal is not learnt yet".to_string());
            info.get_or_insert_with(|| information(view, array));
            continue;
        };
        let floor = if view.active { view.policy.starved_clear } else { view.policy.starved_warn };
        let bad = view.unit.deficit() >= floor.as_fraction() && view.unit.deficit_since.is_some();
        if bad
            && (view.active || attribution::deviates(deviation, view))
            && let Ok(blame) = attribution::array(view, array)
        {
            return Outcome::Claim(impact(view, array, blame));
        }
        info.get_or_insert_with(|| information(view, array));
    }
    match (info, suspended) {
        (Some(claim), _) => Outcome::Claim(claim),
        (None, Some(why)) => Outcome::Suspended(why.into()),
        (None, None) => Outcome::Silent,
    }
}

fn impact(view: &View<'_>, array: &MdArray, blame: attribution::Blame) -> Claim {
    let critical = view.unit.deficit() >= view.policy.starved_critical.as_fraction();
    let summary = view.words(|| {
        format!(
            "{}: latency of its members {} ms, normal {} ms; the workload makes {} % of its normal progress",
            describe(array),
            Micro::from_f64(blame.latency.value),
            Micro::from_f64(blame.latency.normal),
            Micro::from_f64((1.0 - view.unit.deficit()) * 100.0),
        )
    });
    let mut evidence = attribution::victim_evidence(view);
    evidence.extend(view.list(|| sync_evidence(array)));
    evidence.extend(blame.evidence);
    let mut rejected = attribution::cleared(view);
    let others = view.host.md.into_iter().flat_map(|md| &md.arrays);
    let others = others.filter(|other| other.name != array.name && other.sync.get() == Some(&SyncState::Running));
    rejected.extend(others.filter_map(|other| attribution::array(view, other).err()));
    Claim {
        variant: array.action.get().map(ToString::to_string),
        severity: if critical { Severity::Critical } else { Severity::Warn },
        cause: Some(Cause::Storage),
        object: array.name.clone(),
        deficit: view.unit.weight.w.rest(),
        onset: view.unit.deficit_since.unwrap_or(view.host.now),
        pressure: blame.pressure,
        confidence: blame.confidence,
        summary,
        evidence,
        rejected,
        advice: view.words(|| advice(array)),
        holders: Vec::new(),
    }
}

fn information(view: &View<'_>, array: &MdArray) -> Claim {
    let began = view.host.signals.arrays.get(&array.name).and_then(|signals| signals.sync_since);
    Claim {
        variant: array.action.get().map(ToString::to_string),
        severity: Severity::Info,
        cause: None,
        object: array.name.clone(),
        deficit: Part(0),
        onset: began.unwrap_or(view.host.now),
        pressure: Part(0),
        confidence: Part::ONE,
        summary: view.words(|| format!("{}; no harm to the workload is proven", describe(array))),
        evidence: view.list(|| sync_evidence(array)),
        rejected: Vec::new(),
        advice: view.words(|| advice(array)),
        holders: Vec::new(),
    }
}

/// `md0 recover 37 % at 182 MB/s`, with what is known.
fn describe(array: &MdArray) -> String {
    let action = array.action.get().map_or("sync", |action| action.as_str());
    let mut text = format!("{} {action}", array.name);
    if let Some(percent) = percent(array) {
        text.push_str(&format!(" {} %", Micro::from_f64(percent)));
    }
    if let Some(speed) = array.sync_speed.copied() {
        text.push_str(&format!(" at {} MB/s", Micro::from_f64(to_f64(speed.0) / 1e6)));
    }
    text
}

fn percent(array: &MdArray) -> Option<f64> {
    let fine = array.sync_done_fine.copied().zip(array.sync_total_fine.copied());
    let (done, total) = fine.or_else(|| array.sync_done.copied().zip(array.sync_total.copied()))?;
    (total.0 > 0).then(|| to_f64(done.0) / to_f64(total.0) * 100.0)
}

fn sync_evidence(array: &MdArray) -> Vec<Evidence> {
    let action = array.action.get().map_or("sync", |action| action.as_str());
    let mut evidence = Vec::new();
    let mut push = |what: Cow<'static, str>, value: f64, unit: &'static str| {
        evidence.push(Evidence::plain(what, &array.name, value, unit));
    };
    if let Some(percent) = percent(array) {
        push(format!("progress of {action}").into(), percent, "%");
    }
    if let Some(speed) = array.sync_speed.copied() {
        push(format!("speed of {action}, per member").into(), to_f64(speed.0) / 1e6, "MB/s");
    }
    if let Some(degraded) = array.degraded.copied() {
        push("members missing".into(), f64::from(degraded), "of its slots");
    }
    if let Some(minimum) = array.sync_speed_min.copied() {
        push("speed below which md never yields".into(), to_f64(minimum.0) / 1e6, "MB/s");
    }
    evidence
}

/// A scheduled check is no failed disk: each action has its own remedy.
fn advice(array: &MdArray) -> String {
    let name = &array.name;
    let slow = format!("echo 5000 > /sys/block/{name}/md/sync_speed_max");
    match array.action.get() {
        Some(MdAction::Check | MdAction::Repair) => format!(
            "a scrub, not a failure: `echo idle > /sys/block/{name}/md/sync_action` stops it, `{slow}` slows it to 5 MB/s per member; move it to a quiet hour"
        ),
        Some(MdAction::Recover) => format!(
            "a member is being rebuilt: find the failed disk (`mdadm --detail /dev/{name}`), protect readers with `{slow}` (the array stays degraded longer), or drain the node until it is done"
        ),
        Some(MdAction::Reshape) => {
            format!("an operator reshapes the array: `{slow}`, or drain the node until it is done")
        }
        _ => format!("the array resynchronises after an unclean stop: `{slow}`, or drain the node until it is done"),
    }
}
