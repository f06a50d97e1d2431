//! The node as a whole: whether the next job should be placed here, what is left of each resource, what is stranded.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::Source;
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::topology::PortLayer;
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::signals::Signals;
use crate::signals::host::name_of;
use crate::window::Window;
use crate::{Class, Finding, Micro, Part, Policy, Probe, RuleId, Severity, State, UnitId, UnitJudgement};

pub mod fit;
pub mod residual;
mod strand;

pub use fit::{ClassFit, Reason, Verdict};
pub use residual::{Residual, Resource};
pub use strand::Room;

/// What is said of the node at one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeJudgement {
    /// Whether jobs should be placed here, by class.
    pub fit: Vec<ClassFit>,
    /// What is left of each resource, as far as it can be told.
    pub residual: Vec<Residual>,
    /// Whether the shapes of the catalogue find room.
    pub rooms: Vec<Room>,
    /// GPUs that are free, in whole or in part.
    pub free: Vec<FreeGpu>,
}

/// A GPU that is free for others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeGpu {
    /// Which.
    pub unit: UnitId,
    /// Nobody has it.
    pub whole: bool,
    /// Most shapes for which it would be free are kept out by another resource, since.
    #[serde(default, rename = "stranded_since_ns", skip_serializing_if = "Option::is_none")]
    pub stranded_since: Option<Nanos>,
}

/// What is remembered of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    /// What was said at the last tick: the rules look at this.
    pub(crate) last: NodeJudgement,
    standing: Vec<fit::Standing>,
    /// Mount points that were seen writable.
    writable: BTreeSet<String>,
    stranded_since: Option<Nanos>,
}

/// A GPU that does nothing for this part of its time is free in part.
const FREE_IN_PART: f64 = 0.25;

fn part_of(some: usize, all: usize) -> Part {
    let number = |count: usize| to_f64(u64::try_from(count).unwrap_or(u64::MAX));
    Part::from_fraction(number(some) / number(all.max(1)))
}

/// More mount points than this are not remembered.
const MOUNTS: usize = 256;

/// RDMA ports without the link that they had. An interface may be taken down by its owner any day: those of containers are.
fn dark(window: &Window, signals: &Signals) -> Vec<(String, Nanos)> {
    let Some(net) = window.value(Source::Net, |tick| &tick.net).get().copied() else { return Vec::new() };
    let rdma = net.ports.iter().filter(|port| port.layer.get().is_some_and(|layer| *layer != PortLayer::Ethernet));
    rdma.filter_map(|port| {
        let name = name_of(port);
        let since = signals.host.ports.get(&name)?.down_since?;
        Some((name, since))
    })
    .collect()
}

impl Node {
    pub(crate) fn step(
        &mut self,
        units: &[UnitJudgement],
        findings: &[Finding],
        probes: &[Probe],
        (window, signals): (&Window, &Signals),
        policy: &Policy,
    ) -> NodeJudgement {
        let seen = fit::Seen {
            units,
            findings,
            probes,
            known: &window.last,
            read_only: &self.read_only(window),
            dark: &dark(window, signals),
            lost_warn: policy.node_fit.lost_warn,
        };
        let now = window.last.stamp.boottime;
        self.last.fit.clear();
        self.standing.resize(fit::CLASSES.len(), fit::Standing::default());
        for (class, standing) in fit::CLASSES.iter().zip(&mut self.standing) {
            self.last.fit.push(standing.step(*class, fit::reasons(&seen, *class), now, policy));
        }
        let hit = |finding: &Finding| {
            matches!(finding.rule, RuleId::IoStall | RuleId::RaidRebuildImpact) && finding.severity > Severity::Info
        };
        let hit = findings.iter().any(hit);
        self.last.residual = residual::measure(window, signals, hit, policy);
        self.strand(units, window, hit || residual::saturated(signals, policy), policy);
        self.last.clone()
    }

    fn strand(&mut self, units: &[UnitJudgement], window: &Window, saturated: bool, policy: &Policy) {
        let now = window.last.stamp.boottime;
        let unallocated = |gpu: &Gpu| {
            let own = |unit: &UnitJudgement| unit.gpu.is_none() && unit.index == Some(gpu.index);
            units.iter().any(|unit| own(unit) && unit.state == State::Unallocated)
        };
        let shares = residual::shares(window, &unallocated);
        let shapes = &policy.declared.shapes;
        let rooms = shapes.iter().map(|shape| strand::room(shape, &shares, &self.last.residual, saturated));
        self.last.rooms = if shares.is_empty() { Vec::new() } else { rooms.collect() };
        let admitted = self.last.rooms.iter().filter(|room| room.gpus > 0 && room.jobs.is_some()).count();
        let kept_out = self.last.rooms.iter().filter(|room| room.stranded).count();
        let enough = kept_out > 0 && part_of(kept_out, admitted) >= policy.stranded_capacity.stranded;
        self.stranded_since = enough.then(|| self.stranded_since.unwrap_or(now));
        let stranded_since = self.stranded_since;
        let gpus = window.value(Source::Gpu, |tick| &tick.gpu).get().map_or(&[][..], |gpus| gpus.devices.as_slice());
        let free = units.iter().filter(|unit| unit.gpu.is_none()).filter_map(|unit| {
            let whole = unit.state == State::Unallocated;
            let idle = || residual::idle(gpus.iter().find(|gpu| Some(gpu.index) == unit.index)?);
            let part = whole || idle().is_some_and(|idle| idle >= FREE_IN_PART);
            part.then(|| FreeGpu { unit: unit.unit.clone(), whole, stranded_since })
        });
        self.last.free = free.collect();
    }

    /// Mount points that were writable and are not any more: what a file system does with itself after errors.
    fn read_only(&mut self, window: &Window) -> Vec<String> {
        let Some(block) = window.value(Source::Block, |tick| &tick.block).get().copied() else { return Vec::new() };
        let mut turned = Vec::new();
        for mount in &block.mounts {
            if mount.read_only {
                if self.writable.contains(&mount.point) {
                    turned.push(mount.point.clone());
                }
            } else if self.writable.len() < MOUNTS && !self.writable.contains(&mount.point) {
                self.writable.insert(mount.point.clone());
            }
        }
        turned
    }
}

impl NodeJudgement {
    /// Whole GPUs that nobody has and most shapes cannot use: free ones, weighted by the part of the shapes that is kept
    /// out. None where no shape's room can be told.
    #[must_use]
    pub fn stranded(&self) -> Option<Micro> {
        let admitted = self.rooms.iter().filter(|room| room.gpus > 0 && room.jobs.is_some()).count();
        let kept_out = self.rooms.iter().filter(|room| room.stranded).count();
        let free = u32::try_from(self.free.iter().filter(|free| free.whole).count()).unwrap_or(u32::MAX);
        let told = self.rooms.iter().any(|room| room.jobs.is_some());
        told.then(|| Micro::from_f64(f64::from(free) * part_of(kept_out, admitted).as_fraction()))
    }

    /// The verdict for a class; batch for those that have none of their own.
    #[must_use]
    pub fn fit_for(&self, class: Class) -> Option<&ClassFit> {
        let of = |class: Class| self.fit.iter().find(|fit| fit.class == class);
        of(class).or_else(|| of(Class::Batch))
    }
}
