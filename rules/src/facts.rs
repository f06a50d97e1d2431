//! What is known of one unit and of the host at this tick: gathered once, looked at by every rule.

use alloc::collections::BTreeSet;
use alloc::string::String;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::storage::{Block, Md};
use gpuprod_snapshot::units::Nanos;

use crate::baseline::Deviation;
use crate::join::StoragePath;
use crate::signals::{EngineSignals, Signals};
use crate::{UnitId, Weight};

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
    pub(crate) demand: Demand,
    pub(crate) weight: Weight,
    /// Progress of the last block against its own normal.
    pub(crate) deviation: Option<Deviation>,
    /// The deficit has been above the threshold since.
    pub(crate) deficit_since: Option<Nanos>,
    /// Pids of the workload.
    pub(crate) family: BTreeSet<u32>,
    pub(crate) path: StoragePath,
    /// Share of time in which some task of the workload waited for I/O, and whose figure that is.
    pub(crate) io_some: Option<(f64, String)>,
    /// Share of time in which some task of the workload waited for a CPU.
    pub(crate) cpu_some: Option<f64>,
    /// Threads of the workload in uninterruptible sleep, and where the first waits.
    pub(crate) blocked: Option<(u32, Option<String>)>,
    pub(crate) throttled: bool,
}

impl UnitFacts<'_> {
    pub(crate) fn deficit(&self) -> f64 {
        self.weight.w.rest().as_fraction()
    }
}

/// The host at this tick.
#[derive(Clone, Debug)]
pub(crate) struct HostFacts<'a> {
    pub(crate) now: Nanos,
    pub(crate) md: Option<&'a Md>,
    pub(crate) block: Option<&'a Block>,
    pub(crate) signals: &'a Signals,
}
