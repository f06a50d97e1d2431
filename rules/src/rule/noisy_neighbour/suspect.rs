//! Who else uses what the victim needs, and takes more of it than its share.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::storage::BlockDevice;
use gpuprod_snapshot::units::{Nanos, to_f64};

use crate::attribution::Switch;
use crate::attribution::{Candidate, Link, Saturation};
use crate::baseline::{Deviation, RECENT};
use crate::facts::UnitFacts;
use crate::rule::View;
use crate::rule::around::percent;
use crate::signals::StorageSignals;
use crate::{Cause, Evidence, Micro, Part, Rejected};

/// Who moves less than this part of a device's bytes does not use it.
const USES: f64 = 0.01;

/// Somebody who may be the one.
#[derive(Clone, Debug)]
pub(super) struct Suspect {
    /// Whose workload it is.
    pub(super) name: String,
    /// It is about the GPU's time, not a drive.
    pub(super) gpu: bool,
    pub(super) candidate: Candidate,
}

impl Suspect {
    pub(super) const fn variant(&self) -> &'static str {
        if self.gpu { "gpu" } else { "storage" }
    }
}

/// All of them, and those that were looked at and cleared.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    pub(super) found: Vec<Suspect>,
    pub(super) rejected: Vec<Rejected>,
}

/// What a neighbour takes of a resource.
struct Takes<'a> {
    cgroup: &'a str,
    value: f64,
    deviation: Option<Deviation>,
    series: Vec<Option<f64>>,
    switch: Switch,
}

/// Other workloads of the node.
pub(super) fn neighbours<'a>(view: &View<'a>, own: &str) -> BTreeSet<&'a String> {
    let elsewhere = view.host.units.iter().filter_map(|other| other.work.ties.cgroup.as_ref());
    let here = view.unit.host.sharers.iter().map(|sharer| &sharer.cgroup);
    elsewhere.chain(here).filter(|cgroup| *cgroup != own).collect()
}

/// Those that use a drive of the victim's, or its GPU.
pub(super) fn all(view: &View<'_>, own: &str, neighbours: &BTreeSet<&String>) -> Suspects {
    let unit = view.unit;
    let mut suspects = Suspects::default();
    for place in unit.work.path.disks.iter().chain(&unit.work.path.arrays) {
        drive(view, own, neighbours, place, &mut suspects);
    }
    let takes: Vec<Takes<'_>> = unit
        .host
        .sharers
        .iter()
        .map(|sharer| Takes {
            cgroup: &sharer.cgroup,
            value: sharer.share,
            deviation: sharer.deviation,
            series: sharer.series.clone(),
            switch: sharer.switch,
        })
        .collect();
    if unit.host.serves.is_some() {
        let total: f64 = takes.iter().map(|takes| takes.value).sum();
        let full = Saturation::of(1 + u8::from(total >= 0.9));
        for takes in takes.iter().filter(|takes| takes.cgroup != own) {
            if takes.value < view.policy.noisy_neighbour.busy.as_fraction() {
                continue;
            }
            let what =
                Resource { cause: Cause::Unexplained, object: &unit.name, unit: "% of the GPU's time", scale: 100.0 };
            let candidate = suspect(view, takes, (total, unit.host.sharers.len()), &what, full.clone());
            suspects.add(view, takes.cgroup, true, candidate);
        }
    }
    suspects
}

impl Suspects {
    fn add(&mut self, view: &View<'_>, cgroup: &str, gpu: bool, candidate: Result<Candidate, Rejected>) {
        match candidate {
            Ok(candidate) => self.found.push(Suspect { name: name(view, cgroup), gpu, candidate }),
            Err(no) => self.rejected.push(no),
        }
    }
}

/// What they share.
struct Resource<'a> {
    cause: Cause,
    object: &'a str,
    unit: &'static str,
    scale: f64,
}

/// The neighbours on one drive or array.
fn drive(view: &View<'_>, own: &str, others: &BTreeSet<&String>, place: &str, suspects: &mut Suspects) {
    let Some(device) = view.host.block.and_then(|block| block.devices.iter().find(|device| device.name == place))
    else {
        return;
    };
    let signals = view.host.signals.arrays.get(place).or_else(|| view.host.signals.disks.get(place));
    let Some(signals) = signals.filter(|signals| signals.sync_since.is_none()) else { return };
    let saturation = late(view, signals);
    let users: Vec<Takes<'_>> = others
        .iter()
        .map(|cgroup| cgroup.as_str())
        .chain([own])
        .filter_map(|cgroup| takes(view, cgroup, device))
        .collect();
    let total = view.host.signals.disks.get(place).and_then(|disk| disk.throughput.latest()).unwrap_or(0.0);
    let total = total.max(users.iter().map(|user| user.value).sum());
    let count = users.iter().filter(|user| user.value >= USES * total).count();
    for user in users.iter().filter(|user| user.cgroup != own && user.value >= USES * total && user.value > 0.0) {
        let what = Resource { cause: Cause::BackgroundIo, object: place, unit: "MB/s", scale: 1e-6 };
        let candidate = suspect(view, user, (total, count), &what, saturation.clone());
        suspects.add(view, user.cgroup, false, candidate);
    }
}

fn takes<'a>(view: &View<'_>, cgroup: &'a str, device: &BlockDevice) -> Option<Takes<'a>> {
    let track = view.host.signals.host.workloads.get(cgroup)?.io.get(&device.dev)?;
    Some(Takes {
        cgroup,
        value: track.latest()?,
        deviation: track.deviation(view.policy),
        series: track.recent().collect(),
        switch: track.switch(),
    })
}

/// Whether a drive answers later than it normally does.
fn late(view: &View<'_>, signals: &StorageSignals) -> Saturation {
    let Some(now) = signals.latency.deviation(view.policy) else {
        return Saturation::none("its own latency is not learnt yet".into());
    };
    let ratio = view.policy.disk_await_ratio;
    let ratio = if view.active { 1.0 + (ratio - 1.0) / 2.0 } else { ratio };
    if now.ratio() < ratio || (!view.active && now.z < view.policy.deviation_z) {
        return Saturation::none(format!(
            "it answers in {} ms, normal {} ms: nobody waits for it",
            Micro::from_f64(now.value),
            Micro::from_f64(now.normal)
        ));
    }
    Saturation::of(1)
}

/// A neighbour that left its own normal and takes more than its share.
fn suspect(
    view: &View<'_>,
    takes: &Takes<'_>,
    (total, users): (f64, usize),
    what: &Resource<'_>,
    saturation: Saturation,
) -> Result<Candidate, Rejected> {
    let who = name(view, takes.cgroup);
    let shown =
        |value: f64| format!("{} {}", Micro::from_f64(libm::round(value * what.scale * 10.0) / 10.0), what.unit);
    let reject =
        |why: String| Rejected { cause: what.cause, of: what.object.to_string(), why: format!("{who}: {why}") };
    let share = if total > 0.0 { takes.value / total } else { 0.0 };
    let fair = 1.0 / to_f64(u64::try_from(users.max(1)).unwrap_or(u64::MAX));
    if share <= fair {
        return Err(reject(format!(
            "takes {}, {} of it, no more than its share of {}",
            shown(takes.value),
            percent(share),
            percent(fair)
        )));
    }
    let blocks = takes.series.iter().flatten().count();
    let onset = match takes.deviation {
        Some(now) if now.z >= view.policy.deviation_z || view.active => now.onset,
        Some(now) => {
            return Err(reject(format!("takes {}, as it normally does ({})", shown(takes.value), shown(now.normal))));
        }
        // It came later than all that is looked back at.
        None if blocks < RECENT => {
            let age = view.policy.block_ns.0.saturating_mul(u64::try_from(blocks).unwrap_or(0));
            Some(view.host.now.saturating_sub(Nanos(age)))
        }
        None => return Err(reject(format!("takes {}, and its own normal is not learnt yet", shown(takes.value)))),
    };
    let mut evidence = alloc::vec![Evidence {
        normal: takes.deviation.map(|now| {
            Deviation { normal: now.normal * what.scale, spread: now.spread * what.scale, ..now }.as_normal()
        }),
        ..Evidence::plain(format!("taken by {who}"), what.object, takes.value * what.scale, what.unit)
    }];
    evidence.push(Evidence::plain(format!("share of {who}"), what.object, share * 100.0, "%"));
    evidence.push(Evidence::plain("fair share", what.object, fair * 100.0, "%"));
    let normally = takes.deviation.map_or_else(|| "it is new".into(), |now| format!("normally {}", shown(now.normal)));
    Ok(Candidate {
        cause: what.cause,
        object: what.object.to_string(),
        onset,
        pressure: Part::from_fraction(share),
        saturation,
        link: Link::Proven,
        series: takes.series.clone(),
        switch: takes.deviation.map(|_| takes.switch),
        uses,
        evidence,
        says: format!("{who} takes {} of {} ({normally}), {} of all", shown(takes.value), what.object, percent(share)),
        advice: format!(
            "limit {who} (io.max of its cgroup for a drive, MPS or MIG for a GPU), or place one of the two elsewhere"
        ),
    })
}

/// Whether another unit hangs on the same drive, array or GPU.
fn uses(unit: &UnitFacts<'_>, object: &str) -> bool {
    unit.name == object || unit.work.path.arrays.contains(object) || unit.work.path.disks.contains(object)
}

/// Whose workload a cgroup is, in words that may be shown to anybody.
pub(super) fn name(view: &View<'_>, cgroup: &str) -> String {
    let unit = view.host.units.iter().find(|unit| unit.work.ties.cgroup.as_deref() == Some(cgroup));
    let last = || cgroup.rsplit('/').find(|part| !part.is_empty()).unwrap_or(cgroup).to_string();
    match unit {
        Some(unit) if unit.host.sharers.is_empty() => unit.work.owner.clone().unwrap_or_else(last),
        _ => last(),
    }
}
