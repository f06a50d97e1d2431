//! Candidates for storage: arrays whose sync runs, plain disks, servers of network file systems.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::storage::{MdArray, SyncState};

use super::candidate::{Candidate, Link, Saturation, Weighed};
use super::weigh;
use crate::baseline::Deviation;
use crate::facts::UnitFacts;
use crate::rule::View;
use crate::signals::StorageSignals;
use crate::{Cause, Evidence, Gate, Micro, Part, Rejected};

/// On average so many requests in flight mean that the device was never idle.
const ALWAYS_BUSY: f64 = 0.95;

/// A candidate that passed its gates, with the latency that speaks against it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Blame {
    pub(crate) object: String,
    pub(crate) confidence: Part,
    /// Share of the I/O time that is above normal, or in which somebody waited: the loss cannot be larger.
    pub(crate) pressure: Part,
    pub(crate) latency: Deviation,
    pub(crate) evidence: Vec<Evidence>,
}

/// What one device, array or server shows, and the latency that it shows it by.
struct Shows {
    candidate: Candidate,
    latency: Option<Deviation>,
}

/// Arrays whose sync runs, the disks in the path that no array speaks for, and the servers whose latency is read.
pub(super) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = view.host.syncing().map(|(array, _)| of_array(view, array).candidate).collect();
    for name in own_disks(view) {
        let signals = view.host.signals.disks.get(name).map(|signals| &**signals);
        let mut candidate = shows(view, name, signals, ratio(view, name), false).candidate;
        if flooded(view, name) {
            candidate.cause = Cause::BackgroundIo;
        }
        all.push(candidate);
    }
    all.extend(view.unit.work.mounts.iter().filter_map(|point| server(view, point)));
    all
}

/// The disks in the path that answer for themselves. While an array syncs, what its members do is the sync: the array speaks
/// for them, and they are cleared with it; so it does while the sync's tail is still in their latencies and queues.
pub(crate) fn own_disks<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a String> {
    let syncs = |name: &String| {
        let synced = view.host.signals.arrays.get(name).and_then(|signals| signals.synced);
        synced.is_some_and(|at| view.host.now.saturating_sub(at) < view.policy.starved_clear_ns)
    };
    let syncing: Vec<_> = view.host.arrays.iter().filter(|(array, _)| syncs(&array.name)).collect();
    let disks = view.unit.work.path.disks.iter();
    disks.filter(move |disk| !syncing.iter().any(|(_, members)| members.contains(*disk)))
}

/// A network file system that the workload has open, when its client counts what it waits.
fn server(view: &View<'_>, point: &str) -> Option<Candidate> {
    let signals = view.host.signals.mounts.get(point)?;
    let mut candidate = shows(view, point, Some(signals), view.policy.disk_await_ratio, false).candidate;
    candidate.cause = Cause::Network;
    if !candidate.advice.is_empty() {
        candidate.advice = format!(
            "look at the server of {point} and the way to it (`nfsiostat {point}`); other nodes of the same mount should see it too"
        );
    }
    Some(candidate)
}

/// The gates of an array whose sync is running.
pub(crate) fn array(view: &View<'_>, array: &MdArray) -> Result<Blame, Rejected> {
    blame(view, of_array(view, array))
}

/// The gates of latency that rose so many times, on a device or a server.
pub(crate) fn gates(view: &View<'_>, name: &str, signals: &StorageSignals, ratio: f64) -> Result<Blame, Rejected> {
    blame(view, shows(view, name, Some(signals), ratio, false))
}

fn blame(view: &View<'_>, Shows { candidate, latency }: Shows) -> Result<Blame, Rejected> {
    let (cause, of) = (candidate.cause, candidate.object.clone());
    let Weighed { object, confidence, pressure, evidence, .. } = weigh(view, candidate)?;
    let silent = || Rejected { cause, of, why: "too few operations in the last block to tell its latency".into() };
    Ok(Blame { object, confidence, pressure, latency: latency.ok_or_else(silent)?, evidence })
}

fn of_array(view: &View<'_>, array: &MdArray) -> Shows {
    let word = array.action.get().map_or("sync", |action| action.as_str());
    let signals = view.host.signals.arrays.get(&array.name).map(|signals| &**signals);
    let errors = array.degraded.copied().is_some_and(|missing| missing > 0);
    let mut shows = shows(view, &array.name, signals, view.policy.raid_rebuild_impact.sync_await_ratio, errors);
    if !view.unit.work.path.arrays.contains(&array.name) {
        shows.candidate.link = Link::Missing(format!("{word}, but nothing of the workload is open on it"));
    } else if array.sync.get() != Some(&SyncState::Running) {
        shows.candidate.saturation = Saturation::none("no sync is running".into());
    }
    shows
}

/// Others' share of what a disk moves; nothing when the workload's own part cannot be told.
pub(crate) fn others(view: &View<'_>, name: &str) -> Option<f64> {
    let device = view.host.block?.devices.iter().find(|device| device.name == name)?;
    let own = view.unit.work.io_by_device.get(&device.dev).copied()?;
    let rate = view.host.signals.disks.get(name)?.throughput.latest().filter(|rate| *rate > 0.0)?;
    Some((1.0 - own / rate).clamp(0.0, 1.0))
}

/// Most of what a disk moves is not the workload's.
pub(crate) fn flooded(view: &View<'_>, name: &str) -> bool {
    others(view, name).is_some_and(|others| others >= view.policy.io_stall.background.as_fraction())
}

/// How far above its normal a disk's latency must be. Where most of what it moves is known to be others', it need not be as
/// late to hold the workload up.
pub(crate) fn ratio(view: &View<'_>, name: &str) -> f64 {
    if flooded(view, name) { view.policy.flooded_await_ratio } else { view.policy.disk_await_ratio }
}

/// Whether a unit's workload has this disk, array or mount open.
fn uses(unit: &UnitFacts<'_>, object: &str) -> bool {
    unit.work.path.arrays.contains(object) || unit.work.path.disks.contains(object) || unit.work.mounts.contains(object)
}

fn shows(view: &View<'_>, name: &str, signals: Option<&StorageSignals>, ratio: f64, errors: bool) -> Shows {
    let latency = signals.and_then(|signals| signals.latency.deviation(view.policy));
    let in_flight = signals.and_then(|signals| signals.in_flight.deviation(view.policy));
    // The latest of the beginnings: a sync that was harmless at first, latency that rose before any sync, latency
    // that rose because the reader was throttled, before others' requests made a queue.
    let queued = in_flight.and_then(|in_flight| in_flight.began());
    let risen = latency.and_then(|latency| latency.began());
    let excess =
        latency.map_or(0.0, |latency| 1.0 - latency.normal / latency.value.max(latency.normal).max(f64::MIN_POSITIVE));
    let waited = view.unit.work.io_some.as_ref().map_or(0.0, |(some, _)| *some);
    let mut candidate = Candidate {
        cause: Cause::Storage,
        object: name.into(),
        onset: signals.and_then(|signals| signals.sync_since).max(risen).max(queued),
        pressure: Part::from_fraction(excess.max(waited)),
        saturation: Saturation::of(0),
        link: Link::Proven,
        series: Vec::new(),
        switch: signals.map(|signals| signals.latency.switch()),
        uses,
        evidence: Vec::new(),
        says: String::new(),
        advice: String::new(),
    };
    match saturated(view, name, signals, ratio) {
        Ok(()) => {
            let queue = in_flight.is_some_and(|now| now.z >= view.policy.deviation_z || now.value >= ALWAYS_BUSY);
            candidate.saturation = Saturation::of(1 + u8::from(queue) + u8::from(errors));
        }
        // What is not saturated is rejected with this figure, and nothing else of it is looked at.
        Err(why) => {
            candidate.saturation = Saturation::none(why);
            return Shows { candidate, latency };
        }
    }
    candidate.series = signals.map(|signals| signals.latency.recent().collect()).unwrap_or_default();
    if let Some(latency) = latency.filter(|_| view.tells) {
        candidate.evidence.push(Evidence {
            normal: Some(latency.as_normal()),
            ..Evidence::plain("latency of the members", name, latency.value, "ms")
        });
        let (value, normal) = (Micro::from_f64(latency.value), Micro::from_f64(latency.normal));
        candidate.advice = "look at what else uses this storage, or move the workload's data".into();
        candidate.says = format!("storage {name} answers in {value} ms, normal {normal} ms");
    }
    Shows { candidate, latency }
}

/// Whoever is held up by a device waits for it: where a workload's own pressure tells such waits, and they did not grow by
/// a part of what it lost, it lost that elsewhere, however late the device answers. Who waits half of the time already, or
/// whose waits never show (io_uring, direct reads into the GPU), cannot be asked.
fn unwitnessed(view: &View<'_>, name: &str) -> Option<String> {
    let usage = &view.unit.usage;
    let (usual, some) = (usage.calm.usual()?, usage.block.io_some?);
    let asked = view.policy.asks(Gate::Link) && !view.host.signals.mounts.contains_key(name) && !view.blames(name);
    let least = &view.policy.attribution;
    let asked = asked && usual >= least.waits_show.as_fraction() && some < least.waits_much.as_fraction();
    (asked && some - usual < least.waits_grow.as_fraction() * view.unit.deficit()).then(|| {
        view.words(|| {
            format!(
                "the workload waits for I/O {} % of the time, usually {} %: not where it lost {} % of its progress",
                percent(some),
                percent(usual),
                percent(view.unit.deficit())
            )
        })
    })
}

fn percent(part: f64) -> Micro {
    Micro::from_f64(part * 100.0)
}

/// Whether its latency is beyond its own normal and the workload really waits; if not, the number that says so.
fn saturated(view: &View<'_>, name: &str, signals: Option<&StorageSignals>, ratio: f64) -> Result<(), String> {
    let signals = signals.ok_or("no latency was read yet")?;
    let track = &signals.latency;
    if !track.mature(view.policy) {
        return Err(view.words(|| format!("its own latency baseline is not learnt yet ({} blocks)", track.blocks())));
    }
    let latency = track.deviation(view.policy).ok_or("too few operations in the last block to tell its latency")?;
    // To stay blamed takes half of what it takes to be blamed: blocks scatter around any threshold.
    let ratio = if view.active { 1.0 + (ratio - 1.0) / 2.0 } else { ratio };
    if latency.ratio() < ratio || (!view.active && latency.z < view.policy.deviation_z) {
        return Err(view.words(|| {
            format!(
                "latency {} ms is {} x its normal {} ms, not {} x and more",
                Micro::from_f64(latency.value),
                Micro::from_f64(latency.ratio()),
                Micro::from_f64(latency.normal),
                Micro::from_f64(ratio)
            )
        }));
    }
    // A bucket of load is wide: within it a latency is known to no better than a plain disk's ratio.
    let wide = if flooded(view, name) { view.policy.disk_await_ratio.max(ratio) } else { ratio };
    if let Some(usual) = signals.by_load.usual().filter(|usual| latency.value < wide * usual.latency) {
        return Err(view.words(|| {
            format!(
                "latency {} ms is what it shows at this load without anybody suffering: {} ms ({} blocks)",
                Micro::from_f64(latency.value),
                Micro::from_f64(usual.latency),
                usual.n
            )
        }));
    }
    if let Some(borne) = signals.borne.as_bad(latency.value, latency.normal).filter(|_| !view.blames(name)) {
        return Err(view.words(|| {
            format!(
                "latency {} ms is no worse than while nobody suffered: {} ms",
                Micro::from_f64(latency.value),
                Micro::from_f64(borne)
            )
        }));
    }
    let waiting = if view.host.signals.mounts.contains_key(name) {
        signals.in_flight.deviation(view.policy).map_or(0.0, |now| now.value)
    } else {
        view.unit.work.in_flight
    };
    if let Some(why) = unwitnessed(view, name) {
        return Err(why);
    }
    if waiting < view.policy.attribution.waiting {
        return Err(view.words(|| {
            format!(
                "{} requests on average are out on the workload's disks: most of the time it waits for none of them",
                Micro::from_f64(waiting)
            )
        }));
    }
    Ok(())
}
