//! One workload at this tick: its processes, what they have open, what they wait for, and to whom they belong. Eight GPUs of
//! one engine share it: it is gathered once for all of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use gpuprod_snapshot::engine::Engine;

use crate::facts::host::Ties;
use crate::join::StoragePath;

/// What the processes of a workload do together at one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Bytes per second read and written, page cache included.
    pub(crate) moved: Option<f64>,
    /// Bytes per second written.
    pub(crate) written: Option<f64>,
    /// CPUs that they keep busy.
    pub(crate) cpus: Option<f64>,
}

/// One workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work<'a> {
    /// Its pids.
    pub(crate) family: BTreeSet<u32>,
    /// The engine whose port one of its processes listens on.
    pub(crate) engine: Option<&'a Engine>,
    /// Where there is none, the page of the training job likewise.
    pub(crate) page: Option<&'a Engine>,
    /// A number for what runs.
    pub(crate) number: Option<u64>,
    pub(crate) path: StoragePath,
    /// Requests on average that are out on the disks of that path, in the last block.
    pub(crate) in_flight: f64,
    /// Mount points of network file systems that it has open.
    pub(crate) mounts: BTreeSet<String>,
    /// Bytes per second that it moves, by device number.
    pub(crate) io_by_device: BTreeMap<(u32, u32), f64>,
    pub(crate) rates: Rates,
    /// Share of time in which some task of it waited for I/O, and whose figure that is.
    pub(crate) io_some: Option<(f64, &'static str)>,
    /// Share of time in which some task of it waited for a CPU.
    pub(crate) cpu_some: Option<f64>,
    /// Threads of it in uninterruptible sleep, and where the first waits.
    pub(crate) blocked: Option<(u32, Option<String>)>,
    /// Whose it is, in words that may be shown to anybody.
    pub(crate) owner: Option<String>,
    /// What makes it look as if a person worked on it.
    pub(crate) interactive: Option<String>,
    /// Its ties to the node around it.
    pub(crate) ties: Ties,
}
