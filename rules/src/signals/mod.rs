//! The shared tables: what was learnt about engines, disks and arrays. Rules read them and hold nothing.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::topology::PciAddress;
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Source, Tick};
use serde::{Deserialize, Serialize};

use crate::fingerprint::{Hardware, Seen};
use crate::window::Window;
use crate::{Policy, entries};
use host::HostSignals;

pub(crate) mod activity;
pub(crate) mod borne;
pub(crate) mod busy;
mod by_load;
pub(crate) mod checkpoints;
pub(crate) mod device;
pub(crate) mod engine_load;
mod engines;
pub(crate) mod evals;
pub(crate) mod exact;
pub(crate) mod host;
pub(crate) mod node;
pub(crate) mod own;
pub(crate) mod pcie;
pub(crate) mod sharing;
pub(crate) mod silicon;
pub(crate) mod steps;
mod storage;
pub(crate) mod waits;
mod work;

pub(crate) use engines::EngineSignals;
pub(crate) use storage::StorageSignals;

/// A block of an engine counts when at least so many seconds of it were seen.
const ENOUGH_SECONDS: f64 = 2.0;

/// Everything that was learnt. Large values are boxed: a map's leaf has room for eleven.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Signals {
    /// By URL.
    #[serde(with = "entries")]
    pub(crate) engines: BTreeMap<String, Box<EngineSignals>>,
    /// Training jobs that count their steps, by URL.
    #[serde(default, with = "entries")]
    pub(crate) steps: BTreeMap<String, Box<steps::StepSignals>>,
    /// By disk.
    #[serde(with = "entries")]
    pub(crate) disks: BTreeMap<String, Box<StorageSignals>>,
    /// By array: of its members in sync.
    #[serde(with = "entries")]
    pub(crate) arrays: BTreeMap<String, Box<StorageSignals>>,
    /// By mount point: network file systems that count.
    #[serde(default, with = "entries")]
    pub(crate) mounts: BTreeMap<String, Box<StorageSignals>>,
    /// GPUs as devices.
    #[serde(default)]
    pub(crate) devices: device::Devices,
    /// Of the node as a whole.
    #[serde(default)]
    pub(crate) node: node::NodeSignals,
    /// What engines had to do lately, by URL.
    #[serde(default, with = "entries")]
    pub(crate) load: BTreeMap<String, Box<engine_load::EngineLoad>>,
    /// Of the node around the GPUs.
    #[serde(default)]
    pub(crate) host: HostSignals,
    /// Of the ways between GPUs and the host.
    #[serde(default)]
    pub(crate) pcie: pcie::PcieSignals,
    block: Option<u64>,
}

/// Subjects whose blocks may not become part of a baseline now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Suspect {
    /// Engines with a bad or unjudged workload.
    pub(crate) engines: BTreeSet<String>,
    /// Engines that something other than their load slows down, by what is confirmed, and since when.
    #[serde(default)]
    pub(crate) slowed: BTreeMap<String, Nanos>,
    /// Disks under a sync, or under an active finding.
    pub(crate) disks: BTreeSet<String>,
    /// Arrays likewise.
    pub(crate) arrays: BTreeSet<String>,
    /// Network mounts likewise.
    #[serde(default)]
    pub(crate) mounts: BTreeSet<String>,
    /// Utilization of the busiest GPU of an engine in the last block.
    #[serde(default)]
    pub(crate) busy: BTreeMap<String, f64>,
    /// Intensity of the silicon of an engine at the last tick, as a part of its own normal.
    #[serde(default)]
    pub(crate) silicon: BTreeMap<String, f64>,
    /// Training jobs that count their steps: whether they may be learnt from.
    #[serde(default)]
    pub(crate) steps: BTreeMap<String, steps::Lesson>,
    /// What the GPUs of an engine or a training job are, by its page.
    #[serde(default)]
    pub(crate) hardware: Vec<(String, Hardware)>,
    /// Cgroups of workloads likewise.
    #[serde(default)]
    pub(crate) workloads: BTreeSet<String>,
    /// A number for the workload of each GPU, of this tick only: what has the same is one workload.
    #[serde(default)]
    pub(crate) owners: Vec<(PciAddress, usize)>,
}

impl Suspect {
    fn lesson(&self, url: &str) -> steps::Lesson {
        self.steps.get(url).copied().unwrap_or_default()
    }

    /// What the workload of a page runs on, as far as it was told lately.
    fn seen<'a>(&self, url: &str, window: &'a Window) -> Seen<'a> {
        let gpus = window.value(Source::Gpu, |tick| &tick.gpu).get().copied();
        let on = self.hardware.iter().find(|(of, _)| of == url).map(|(_, on)| *on).unwrap_or_default();
        Seen { on, driver: gpus.and_then(|gpus| gpus.driver.get()).map(String::as_str) }
    }
}

impl Signals {
    /// Takes in what the tick brought, and closes the block if its time is over.
    pub(crate) fn update(&mut self, window: &Window, tick: &Tick, suspect: &Suspect, policy: &Policy) {
        let block_ns = policy.block_ns.0.max(1);
        let block = tick.stamp.boottime.0 / block_ns;
        match self.block {
            Some(open) if open != block => {
                self.close(Nanos(open.saturating_mul(block_ns)), suspect, policy);
                self.age(tick.stamp.realtime, suspect);
                self.block = Some(block);
            }
            None => self.block = Some(block),
            Some(_) => {}
        }
        self.devices.update(window, tick, policy);
        self.pcie.update(window, tick, &self.devices);
        if tick.engine.is_some() {
            self.engines(window, suspect, policy);
            self.trainers(window, suspect, policy);
        }
        let now = tick.stamp.boottime;
        for engine in self.engines.values_mut() {
            engine.book(now);
        }
        for (url, steps) in &mut self.steps {
            steps.book(now, suspect.lesson(url), policy);
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

    fn trainers(&mut self, window: &Window, suspect: &Suspect, policy: &Policy) {
        let Some(pages) = window.last.engine.as_ref().and_then(|sample| sample.value.get()) else { return };
        for page in pages.engines.iter().filter(|page| page.trains() && page.steps.get().is_some()) {
            if !self.steps.contains_key(&page.url) {
                self.steps.insert(page.url.clone(), Box::default());
            }
            if let Some(steps) = self.steps.get_mut(&page.url) {
                if steps.print.see(page, suspect.seen(&page.url, window)) {
                    steps.renew();
                }
                steps.read(page, suspect.lesson(&page.url), policy);
            }
        }
    }

    /// Ends a block of what normals were learnt on: those that nothing has confirmed for long begin anew.
    fn age(&mut self, now: Nanos, suspect: &Suspect) {
        for (url, engine) in &mut self.engines {
            if engine.ages(now, !suspect.engines.contains(url)) {
                engine.renew();
                self.load.get_mut(url).into_iter().for_each(|load| load.renew());
            }
        }
        for (url, steps) in &mut self.steps {
            if steps.ages(now, suspect.lesson(url)) {
                steps.renew();
            }
        }
    }

    /// Keeps every own normal and drops the present ([`crate::baseline::Track::rest`]).
    pub(crate) fn rest(&mut self) {
        self.block = None;
        self.devices.rest();
        self.pcie.rest();
        self.node.rest();
        self.host.rest();
        self.engines.values_mut().for_each(|engine| engine.rest());
        self.steps.values_mut().for_each(|steps| steps.rest());
        self.load.values_mut().for_each(|load| load.rest());
        for storage in self.disks.values_mut().chain(self.arrays.values_mut()).chain(self.mounts.values_mut()) {
            storage.rest();
        }
    }

    fn close(&mut self, start: Nanos, suspect: &Suspect, policy: &Policy) {
        self.devices.close(start, policy);
        self.pcie.close(start, suspect.engines.is_empty() && suspect.workloads.is_empty(), &suspect.owners, policy);
        self.node.close(start, suspect, policy);
        self.host.close(start, suspect, policy);
        for (url, engine) in &mut self.engines {
            engine.close(start, !suspect.engines.contains(url), suspect.busy.get(url).copied(), policy);
        }
        for (url, steps) in &mut self.steps {
            steps.close(start, suspect.lesson(url), policy);
        }
        for (url, load) in &mut self.load {
            load.close(start, !suspect.engines.contains(url), suspect.slowed.get(url).copied(), policy);
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
}
