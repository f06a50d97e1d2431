//! Whose doing it was: the gates that a candidate for storage has to pass.
//!
//! 1. *Deviation*: the victim's progress is below its own baseline (z, effect, CUSUM).
//! 2. *Saturation*: the candidate's latency is above its own baseline, and the workload's disks are really waited for.
//! 3. *Order and coupling*: the candidate did not begin after the victim, and the victim uses it; correlation of
//!    its latency with the deficit raises the confidence.
//!
//! What fails a gate is named among the rejected, with the number that failed.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::storage::{MdArray, SyncState};
use gpuprod_snapshot::units::Nanos;

use crate::baseline::{Deviation, spearman};
use crate::rule::View;
use crate::signals::StorageSignals;
use crate::{Cause, Evidence, Micro, Part, Rejected};

/// Weight of each gate in the confidence, 1 - product of (1 - p).
const P_DEVIATION: f64 = 0.3;
const P_SATURATION: f64 = 0.3;
const P_ORDER: f64 = 0.2;
const P_COUPLING: f64 = 0.3;
const P_LINK: f64 = 0.4;

/// Whoever waits for storage has a request out there: Little's mean over the disks of the path is about one or more.
/// Less than this means that the disks stand idle most of the time, however late the few requests are answered (a
/// reader throttled into bursts: latency rose two to four times in the lab, at a mean of .15).
const WAITING: f64 = 0.5;

/// A candidate that passed its gates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Blame {
    pub(crate) object: String,
    pub(crate) confidence: Part,
    /// Share of the I/O time that is above normal, or in which somebody waited: the loss cannot be larger.
    pub(crate) pressure: Part,
    pub(crate) latency: Deviation,
    pub(crate) evidence: Vec<Evidence>,
}

/// The first gate: the victim does worse than its own normal.
pub(crate) fn deviates(deviation: &Deviation, view: &View<'_>) -> bool {
    let effect = 1.0 - deviation.ratio();
    deviation.z >= view.policy.deviation_z && effect >= view.policy.starved_warn.as_fraction() && deviation.alarm
}

/// The gates of an array whose sync is running.
pub(crate) fn array(view: &View<'_>, array: &MdArray) -> Result<Blame, Rejected> {
    let reject = |why: String| Rejected { cause: Cause::Storage, of: array.name.clone(), why };
    let word = array.action.get().map_or("sync", |action| action.as_str());
    if !view.unit.path.arrays.contains(&array.name) {
        return Err(reject(format!("{word}, but nothing of the workload is open on it")));
    }
    if array.sync.get() != Some(&SyncState::Running) {
        return Err(reject("no sync is running".into()));
    }
    let signals = view.host.signals.arrays.get(&array.name).ok_or_else(|| reject("no latency was read yet".into()))?;
    gates(view, &array.name, signals, view.policy.raid_rebuild_impact.sync_await_ratio)
}

/// The gates of a plain disk.
pub(crate) fn disk(view: &View<'_>, name: &str) -> Result<Blame, Rejected> {
    let reject = |why: String| Rejected { cause: Cause::Storage, of: name.into(), why };
    let signals = view.host.signals.disks.get(name).ok_or_else(|| reject("no latency was read yet".into()))?;
    gates(view, name, signals, view.policy.disk_await_ratio)
}

/// The gates of latency that rose so many times, on a device or a server.
pub(crate) fn gates(view: &View<'_>, name: &str, signals: &StorageSignals, ratio: f64) -> Result<Blame, Rejected> {
    let track = &signals.latency;
    let reject = |why: String| Rejected { cause: Cause::Storage, of: name.into(), why };
    if !track.mature(view.policy) {
        return Err(reject(format!("its own latency baseline is not learnt yet ({} blocks)", track.blocks())));
    }
    let Some(latency) = track.deviation(view.policy) else {
        return Err(reject("too few operations in the last block to tell its latency".into()));
    };
    // To stay blamed takes half of what it takes to be blamed: blocks scatter around any threshold.
    let ratio = if view.active { 1.0 + (ratio - 1.0) / 2.0 } else { ratio };
    if latency.ratio() < ratio || (!view.active && latency.z < view.policy.deviation_z) {
        return Err(reject(format!(
            "latency {} ms is {} x its normal {} ms, not {} x and more",
            Micro::from_f64(latency.value),
            Micro::from_f64(latency.ratio()),
            Micro::from_f64(latency.normal),
            Micro::from_f64(ratio)
        )));
    }
    let in_flight = signals.in_flight.deviation(view.policy);
    let disks = view.unit.path.disks.iter();
    let out: f64 = disks.filter_map(|disk| view.host.signals.disks.get(disk)?.in_flight.latest()).sum();
    let waiting =
        if view.host.signals.mounts.contains_key(name) { in_flight.map_or(0.0, |now| now.value) } else { out };
    if waiting < WAITING {
        return Err(reject(format!(
            "{} requests on average are out on the workload's disks: most of the time it waits for none of them",
            Micro::from_f64(waiting)
        )));
    }
    // Without a progress source, the victim's trouble begins when its GPU runs out of work.
    let victim = match &view.unit.deviation {
        Some(deviation) => deviation.onset,
        None => view.unit.usage.hungry.since(),
    };
    // The latest of the beginnings: a sync that was harmless at first, latency that rose before any sync, latency
    // that rose because the reader was throttled, before others' requests made a queue.
    let queued = in_flight.and_then(|in_flight| in_flight.onset);
    let cause = signals.sync_since.max(latency.onset).max(queued);
    if let (Some(victim), Some(cause)) = (victim, cause) {
        let slack = view.policy.block_ns.0.saturating_mul(u64::from(view.policy.order_slack_blocks));
        if cause.0 > victim.0.saturating_add(slack) {
            let late = Nanos(cause.0.saturating_sub(victim.0)).as_secs_f64();
            return Err(reject(format!("it began {} s after the victim slowed down", Micro::from_f64(late))));
        }
    }
    let rho = view.unit.signals.and_then(|signals| {
        let deficit = signals.ratio.recent().map(|ratio| ratio.map(|ratio| 1.0 - ratio));
        spearman(track.recent(), deficit)
    });
    let coupled = rho.is_some_and(|rho| rho >= view.policy.coupling_rho);
    let excess = 1.0 - latency.normal / latency.value.max(latency.normal).max(f64::MIN_POSITIVE);
    let waited = view.unit.io_some.as_ref().map_or(0.0, |(some, _)| *some);
    let doubt = if view.unit.deviation.is_some() { 1.0 - P_DEVIATION } else { 1.0 }
        * (1.0 - P_SATURATION)
        * (1.0 - P_ORDER)
        * (1.0 - P_LINK)
        * if coupled { 1.0 - P_COUPLING } else { 1.0 };
    let confidence = Part::from_fraction(1.0 - doubt).min(view.unit.weight.source.confidence());
    let mut evidence = alloc::vec![Evidence {
        what: "latency of the members".into(),
        of: name.into(),
        value: Micro::from_f64(latency.value),
        unit: "ms".into(),
        normal: Some(latency.as_normal()),
    }];
    if let Some(rho) = rho.filter(|_| coupled) {
        evidence.push(Evidence {
            what: "rank correlation of its latency with the deficit".into(),
            of: name.into(),
            value: Micro::from_f64(rho),
            unit: "rho".into(),
            normal: None,
        });
    }
    Ok(Blame { object: name.into(), confidence, pressure: Part::from_fraction(excess.max(waited)), latency, evidence })
}

/// What the victim itself shows: progress, utilization, waits.
pub(crate) fn victim_evidence(view: &View<'_>) -> Vec<Evidence> {
    let unit = view.unit;
    let plain = |what: &str, of: &str, value: f64, unit: &str| Evidence {
        what: what.into(),
        of: of.into(),
        value: Micro::from_f64(value),
        unit: unit.into(),
        normal: None,
    };
    let mut evidence = Vec::new();
    let engine = unit.engine.map_or(unit.name.as_str(), |engine| engine.url.as_str());
    if let Some(deviation) = &unit.deviation {
        let percent = |value: f64| value * 100.0;
        let scaled = Deviation {
            value: percent(deviation.value),
            normal: percent(deviation.normal),
            spread: percent(deviation.spread),
            ..*deviation
        };
        evidence.push(Evidence {
            normal: Some(scaled.as_normal()),
            ..plain("token rate, of its own normal", engine, scaled.value, "%")
        });
    }
    if let Some(rate) = unit.signals.and_then(crate::signals::EngineSignals::rate) {
        evidence.push(plain("token rate", engine, rate, "tok/s"));
    }
    if let Some(util) = unit.util {
        evidence.push(plain("utilization", &unit.name, util * 100.0, "%"));
    }
    if let Some((some, of)) = &unit.io_some {
        evidence.push(plain("some task waited for I/O", of, some * 100.0, "%"));
    }
    if let Some((threads, wchan)) = &unit.blocked
        && *threads > 0
    {
        let place = wchan.as_deref().unwrap_or("unknown");
        evidence.push(plain(
            &format!("threads in uninterruptible sleep (first in {place})"),
            &unit.name,
            f64::from(*threads),
            "threads",
        ));
    }
    evidence
}

/// Causes other than storage that were looked at, and the figure that clears them.
pub(crate) fn cleared(view: &View<'_>) -> Vec<Rejected> {
    let unit = view.unit;
    let mut rejected = Vec::new();
    let mut reject = |cause: Cause, why: String| rejected.push(Rejected { cause, of: String::new(), why });
    if let Some(reasons) = unit.gpu.and_then(|gpu| gpu.clock_reasons.copied())
        && !unit.throttled
    {
        reject(Cause::Throttle, format!("no thermal or brake clock event (reasons {reasons:#x})"));
    }
    if let Some(some) = unit.cpu_some
        && some < 0.30
    {
        reject(
            Cause::HostCpu,
            format!("some task waited for a CPU {} % of the time, below 30 %", Micro::from_f64(some * 100.0)),
        );
    }
    if let Some(usage) = unit.engine.and_then(|engine| engine.kv_usage.copied())
        && usage.as_fraction() < 0.95
    {
        reject(Cause::Kv, format!("KV cache {} % full, below 95 %", Micro::from_f64(usage.as_fraction() * 100.0)));
    }
    if let crate::facts::Demand::Present { running, waiting } = unit.demand {
        reject(Cause::Upstream, format!("{running} requests run and {waiting} wait"));
    }
    rejected
}
