//! What was learnt of disks, arrays and network file systems: latency, requests in flight, bytes per second.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use gpuprod_snapshot::Source;
use gpuprod_snapshot::storage::{FsMount, IoCounters, MdMember, MemberFlag, SyncState};
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::borne::Borne;
use super::by_load::ByLoad;
use super::{ENOUGH_SECONDS, Signals};
use crate::Policy;
use crate::baseline::{Last, Track, Worse};
use crate::join::{by_name, disks_below};
use crate::window::Window;

/// A mean latency over fewer operations than this in a block says nothing (counters are whole milliseconds).
const ENOUGH_OPERATIONS: f64 = 10.0;

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
    /// Bytes per read, of the last block.
    #[serde(default)]
    pub(crate) read_size: Last,
    /// What latency is normal at which load.
    #[serde(default)]
    pub(crate) by_load: ByLoad,
    /// How late it was while nobody suffered.
    #[serde(default)]
    pub(crate) borne: Borne,
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
    /// Bytes that were read, and in how many reads.
    read: (f64, f64),
    /// Requests are out, and nothing was done in all the time between.
    stuck: bool,
}

impl StorageSignals {
    fn new() -> Box<Self> {
        Box::new(Self {
            latency: Track::new(Worse::Higher, ENOUGH_OPERATIONS),
            in_flight: Track::new(Worse::Higher, ENOUGH_SECONDS),
            throughput: throughput(),
            read_size: Last::default(),
            by_load: ByLoad::default(),
            borne: Borne::default(),
            stuck_since: None,
            sync_since: None,
            synced: None,
        })
    }

    fn add(&mut self, step: Step, between: Nanos, now: Nanos) {
        let seconds = between.as_secs_f64();
        self.latency.add(step.millis, step.operations);
        self.in_flight.add(step.millis / 1e3, seconds);
        self.throughput.add(step.bytes, seconds);
        self.read_size.add(step.read.0, step.read.1);
        self.stuck_since = step.stuck.then(|| self.stuck_since.unwrap_or(now.saturating_sub(between)));
    }

    pub(super) fn close(&mut self, start: Nanos, healthy: bool, policy: &Policy) {
        self.latency.close(start, healthy, policy);
        self.in_flight.close(start, healthy, policy);
        self.throughput.gauge(start, healthy, policy);
        self.read_size.close(ENOUGH_OPERATIONS);
        self.borne.close(self.latency.latest(), self.latency.alarms(policy), healthy);
        let latest = self.latency.latest().zip(self.in_flight.latest()).zip(self.throughput.latest());
        self.by_load.close(latest.map(|((latency, in_flight), bytes)| (latency, in_flight, bytes)), healthy);
    }

    /// Keeps the own normal and drops the present.
    pub(super) fn rest(&mut self) {
        [&mut self.latency, &mut self.in_flight, &mut self.throughput].into_iter().for_each(Track::rest);
        self.read_size = Last::default();
        self.by_load.rest();
        self.borne.rest();
        (self.sync_since, self.synced, self.stuck_since) = (None, None, None);
    }
}

impl Signals {
    pub(super) fn storage(&mut self, window: &Window) {
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
            let disk = match self.disks.get_mut(&device.name) {
                Some(known) => known,
                None => self.disks.entry(device.name.clone()).or_insert_with(StorageSignals::new),
            };
            disk.add(step, between, now);
        }
        let Some(md) = window.value(Source::Md, |tick| &tick.md).get().copied() else {
            return;
        };
        let devices = by_name(new);
        for array in &md.arrays {
            let signals = match self.arrays.get_mut(&array.name) {
                Some(known) => known,
                None => self.arrays.entry(array.name.clone()).or_insert_with(StorageSignals::new),
            };
            let running = array.sync.get() == Some(&SyncState::Running);
            signals.sync_since = running.then(|| signals.sync_since.unwrap_or(now));
            if running {
                signals.synced = Some(now);
            }
            // The member that is being written tells nothing about what a reader waits for.
            for disk in disks_below(array, steady, &devices, md) {
                if let Some(step) = deltas.get(disk.as_str()) {
                    signals.add(*step, between, now);
                }
            }
        }
    }

    pub(super) fn remote(&mut self, window: &Window) {
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
            let step = Step { operations, millis: nanos / 1e6, bytes: read, read: (read, operations), stuck };
            self.mounts.entry(mount.point.clone()).or_insert_with(StorageSignals::new).add(step, between, now);
        }
    }
}

/// A member that readers wait for.
fn steady(member: &MdMember) -> bool {
    ![MemberFlag::Faulty, MemberFlag::Spare, MemberFlag::Journal].iter().any(|flag| member.has(flag))
}

/// What happened between two lines of diskstats; the millisecond counters wrap at 2^32.
fn step(before: &IoCounters, after: &IoCounters) -> Option<Step> {
    let reads = after.reads.checked_sub(before.reads)?;
    let operations = reads.checked_add(after.writes.checked_sub(before.writes)?)?;
    let sectors_read = after.sectors_read.checked_sub(before.sectors_read)?;
    let sectors = sectors_read.checked_add(after.sectors_written.checked_sub(before.sectors_written)?)?;
    let millis =
        u64::from(after.read_ms.wrapping_sub(before.read_ms)) + u64::from(after.write_ms.wrapping_sub(before.write_ms));
    Some(Step {
        operations: to_f64(operations),
        millis: to_f64(millis),
        bytes: to_f64(sectors) * 512.0,
        read: (to_f64(sectors_read) * 512.0, to_f64(reads)),
        stuck: operations == 0 && after.in_flight > 0 && before.in_flight > 0,
    })
}
