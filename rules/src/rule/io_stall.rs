//! The workload waits for storage that answers too late or not at all.
//!
//! Three things must come together: the workload waits (PSI of its cgroup, threads blocked in an I/O path), its GPU
//! has less to do for it, and a device or server in its path is out of its own normal. Waiting alone is no fault: a
//! reader that is throttled by its own `io.max` waits for a drive that answers as always.

mod kind;
mod server;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::storage::BlockDevice;
use gpuprod_snapshot::units::Nanos;

use self::kind::Kind;
use super::{Claim, Outcome, Text, View};
use crate::attribution::{self, Blame};
use crate::facts::Demand;
use crate::policy::table::thresholds;
use crate::signals::StorageSignals;
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity};

/// In flight, as a part of what the queue takes, from which a queue is full.
const QUEUE_FULL: f64 = 0.8;
/// Bytes per second, as a part of the most that a device was seen to give, below which it does not keep up.
const SLOW: f64 = 0.5;
/// A device on which the workload itself moves as much as this part of that most is at its own limit.
const OWN_LIMIT: f64 = 0.8;
/// On average so many requests in flight mean that the device was never idle.
const ALWAYS_BUSY: f64 = 0.95;
/// Confidence in a device that does not answer at all: nothing has to be compared.
const STUCK: f64 = 0.9;

/// What is wrong with a device or a server.
struct Trouble {
    object: String,
    variant: &'static str,
    cause: Cause,
    onset: Nanos,
    pressure: Part,
    confidence: Part,
    says: String,
    evidence: Vec<Evidence>,
}

thresholds! {
    /// Thresholds of `io_stall`; the ratio of a disk that is merely slower than normal stands in the policy itself.
    pub struct Thresholds {
        /// Share of time in which a task of the workload waits for I/O from which it is held up, in millionths. PSI's
        /// `some` of .2 is a fifth of the time (kernel, accounting/psi): more than the .15 of lost progress that
        /// warns, as read-ahead hides the rest.
        wait_some: Part = Part(200_000), Part(0)..=Part::ONE;
        /// Share of samples with a thread blocked in an I/O path from which it is, in millionths. Higher than
        /// wait_some: states are samples, and one blocked thread of many in one look of three is what chance shows at
        /// .2 of the time.
        wait_blocked: Part = Part(300_000), Part(0)..=Part::ONE;
        /// A workload without a progress source starves when its GPU is no busier than this, in millionths. A choice,
        /// beside the wait: a GPU that computes more than a third of the time is slowed, not stalled.
        hungry_util: Part = Part(350_000), Part(0)..=Part::ONE;
        /// Latency of a solid-state drive below which no wait is a stall, in milliseconds. A flash drive answers well
        /// below a millisecond, in a few while it collects garbage: 5 ms is a queue or a fault.
        await_ms: f64 = 5.0, 0.0..=100_000.0;
        /// The same of a spinning disk. A seek and half a turn take 8 to 13 ms (7,200 per minute): 20 ms is a queue.
        await_spinning_ms: f64 = 20.0, 0.0..=100_000.0;
        /// The same of a network file system. A choice: the server's own spinning disk, and twice the way; no public
        /// figure is known.
        await_remote_ms: f64 = 50.0, 0.0..=100_000.0;
        /// Latency over the own normal from which a device or server answers too late. Load is taken out before, by
        /// buckets of it (the idea of Perseus, FAST 2023); twice disk_await_ratio, since no lost progress need be
        /// known here.
        await_ratio: f64 = 3.0, 1.0..=1_000.0;
        /// Latency over the own normal from which a device answers too late whatever the clock says: a drive of .15 ms that
        /// needs 3 ms is below every floor and twenty times late.
        await_far: f64 = 10.0, 1.0..=1_000.0;
        /// Others' share of a device's bytes from which they are the cause, in millionths. More than half, with a
        /// margin: who moves as much as all others together is not the victim of the others.
        background: Part = Part(600_000), Part(0)..=Part::ONE;
        /// Bytes per read below which the workload lives on the latency of small files, not on bandwidth. 64 KiB:
        /// below it drives are bound by operations, above it by bytes (read-ahead of the kernel is 128 KiB).
        small_read: f64 = 65_536.0, 0.0..=1e9;
        /// Bytes read again after they fell out of the page cache, as a part of all that is read, in millionths, from
        /// which the page cache does not hold. A tenth: a cache that holds has next to none (workingset_refault_file
        /// of the kernel).
        refault: Part = Part(100_000), Part(0)..=Part::ONE;
        /// A stall must last so long before the rule speaks. Shorter than for starvation: a wait is itself the
        /// evidence, and a stall must be told within 20 s. A full write-back of dirty pages takes seconds.
        for_ns: Nanos = Nanos::from_secs(15), Nanos(0)..=Nanos::from_secs(3_600);
        /// How long it must be good before the rule is silent again. Twice the time to be told, so that a device that
        /// answers now and then is one finding.
        clear_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// A burst of the workload's own writing is a checkpoint for so long. Two minutes: 120 GB at 1 GB/s; longer
        /// holds the job up, whatever it is.
        checkpoint_ns: Nanos = Nanos::from_secs(120), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The workload waits for storage that answers too late or not at all.",
    inputs: "PSI of the workload's cgroup, its blocked threads and where they wait; latency, queue and bytes of the devices \
             and network file systems in its path; utilization.",
    formula: "The workload waits (wait_some, wait_blocked), its GPU has less to do for it, and a device or server in its \
              path is out of its own normal (await_ratio and the floors in milliseconds, or await_far) or answers nothing; all of it lasts \
              for_ns. Ends after clear_ns. background: others move that part of the bytes; cache_thrash: refault of what is \
              read is read again and more than normally; metadata: the mean read is below small_read.",
    silent: "A wait without a late device (a reader at its own io.max), a sync (that is raid_rebuild_impact), a checkpoint of \
             the workload's own, a driver wait, waits that did not grow by a quarter of the loss.",
    advice: "Look at the named device or server; move the neighbour that floods it; drain the node if it answers nothing.",
    blind: "Object stores over sockets and io_uring waits do not show in PSI.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if unit.work.path.disks.is_empty() && unit.work.mounts.is_empty() {
        return Outcome::Absent;
    }
    let (some, blocked) = (unit.usage.block.io_some, unit.usage.block.blocked);
    if some.is_none() && blocked.is_none() {
        return Outcome::Suspended("neither the pressure nor the threads of the workload are read".into());
    }
    if unit.gpu.is_none() && unit.engine.is_none() {
        return Outcome::Suspended("neither the GPU nor an engine speaks for it".into());
    }
    // Loading weights is a wait of its own kind, and ends in a GPU that works.
    if crate::unit::loading(unit) {
        return Outcome::Suspended("it is loading".into());
    }
    let Some(hungry) = hungry(view) else { return Outcome::Silent };
    // Held by what it was held by: to stay takes half of what it takes to enter.
    let half = |limit: Part| limit.as_fraction() / if view.active { 2.0 } else { 1.0 };
    let at_least = |value: Option<f64>, limit: Part| value.is_some_and(|value| value >= half(limit));
    let waits = at_least(some, view.policy.io_stall.wait_some) || at_least(blocked, view.policy.io_stall.wait_blocked);
    if !waits {
        return Outcome::Silent;
    }
    let now = view.host.now;
    if let Some(since) = unit.usage.writes.since()
        && now.saturating_sub(since) < view.policy.io_stall.checkpoint_ns
    {
        // Its own burst of writing: a checkpoint, until it lasts too long for one.
        return Outcome::Silent;
    }
    let mut others = Vec::new();
    let mut worst: Option<Trouble> = None;
    for result in devices(view).into_iter().chain(unit.work.mounts.iter().map(|point| server::trouble(view, point))) {
        match result {
            Ok(trouble) if worst.as_ref().is_none_or(|worst| trouble.confidence > worst.confidence) => {
                worst = Some(trouble)
            }
            Ok(_) => {}
            Err(no) => others.push(no),
        }
    }
    match worst {
        Some(trouble) => {
            let mut rejected = attribution::cleared(view);
            rejected.extend(others);
            Outcome::Claim(claim(view, trouble, hungry, rejected))
        }
        None if view.host.block.is_none() => Outcome::Suspended("no block device is read".into()),
        None => Outcome::Silent,
    }
}

/// Since when the GPU has less to do than it should, on the word of the best witness: the engine's own progress
/// against its normal, or a GPU that stands idle or nearly so under a workload without one.
pub(super) fn hungry(view: &View<'_>) -> Option<Nanos> {
    let unit = view.unit;
    match (&unit.deviation, unit.engine) {
        (Some(deviation), Some(_)) => {
            let wanted = matches!(unit.demand, Demand::Present { .. });
            let bad = unit.deficit_since.filter(|_| wanted)?;
            (view.active || attribution::deviates(deviation, view) || deviation.value <= 0.0).then_some(bad)
        }
        // An engine whose normal is not learnt yet is no witness, and one without work has no trouble.
        (None, Some(_)) => None,
        // A GPU that does less than it did with this workload may pause of its own accord: the cause is looked for.
        (deviation, None) => {
            let slow =
                deviation.as_ref().is_some_and(|deviation| view.active || attribution::deviates(deviation, view));
            unit.deficit_since.filter(|_| slow).or(unit.usage.hungry.since())
        }
    }
}

/// Every disk in the path that no array's sync speaks for.
fn devices(view: &View<'_>) -> Vec<Result<Trouble, Rejected>> {
    let Some(block) = view.host.block else { return Vec::new() };
    let device = |disk: &String| {
        let device = block.devices.iter().find(|device| device.name == *disk)?;
        Some(device_trouble(view, device, view.host.signals.disks.get(disk)?))
    };
    attribution::own_disks(view).filter_map(device).collect()
}

/// So many times its own normal that the clock has no say.
fn far(view: &View<'_>, signals: &StorageSignals) -> f64 {
    signals.latency.normal(view.policy).map_or(f64::INFINITY, |normal| normal * view.policy.io_stall.await_far)
}

/// It is never without a request, and gives little of what it was seen to give.
fn behind(signals: &StorageSignals) -> bool {
    let share = signals.throughput.latest().zip(signals.throughput.highest());
    let slow = share.is_some_and(|(rate, most)| rate / most.max(f64::MIN_POSITIVE) < SLOW);
    slow && signals.in_flight.latest().is_some_and(|in_flight| in_flight >= ALWAYS_BUSY)
}

/// The workload's loss is measured against its own pace, and no page of its own tells more: then order and ratio decide, and
/// no floor in milliseconds is needed.
fn paced(view: &View<'_>) -> bool {
    let unit = view.unit;
    let silent = unit.engine.is_none() && unit.trainer.page.is_none();
    silent && unit.deviation.as_ref().is_some_and(|deviation| view.active || attribution::deviates(deviation, view))
}

fn device_trouble(view: &View<'_>, device: &BlockDevice, signals: &StorageSignals) -> Result<Trouble, Rejected> {
    let name = &device.name;
    if let Some(since) = signals.stuck_since {
        return stuck(view, name, since, Cause::Storage, "stuck");
    }
    let reject = |why: String| Rejected { cause: Cause::Storage, of: name.clone(), why };
    let policy = view.policy;
    let floor = if device.rotational.copied() == Some(true) {
        policy.io_stall.await_spinning_ms
    } else {
        policy.io_stall.await_ms
    };
    let floor = floor.min(far(view, signals));
    let late = signals.latency.latest().is_some_and(|latency| latency >= floor / if view.active { 2.0 } else { 1.0 });
    let in_flight = signals.in_flight.latest().unwrap_or(0.0);
    let full = device.nr_requests.copied().is_some_and(|most| most > 0 && in_flight >= QUEUE_FULL * f64::from(most));
    let (rate, most) = (signals.throughput.latest(), signals.throughput.highest());
    let share = rate.zip(most).map(|(rate, most)| rate / most.max(f64::MIN_POSITIVE));
    let behind = behind(signals);
    let paced = paced(view);
    let others = attribution::others(view, name);
    let background = attribution::flooded(view, name);
    let thrashes = kind::thrashes(view);
    if let (Some(share), Some(_)) = (share, others)
        && share >= OWN_LIMIT
        && !background
        && !late
        && thrashes.is_none()
    {
        return Err(reject(format!(
            "it gives {} % of the most it was seen to give, and the workload takes it: its own demand",
            Micro::from_f64(share * 100.0)
        )));
    }
    // Under a neighbour's flood a device need not be late by the clock: the workload waits behind it.
    if !(late || full || behind || background || paced || view.active) {
        return Err(reject(format!(
            "answers in {} ms, below {} ms, with {} requests out: the wait is not the device's (own io.max, locks)",
            Micro::from_f64(signals.latency.latest().unwrap_or(0.0)),
            Micro::from_f64(floor),
            Micro::from_f64(in_flight)
        )));
    }
    let ratio = if late && !paced { policy.io_stall.await_ratio } else { attribution::ratio(view, name) };
    let Blame { object, confidence, pressure, latency, mut evidence } = attribution::gates(view, name, signals, ratio)?;
    evidence
        .extend(others.map(|share| Evidence::plain("of its bytes are not the workload's", name, share * 100.0, "%")));
    evidence.extend(
        share.map(|share| Evidence::plain("throughput, of the most it was seen to give", name, share * 100.0, "%")),
    );
    evidence.push(Evidence::plain("requests in flight, on average", name, in_flight, "requests"));
    // Whose I/O it is comes before what kind of I/O it is.
    let kind = if background { None } else { thrashes.or_else(|| kind::small(view, name, signals)) };
    let (kind, more) = kind.map_or((None, String::new()), |Kind { variant, says, evidence: shown }| {
        evidence.extend(shown);
        (Some(variant), says)
    });
    Ok(Trouble {
        says: format!(
            "{object} answers in {} ms, normal {} ms{}{more}",
            Micro::from_f64(latency.value),
            Micro::from_f64(latency.normal),
            if background { ", under I/O that is not the workload's" } else { "" }
        ),
        object,
        variant: if background { "background" } else { kind.unwrap_or("late") },
        cause: if background { Cause::BackgroundIo } else { Cause::Storage },
        onset: latency.onset.unwrap_or(view.host.now),
        pressure,
        confidence,
        evidence,
    })
}

/// Requests are out and nothing comes back. A device that never did anything for the workload is not stuck for it.
fn stuck(view: &View<'_>, name: &str, since: Nanos, cause: Cause, variant: &'static str) -> Result<Trouble, Rejected> {
    let age = view.host.now.saturating_sub(since);
    if age < view.policy.io_stall.for_ns {
        let why = format!("no request has come back for {} s, not long enough", Micro::from_f64(age.as_secs_f64()));
        return Err(Rejected { cause, of: name.into(), why });
    }
    Ok(Trouble {
        object: name.into(),
        variant,
        cause,
        onset: since,
        pressure: Part::ONE,
        confidence: Part::from_fraction(STUCK).min(confidence(view)),
        says: format!("{name} has requests out, and none has come back for {} s", Micro::from_f64(age.as_secs_f64())),
        evidence: alloc::vec![Evidence::plain("without an answer", name, age.as_secs_f64(), "s")],
    })
}

/// A verdict is no surer than the figure of what it cost.
fn confidence(view: &View<'_>) -> Part {
    view.unit.weight.source.confidence()
}

fn claim(view: &View<'_>, trouble: Trouble, hungry: Nanos, rejected: Vec<Rejected>) -> Claim {
    let unit = view.unit;
    let critical = unit.deficit() >= view.policy.starved_critical.as_fraction();
    let waits = unit.usage.waits.since().or(unit.usage.waits_remote.since()).unwrap_or(view.host.now);
    let mut evidence = attribution::victim_evidence(view);
    let block = &unit.usage.block;
    if let Some(share) = block.blocked {
        evidence.push(Evidence::plain(
            "of the samples had a thread blocked in an I/O path",
            &unit.name,
            share * 100.0,
            "%",
        ));
    }
    evidence.extend(trouble.evidence);
    Claim {
        variant: Some(trouble.variant.into()),
        severity: if critical { Severity::Critical } else { Severity::Warn },
        cause: Some(trouble.cause),
        deficit: unit.weight.w.rest(),
        // All three have to last: the hold runs from the latest beginning.
        onset: trouble.onset.max(hungry).max(waits).min(view.host.now),
        pressure: trouble.pressure,
        confidence: trouble.confidence,
        summary: format!(
            "{}; the workload waits for I/O {} % of the time and makes {} % of its progress",
            trouble.says,
            Micro::from_f64(block.io_some.unwrap_or(0.0).max(block.blocked.unwrap_or(0.0)) * 100.0),
            Micro::from_f64((1.0 - unit.deficit()) * 100.0)
        ),
        evidence,
        rejected,
        advice: advice(trouble.variant, &trouble.object),
        object: trouble.object,
        holders: Vec::new(),
    }
}

fn advice(variant: &str, object: &str) -> String {
    match variant {
        "stuck" => format!(
            "look for the drive's errors (`dmesg`, `smartctl -a /dev/{object}`, /sys/block/{object}/inflight); drain the node if it does not come back"
        ),
        "cache_thrash" => format!(
            "give the workload's cgroup room for its files (memory.high, memory.max), shrink what is read at once, or copy the data set to a local drive that is faster than {object}"
        ),
        "metadata" => format!(
            "pack small files (tar shards, a database, a cache on a local drive): {object} answers each of them late; look at what else loads it"
        ),
        "background" => format!(
            "find who else uses {object} (`iotop -o`, io.stat of the other cgroups) and limit it with io.max, or move one of the two"
        ),
        "server_stuck" | "server_late" => format!(
            "look at the server of {object} and the way to it (`nfsiostat {object}`, `dmesg` for \"not responding\"); other nodes of the same mount should see it too"
        ),
        _ => format!(
            "look at {object} itself: media errors, temperature, write cache full, discards (`smartctl -a /dev/{object}`)"
        ),
    }
}
