//! How a workload is tied to the node around its GPU: its cgroup, its network, and how its loads went.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::host::Cpu;
use gpuprod_snapshot::topology::Net;
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::UnitId;
use crate::facts::UnitFacts;
use crate::gather::Gather;
use crate::signals::sharing::Sharer;

/// Loads that are remembered.
const LOADS: usize = 8;

/// The ties of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ties {
    /// Its cgroup: the first of its processes' that is not the root.
    pub(crate) cgroup: Option<String>,
    /// A process of it holds an RDMA device open.
    pub(crate) rdma: bool,
    /// It has connections with other hosts.
    pub(crate) peers: bool,
    /// Memory that its cgroup may have, in bytes.
    pub(crate) mem_limit: Option<f64>,
}

/// The ties of one unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UnitHost {
    /// Loads of its engine.
    pub(crate) loads: Arc<Loads>,
    /// Cgroups that have a context on the same GPU, with their share of its time.
    pub(crate) sharers: Vec<Sharer>,
    /// The cgroup whose process listens on the engine's port.
    pub(crate) serves: Option<String>,
}

/// The node at this tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around<'a> {
    pub(crate) cpu: Option<&'a Cpu>,
    pub(crate) net: Option<&'a Net>,
    /// Units that load now.
    pub(crate) loading: Vec<Loader>,
}

/// A unit that loads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loader {
    pub(crate) unit: UnitId,
    pub(crate) name: String,
    pub(crate) family: BTreeSet<u32>,
    /// Arrays, disks and mounts that it reads.
    pub(crate) places: BTreeSet<String>,
}

/// A load that is over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) took: Nanos,
    /// Bytes per second on average, page cache included.
    pub(crate) rate: f64,
}

/// The loads of a unit's engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Loads {
    url: Option<String>,
    pub(crate) done: VecDeque<Load>,
    /// When the process that loads was started, the bytes that it has read, and when they were last counted.
    pub(crate) current: Option<(Nanos, f64, Nanos)>,
}

impl Loads {
    /// Takes in a tick: whether it loads, since when its process lives, and what it reads per second.
    pub(crate) fn step(
        &mut self,
        now: Nanos,
        url: Option<&String>,
        loads: bool,
        age: Option<Nanos>,
        rate: Option<f64>,
    ) {
        let Some(url) = url else {
            self.current = None;
            return;
        };
        if self.url.as_ref() != Some(url) {
            *self = Self { url: Some(url.clone()), ..Self::default() };
        }
        match (loads, age, self.current) {
            (true, Some(age), None) => self.current = Some((now.saturating_sub(age), 0.0, now)),
            (true, Some(age), Some((_, read, last))) => {
                let more = rate.unwrap_or(0.0) * now.saturating_sub(last).as_secs_f64();
                self.current = Some((now.saturating_sub(age), read + more, now));
            }
            (true, None, _) => {}
            (false, _, Some((since, read, _))) => {
                self.current = None;
                let took = now.saturating_sub(since);
                if self.done.len() >= LOADS {
                    self.done.pop_front();
                }
                self.done.push_back(Load { took, rate: read / took.as_secs_f64().max(1.0) });
            }
            (false, _, None) => {}
        }
    }

    /// The longest but those that only one in ten exceeds: of so few, the longest.
    pub(crate) fn usual(&self, least: u32) -> Option<Nanos> {
        let known = u32::try_from(self.done.len()).unwrap_or(u32::MAX);
        if known < least { None } else { self.done.iter().map(|load| load.took).max() }
    }

    /// Their median speed.
    pub(crate) fn usual_rate(&self, least: u32) -> Option<f64> {
        self.usual(least)?;
        let mut rates: Vec<f64> = self.done.iter().map(|load| load.rate).collect();
        Some(crate::baseline::median(&mut rates))
    }
}

/// The ties of a workload.
pub(crate) fn of(gather: &Gather<'_>, family: &BTreeSet<u32>) -> Ties {
    let processes = || family.iter().filter_map(|pid| gather.processes.get(pid));
    let path = |pid: &u32| gather.processes.get(pid)?.cgroup.get().filter(|path| path.as_str() != "/");
    let cgroup = family.iter().find_map(path).cloned();
    let limit = cgroup.as_ref().and_then(|path| gather.cgroups.get(path.as_str())?.mem_limit.copied());
    Ties {
        cgroup,
        mem_limit: limit.map(|bytes| to_f64(bytes.0)),
        rdma: processes().any(|process| process.rdma.copied() == Some(true)),
        peers: processes().any(|process| process.remote_peers.copied().is_some_and(|peers| peers > 0)),
    }
}

/// Who shares the GPU, where more than one cgroup has a context on it.
pub(crate) fn sharers(gather: &Gather<'_>, unit: &UnitFacts<'_>) -> (Vec<(String, f64)>, Option<String>) {
    let mut sharers: Vec<(&String, f64)> = Vec::new();
    if unit.mig || unit.rest {
        return (Vec::new(), None);
    }
    let processes = unit.gpu.and_then(|gpu| gpu.processes.get()).map_or(&[][..], Vec::as_slice);
    if processes.len() < 2 {
        return (Vec::new(), None);
    }
    for process in processes {
        let path = gather.processes.get(&process.pid).and_then(|known| known.cgroup.get());
        let Some(path) = path.filter(|path| path.as_str() != "/") else { continue };
        let sm = process.sm.copied().map_or(0.0, |sm| sm.as_fraction());
        match sharers.iter_mut().find(|(known, _)| *known == path) {
            Some((_, sum)) => *sum += sm,
            None => sharers.push((path, sm)),
        }
    }
    if sharers.len() < 2 {
        return (Vec::new(), None);
    }
    let port = unit.engine.and_then(|engine| gpuprod_snapshot::local_port(&engine.url));
    let serves = port.and_then(|port| {
        let mut family = unit.work.family.iter().filter_map(|pid| gather.processes.get(pid));
        family.find(|process| process.listens.get().is_some_and(|ports| ports.contains(&port)))?.cgroup.get().cloned()
    });
    (sharers.into_iter().map(|(path, sm)| (path.clone(), sm)).collect(), serves)
}

/// Who loads now, and from where.
pub(crate) fn loading(facts: &[UnitFacts<'_>]) -> Vec<Loader> {
    let loading = facts.iter().filter(|unit| unit.host.loads.current.is_some());
    loading
        .map(|unit| Loader {
            unit: unit.id.clone(),
            name: unit.name.to_string(),
            family: unit.work.family.clone(),
            places: unit
                .work
                .path
                .arrays
                .iter()
                .chain(&unit.work.path.disks)
                .chain(&unit.work.mounts)
                .cloned()
                .collect(),
        })
        .collect()
}
