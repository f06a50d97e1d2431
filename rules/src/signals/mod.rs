//! The shared tables: what was learnt about engines, disks and arrays. Rules read them and hold nothing.

pub(crate) mod busy;
pub(crate) mod checkpoints;
pub(crate) mod exact;
pub(crate) mod host;
pub(crate) mod node;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::storage::{FsMount, IoCounters, MemberFlag, SyncState};
use gpuprod_snapshot::units::{Nanos, to_f64};
use gpuprod_snapshot::{Source, Tick};
use serde::{Deserialize, Serialize};

use crate::baseline::{Track, Worse};
use crate::join::disks_of;
use crate::window::Window;
use crate::{Policy, entries};
use exact::Exact;
use host::HostSignals;

pub(crate) mod device;
pub(crate) mod engine_load;

/// Prompt tokens cost about a tenth of generated ones: prefill is bound by arithmetic and runs thousands of
/// tokens a step, decode is bound by memory and runs one per sequence. A prior until both rates are learnt apart.
const PREFILL_PER_DECODE: f64 = 10.0;
/// The weight of a tick looks back so far: single seconds of a healthy engine are noisy.
const TRAIL: Nanos = Nanos::from_secs(10);
/// A mean latency over fewer operations than this in a block says nothing (counters are whole milliseconds).
const ENOUGH_OPERATIONS: f64 = 10.0;
/// A block of an engine counts when at least so many seconds of it were seen.
const ENOUGH_SECONDS: f64 = 2.0;

/// Everything that was learnt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Signals {
    /// By URL.
    #[serde(with = "entries")]
    pub(crate) engines: BTreeMap<String, EngineSignals>,
    /// By disk.
    #[serde(with = "entries")]
    pub(crate) disks: BTreeMap<String, StorageSignals>,
    /// By array: of its members in sync.
    #[serde(with = "entries")]
    pub(crate) arrays: BTreeMap<String, StorageSignals>,
    /// By mount point: network file systems that count.
    #[serde(default, with = "entries")]
    pub(crate) mounts: BTreeMap<String, StorageSignals>,
    /// GPUs as devices.
    #[serde(default)]
    pub(crate) devices: device::Devices,
    /// Of the node as a whole.
    #[serde(default)]
    pub(crate) node: node::NodeSignals,
    /// What engines had to do lately, by URL.
    #[serde(default, with = "entries")]
    pub(crate) load: BTreeMap<String, engine_load::EngineLoad>,
    /// Of the node around the GPUs.
    #[serde(default)]
    pub(crate) host: HostSignals,
    block: Option<u64>,
}

/// What was learnt about an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EngineSignals {
    /// The baselines belong to this model.
    model: Option<String>,
    /// Work per second (generated tokens, and prompt tokens at their discount), by batch: the power of two
    /// below the number of running requests. One sequence is slower than sixteen, and both are healthy.
    #[serde(with = "entries")]
    reference: BTreeMap<u32, Track>,
    /// Progress as a part of the reference.
    pub(crate) ratio: Track,
    /// The last seconds: end, length in seconds, ratio if there is a reference, work.
    trail: VecDeque<(Nanos, f64, Option<f64>, f64)>,
    /// What is booked of it.
    #[serde(default)]
    exact: Exact,
}

/// What was learnt about a disk or an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StorageSignals {
    /// Milliseconds per operation.
    pub(crate) latency: Track,
    /// Operations in flight, on average (Little: time summed over operations, per time). Latency alone can rise
    /// because the reader was throttled into bursts; then less is in flight, not more.
    pub(crate) in_flight: Track,
    /// Bytes per second.
    #[serde(default = "throughput")]
    pub(crate) throughput: Track,
    /// Requests are out and none has come back, since.
    #[serde(default)]
    pub(crate) stuck_since: Option<Nanos>,
    /// The sync under way was first seen at.
    pub(crate) sync_since: Option<Nanos>,
    /// A sync was last seen at.
    #[serde(default)]
    pub(crate) synced: Option<Nanos>,
}

fn throughput() -> Track {
    Track::new(Worse::Lower, ENOUGH_SECONDS)
}

/// What happened between two readings of a device.
#[derive(Clone, Copy, Debug)]
struct Step {
    operations: f64,
    millis: f64,
    bytes: f64,
    /// Requests are out, and nothing was done in all the time between.
    stuck: bool,
}

impl StorageSignals {
    fn new() -> Self {
        Self {
            latency: Track::new(Worse::Higher, ENOUGH_OPERATIONS),
            in_flight: Track::new(Worse::Higher, ENOUGH_SECONDS),
            throughput: throughput(),
            stuck_since: None,
            sync_since: None,
            synced: None,
        }
    }

    fn add(&mut self, step: Step, between: Nanos, now: Nanos) {
        let seconds = between.as_secs_f64();
        self.latency.add(step.millis, step.operations);
        self.in_flight.add(step.millis / 1e3, seconds);
        self.throughput.add(step.bytes, seconds);
        self.stuck_since = step.stuck.then(|| self.stuck_since.unwrap_or(now.saturating_sub(between)));
    }

    fn close(&mut self, start: Nanos, healthy: bool, policy: &Policy) {
        self.latency.close(start, healthy, policy);
        self.in_flight.close(start, healthy, policy);
        self.throughput.close(start, healthy, policy);
    }
}

/// Subjects whose blocks may not become part of a baseline now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Suspect {
    /// Engines with a bad or unjudged workload.
    pub(crate) engines: BTreeSet<String>,
    /// Disks under a sync, or under an active finding.
    pub(crate) disks: BTreeSet<String>,
    /// Arrays likewise.
    pub(crate) arrays: BTreeSet<String>,
    /// Network mounts likewise.
    #[serde(default)]
    pub(crate) mounts: BTreeSet<String>,
    /// Cgroups of workloads likewise.
    #[serde(default)]
    pub(crate) workloads: BTreeSet<String>,
}

impl Signals {
    /// Takes in what the tick brought, and closes the block if its time is over.
    pub(crate) fn update(&mut self, window: &Window, tick: &Tick, suspect: &Suspect, policy: &Policy) {
        let block_ns = policy.block_ns.0.max(1);
        let block = tick.stamp.boottime.0 / block_ns;
        match self.block {
            Some(open) if open != block => {
                self.close(Nanos(open.saturating_mul(block_ns)), suspect, policy);
                self.block = Some(block);
            }
            None => self.block = Some(block),
            Some(_) => {}
        }
        self.devices.update(window, tick, policy);
        if tick.engine.is_some() {
            self.engines(window, policy);
        }
        let now = tick.stamp.boottime;
        for engine in self.engines.values_mut() {
            let fresh = engine.is_fresh(now);
            engine.exact.book(now, fresh);
        }
        if tick.block.is_some() {
            self.storage(window);
            self.node.update(window);
        }
        if tick.fs.is_some() {
            self.remote(window);
        }
        self.host.update(window, tick);
    }

    /// Keeps every own normal and drops the present ([`Track::rest`]).
    pub(crate) fn rest(&mut self) {
        self.block = None;
        self.devices.rest();
        self.node.rest();
        self.host.rest();
        for engine in self.engines.values_mut() {
            engine.reference.values_mut().for_each(Track::rest);
            engine.ratio.rest();
            engine.trail.clear();
            engine.exact.rest();
        }
        self.load.values_mut().for_each(engine_load::EngineLoad::rest);
        for storage in self.disks.values_mut().chain(self.arrays.values_mut()).chain(self.mounts.values_mut()) {
            storage.latency.rest();
            storage.in_flight.rest();
            storage.throughput.rest();
            (storage.sync_since, storage.synced, storage.stuck_since) = (None, None, None);
        }
    }

    fn close(&mut self, start: Nanos, suspect: &Suspect, policy: &Policy) {
        self.devices.close(start, policy);
        self.node.close(start, suspect, policy);
        self.host.close(start, suspect, policy);
        for (url, engine) in &mut self.engines {
            let healthy = !suspect.engines.contains(url);
            for track in engine.reference.values_mut() {
                track.close(start, healthy, policy);
            }
            engine.ratio.close(start, healthy, policy);
        }
        for (url, load) in &mut self.load {
            load.close(start, !suspect.engines.contains(url), policy);
        }
        for (name, disk) in &mut self.disks {
            disk.close(start, !suspect.disks.contains(name), policy);
        }
        for (name, array) in &mut self.arrays {
            array.close(start, !suspect.arrays.contains(name), policy);
        }
        for (point, mount) in &mut self.mounts {
            mount.close(start, !suspect.mounts.contains(point), policy);
        }
    }

    fn engines(&mut self, window: &Window, policy: &Policy) {
        let Some((old, new, _)) = window.pair(|tick| &tick.engine) else {
            return;
        };
        for engine in &new.engines {
            let Some(before) = old.engines.iter().find(|before| before.url == engine.url) else {
                continue;
            };
            let signals = self.engines.entry(engine.url.clone()).or_insert_with(EngineSignals::new);
            signals.step(before, engine, policy);
            self.load.entry(engine.url.clone()).or_default().step(before, engine, policy);
        }
    }

    fn storage(&mut self, window: &Window) {
        let Some((old, new, between)) = window.pair(|tick| &tick.block) else {
            return;
        };
        let now = window.last.stamp.boottime;
        let mut deltas: BTreeMap<&str, Step> = BTreeMap::new();
        for device in &new.devices {
            let before = old.devices.iter().find(|before| before.name == device.name && before.dev == device.dev);
            let counters = before.and_then(|before| before.io.get()).zip(device.io.get());
            let Some(step) = counters.and_then(|(before, after)| step(before, after)) else {
                continue;
            };
            deltas.insert(&device.name, step);
            let disk = self.disks.entry(device.name.clone()).or_insert_with(StorageSignals::new);
            disk.add(step, between, now);
        }
        let Some(md) = window.value(Source::Md, |tick| &tick.md).get().copied() else {
            return;
        };
        for array in &md.arrays {
            let signals = self.arrays.entry(array.name.clone()).or_insert_with(StorageSignals::new);
            let running = array.sync.get() == Some(&SyncState::Running);
            signals.sync_since = running.then(|| signals.sync_since.unwrap_or(now));
            if running {
                signals.synced = Some(now);
            }
            // The member that is being written tells nothing about what a reader waits for.
            let mut steady = array.clone();
            steady.members.retain(|member| {
                !member.has(&MemberFlag::Faulty) && !member.has(&MemberFlag::Spare) && !member.has(&MemberFlag::Journal)
            });
            for disk in disks_of(&steady, new, md) {
                if let Some(step) = deltas.get(disk.as_str()) {
                    signals.add(*step, between, now);
                }
            }
        }
    }
}

impl Signals {
    fn remote(&mut self, window: &Window) {
        let Some((old, new, between)) = window.pair(|tick| &tick.fs) else {
            return;
        };
        let now = window.last.stamp.boottime;
        for mount in &new.mounts {
            let Some(before) = old.mounts.iter().find(|before| before.point == mount.point) else { continue };
            let delta = |pick: fn(&FsMount) -> Option<u64>| pick(mount)?.checked_sub(pick(before)?).map(to_f64);
            let (Some(operations), Some(nanos)) =
                (delta(|fs| fs.ops.copied()), delta(|fs| fs.rtt.copied().map(|rtt| rtt.0)))
            else {
                continue;
            };
            let read = delta(|fs| fs.read.copied().map(|bytes| bytes.0)).unwrap_or(0.0);
            let stuck = operations <= 0.0 && mount.unanswered.copied().is_some_and(|requests| requests > 0);
            let step = Step { operations, millis: nanos / 1e6, bytes: read, stuck };
            self.mounts.entry(mount.point.clone()).or_insert_with(StorageSignals::new).add(step, between, now);
        }
    }
}

impl EngineSignals {
    fn new() -> Self {
        Self {
            model: None,
            reference: BTreeMap::new(),
            ratio: Track::new(Worse::Lower, ENOUGH_SECONDS),
            trail: VecDeque::new(),
            exact: Exact::default(),
        }
    }

    fn step(&mut self, before: &Engine, after: &Engine, policy: &Policy) {
        let model = after.model.get().cloned();
        if model.is_some() && self.model != model {
            // Another model has another normal.
            *self = Self { model, ..Self::new() };
        }
        let Some(seconds) = after.at.checked_sub(before.at).filter(|dt| dt.0 > 0).map(Nanos::as_secs_f64) else {
            return;
        };
        while self.trail.front().is_some_and(|(at, ..)| after.at.saturating_sub(*at) >= TRAIL) {
            self.trail.pop_front();
        }
        let Some(work) = work(before, after) else {
            // The counters are gone or began anew: nothing can be said of this step.
            return;
        };
        let rate = work / seconds;
        let running = after.running.copied();
        let ratio = running.filter(|running| *running > 0).and_then(|running| {
            let batch = running.checked_ilog2().unwrap_or(0);
            let reference = self.reference.entry(batch).or_insert_with(|| Track::new(Worse::Lower, ENOUGH_SECONDS));
            reference.add(work, seconds);
            if reference.mature(policy) {
                self.ratio.seed(reference);
            }
            reference.normal(policy).filter(|normal| *normal > 0.0).map(|normal| rate / normal)
        });
        if let Some(ratio) = ratio {
            self.ratio.add(ratio * seconds, seconds);
        }
        self.exact.page(ratio, seconds, self.ratio.spread());
        self.trail.push_back((after.at, seconds, ratio, work));
    }

    /// Progress of the last seconds as a part of the own normal; nothing without a reference, or when the last
    /// page is older than the trail.
    pub(crate) fn progress(&self, now: Nanos) -> Option<f64> {
        let (sum, seconds) = self
            .trail
            .iter()
            .filter_map(|(_, seconds, ratio, _)| ratio.map(|ratio| (ratio * seconds, seconds)))
            .fold((0.0, 0.0), |(sum, all), (part, seconds)| (sum + part, all + seconds));
        (self.is_fresh(now) && seconds > 0.0).then(|| sum / seconds)
    }

    /// Whether a page came within the trail.
    pub(crate) fn is_fresh(&self, now: Nanos) -> bool {
        self.trail.back().is_some_and(|(at, ..)| now.saturating_sub(*at) < TRAIL)
    }

    /// The productive part of the tick at hand, exact over time; nothing without a reference.
    pub(crate) fn exact(&self) -> Option<f64> {
        self.exact.w()
    }

    /// Healthy blocks of the batch size that is known best.
    pub(crate) fn blocks(&self) -> u32 {
        self.reference.values().map(Track::blocks).max().unwrap_or(0)
    }

    /// Work per second over the last seconds.
    pub(crate) fn rate(&self) -> Option<f64> {
        let (work, seconds) =
            self.trail.iter().fold((0.0, 0.0), |(work, all), (_, seconds, _, part)| (work + part, all + seconds));
        (seconds > 0.0).then(|| work / seconds)
    }

    /// Ordinary scatter of the ratio: progress within two of these is the normal itself.
    pub(crate) fn scatter(&self) -> f64 {
        self.ratio.spread().max(0.02)
    }
}

/// Work between two pages of one engine; nothing when a counter is missing or stepped back (a restart).
fn work(before: &Engine, after: &Engine) -> Option<f64> {
    let delta = |before: &gpuprod_snapshot::Reading<u64>, after: &gpuprod_snapshot::Reading<u64>| match (
        before.copied(),
        after.copied(),
    ) {
        (Some(before), Some(after)) => after.checked_sub(before).map(Some),
        _ => Some(None),
    };
    let generated = delta(&before.generation_tokens, &after.generation_tokens)?;
    let prompt = delta(&before.prompt_tokens, &after.prompt_tokens)?;
    match (generated, prompt) {
        (None, None) => None,
        (generated, prompt) => Some(to_f64(generated.unwrap_or(0)) + to_f64(prompt.unwrap_or(0)) / PREFILL_PER_DECODE),
    }
}

/// What happened between two lines of diskstats; the millisecond counters wrap at 2^32.
fn step(before: &IoCounters, after: &IoCounters) -> Option<Step> {
    let operations = after.reads.checked_sub(before.reads)?.checked_add(after.writes.checked_sub(before.writes)?)?;
    let sectors = after.sectors_read.checked_sub(before.sectors_read)?;
    let sectors = sectors.checked_add(after.sectors_written.checked_sub(before.sectors_written)?)?;
    let millis =
        u64::from(after.read_ms.wrapping_sub(before.read_ms)) + u64::from(after.write_ms.wrapping_sub(before.write_ms));
    Some(Step {
        operations: to_f64(operations),
        millis: to_f64(millis),
        bytes: to_f64(sectors) * 512.0,
        stuck: operations == 0 && after.in_flight > 0 && before.in_flight > 0,
    })
}
