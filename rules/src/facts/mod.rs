//! What is known of one unit and of the host at this tick: gathered once, looked at by every rule.

pub(crate) mod host;
pub(crate) mod owner;
pub(crate) mod pcie;
pub(crate) mod peers;
pub(crate) mod trainer;
pub(crate) mod work;
mod workload;

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::storage::{Block, Md, MdArray, SyncState};
use gpuprod_snapshot::units::Nanos;

use crate::attribution::did::History;
use crate::baseline::Deviation;
use crate::holders::Holders;
use crate::node::NodeJudgement;
use crate::signals::{EngineSignals, Signals};
use crate::state;
use crate::usage::Usage;
use crate::{Bucket, Cause, Class, Part, UnitId, Weight, WeightSource};

pub(crate) mod device;

/// Whether there is work to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Requests are running or waiting.
    Present { running: u64, waiting: u64 },
    /// The engine answers and has nothing to do.
    Met,
    /// Nobody says.
    Unknown,
}

/// One unit at this tick.
#[derive(Clone, Debug)]
pub(crate) struct UnitFacts<'a> {
    pub(crate) id: UnitId,
    /// For people: `GPU-3`.
    pub(crate) name: String,
    pub(crate) gpu: Option<&'a Gpu>,
    pub(crate) util: Option<f64>,
    pub(crate) engine: Option<&'a Engine>,
    pub(crate) signals: Option<&'a EngineSignals>,
    /// The training job's page and steps, where there is no engine.
    pub(crate) trainer: trainer::Trainer<'a>,
    /// Its workload.
    pub(crate) work: Rc<work::Work<'a>>,
    pub(crate) demand: Demand,
    pub(crate) weight: Weight,
    /// Progress of the last block against its own normal.
    pub(crate) deviation: Option<Deviation>,
    /// The productive part of this very tick by its own pace, where that is known.
    pub(crate) exact: Option<f64>,
    /// Part of its clock that is held back.
    pub(crate) slower: f64,
    /// How hard the silicon below its engine works, as a part of its own normal.
    pub(crate) silicon: Option<f64>,
    /// It does less than a busy GPU does and something around it may be why, and its normal is not learnt yet.
    pub(crate) doubt: bool,
    /// The deficit has been above the threshold since.
    pub(crate) deficit_since: Option<Nanos>,
    pub(crate) throttled: bool,
    /// Whether it is a MIG instance, and whether it is the rest that no instance has.
    pub(crate) mig: bool,
    pub(crate) rest: bool,
    /// What it did lately.
    pub(crate) usage: Arc<Usage>,
    /// Who holds it.
    pub(crate) holders: Holders<'a>,
    /// The youngest holder's age.
    pub(crate) age: Option<Nanos>,
    /// A holder listens on this port.
    pub(crate) listens: Option<u16>,
    /// Why a rank of the workload may be on another node; nothing when none can be.
    pub(crate) elsewhere: Option<String>,
    /// The driver lists no process on it, and nothing runs on it, since.
    pub(crate) vacant_since: Option<Nanos>,
    /// By the operator's word somebody has it.
    pub(crate) declared: bool,
    /// And it is meant to stand by.
    pub(crate) standby: bool,
    /// Its ties to the node around it.
    pub(crate) host: host::UnitHost,
    /// It writes a checkpoint, as it has done before.
    pub(crate) checkpoint: bool,
    /// Whose it is for the ledger, and what it is for.
    pub(crate) ownership: Arc<owner::Ownership>,
    /// Its job, where the site left a note of it.
    pub(crate) job: Option<owner::Job>,
    /// Its ways to the host.
    pub(crate) pcie: pcie::UnitPcie<'a>,
    /// The other units of the same workload.
    pub(crate) kin: Vec<Kin>,
    /// What its silicon does, against its own normal.
    pub(crate) activity: Option<Deviation>,
    /// Its utilization, against its own normal.
    pub(crate) resident: Option<Deviation>,
    /// Whether it waits for another rank of its workload, and for which.
    pub(crate) peers: peers::Peers,
    /// The GPU as a device.
    pub(crate) device: device::DeviceFacts<'a>,
}

/// Another unit of the same workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kin {
    pub(crate) name: String,
    /// Nothing runs on it, since.
    pub(crate) still: Option<Nanos>,
    /// It spins, since.
    pub(crate) spins: Option<Nanos>,
    pub(crate) util: Option<f64>,
    /// Why a rank of it may be on another node.
    pub(crate) elsewhere: Option<String>,
}

impl UnitFacts<'_> {
    /// The weight of this very tick: tokens are booked as they came, and the mean of the last seconds is for verdicts.
    pub(crate) fn booked(&self, judged: Weight) -> Weight {
        let exact = match judged.source {
            WeightSource::Tokens => self.signals.and_then(EngineSignals::exact),
            WeightSource::None => None,
            _ => self.exact,
        };
        exact.map_or(judged, |w| Weight { w: Part::from_fraction(w), source: judged.source })
    }
    /// What it is for: declared, or inferred from an engine's page.
    pub(crate) fn class(&self) -> Class {
        let inferred = if self.engine.is_some() { Class::Serving } else { Class::Unspecified };
        self.ownership.class.unwrap_or(inferred)
    }
    /// Where the time without work goes.
    pub(crate) fn rest(&self) -> Bucket {
        // The engine has nothing to wait for, and its GPU pauses between requests: the demand is met.
        let paused = self.signals.is_some_and(EngineSignals::pauses)
            && matches!(self.demand, Demand::Present { waiting: 0, .. });
        let demand = if paused { Demand::Met } else { self.demand };
        // A job that steps has work: what it does less than its normal is lost.
        if self.weight.source == WeightSource::Steps && self.trainer.steps() {
            return Bucket::Lost(Cause::Unexplained);
        }
        state::rest(demand, self.class(), self.ownership.class.is_some())
    }
    /// Whether another unit has the same processes.
    pub(crate) fn works_with(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.work, &other.work) && !self.work.family.is_empty()
    }
    /// Whether it has work: requests, or steps that are made.
    pub(crate) fn wanted(&self) -> bool {
        matches!(self.demand, Demand::Present { .. }) || (self.trainer.steps() && !self.trainer.late)
    }
    pub(crate) fn deficit(&self) -> f64 {
        self.weight.w.rest().as_fraction()
    }
}

impl HostFacts<'_> {
    /// The disks of every array that syncs now: while it does, what they do is the sync.
    pub(crate) fn syncing(&self) -> impl Iterator<Item = (&MdArray, &BTreeSet<String>)> {
        let syncs = |array: &MdArray| array.sync.get() == Some(&SyncState::Running);
        self.arrays.iter().filter(move |(array, _)| syncs(array)).map(|(array, disks)| (*array, disks))
    }
}

/// The host at this tick.
#[derive(Clone, Debug)]
pub(crate) struct HostFacts<'a> {
    pub(crate) now: Nanos,
    pub(crate) md: Option<&'a Md>,
    pub(crate) block: Option<&'a Block>,
    /// Every array, and the disks at its bottom.
    pub(crate) arrays: Vec<(&'a MdArray, BTreeSet<String>)>,
    pub(crate) signals: &'a Signals,
    /// What was said of the node as a whole at the tick before.
    pub(crate) node: &'a NodeJudgement,
    /// All units of the node.
    pub(crate) units: &'a [UnitFacts<'a>],
    /// What they did in the last minutes.
    pub(crate) history: &'a History,
    /// CPU time, network, and who loads.
    pub(crate) around: host::Around<'a>,
}
