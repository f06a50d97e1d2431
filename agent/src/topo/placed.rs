//! Which processes hold each GPU, where they may run and ran, and whether that is near what they use.

use std::collections::BTreeMap;

use gpuprod_rules::placement::{self, Sockets};
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::host::{NodeTime, Process};
use gpuprod_snapshot::topology::Pci;
use gpuprod_snapshot::{CpuList, Missing, Reading, Tick};
use serde::Serialize;

use super::{Note, value};
use crate::text;

/// A process that holds a GPU.
#[derive(Debug, Serialize)]
pub struct Held {
    /// `GPU 0`.
    pub gpu: String,
    /// The GPU's node.
    pub gpu_node: Reading<u32>,
    /// Pid.
    pub pid: u32,
    /// Its name.
    pub comm: Reading<String>,
    /// CPUs on which it may run.
    pub cpus: Reading<String>,
    /// The nodes of those CPUs.
    pub nodes: Vec<u32>,
    /// Nodes from which it may take memory.
    pub mems: Reading<String>,
    /// CPU on which its first thread ran last.
    pub processor: Reading<u32>,
    /// CPU time of its threads by node.
    pub cpu_by_node: Reading<Vec<NodeTime>>,
    /// Drives behind its open files, with their nodes.
    pub storage: Reading<Vec<Drive>>,
    /// How its CPUs lie to the GPU.
    pub placement: Placement,
}

/// A drive behind a process's open files.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Drive {
    /// Kernel name.
    pub name: String,
    /// The node that it is near.
    pub node: Reading<u32>,
}

/// Where a process may run, seen from its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// On the GPU's socket alone.
    Near,
    /// On the GPU's socket and on others.
    Anywhere,
    /// On other sockets alone.
    Away,
    /// Something that is needed is not known.
    CannotTell,
}

/// All GPUs with their processes, by index.
pub(super) fn held(tick: &Tick) -> Vec<Held> {
    let gpus = value(tick.gpu.as_deref()).map_or(&[][..], |gpus| &gpus.devices);
    let sockets = value(tick.numa.as_deref()).map(Sockets::of).unwrap_or_default();
    let none = Pci::default();
    let pci = value(tick.pci.as_deref()).unwrap_or(&none);
    let processes: BTreeMap<u32, &Process> = value(tick.proc.as_deref())
        .map_or(&[][..], |all| &all.processes)
        .iter()
        .map(|process| (process.pid, process))
        .collect();
    let mut all = Vec::new();
    for gpu in gpus {
        let node = Reading::from_option(placement::gpu_node(gpu, pci), Missing::Unsupported);
        let mut pids: Vec<u32> = gpu.processes.get().into_iter().flatten().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            all.push(one(gpu, node, pid, processes.get(&pid).copied(), &sockets, tick));
        }
    }
    all
}

fn one(gpu: &Gpu, node: Reading<u32>, pid: u32, process: Option<&Process>, sockets: &Sockets, tick: &Tick) -> Held {
    // Denied, gone, or a number of another pid namespace: the driver lists it and the process table does not.
    let hidden = Process::default();
    let process = process.unwrap_or(&hidden);
    let cpus = process.cpus_allowed.get().and_then(|cpus| CpuList::parse(cpus));
    let nodes = cpus.map(|cpus| sockets.nodes_of(&cpus)).unwrap_or_default();
    let near = |home| {
        let same: Option<Vec<bool>> = nodes.iter().map(|node| sockets.same(*node, home)).collect();
        Some(match same?.as_slice() {
            [] => Placement::CannotTell,
            same if !same.contains(&true) => Placement::Away,
            same if same.contains(&false) => Placement::Anywhere,
            _ => Placement::Near,
        })
    };
    let (block, md) = (value(tick.block.as_deref()), value(tick.md.as_deref()));
    let drives = placement::storage(&[process], block, md, value(tick.pci.as_deref()));
    let drive = |(name, node): (String, Option<u32>)| Drive {
        name: text::clean(&name),
        node: Reading::from_option(node, Missing::Unsupported),
    };
    Held {
        gpu: format!("GPU {}", gpu.index),
        gpu_node: node,
        pid,
        comm: process.comm.clone(),
        cpus: process.cpus_allowed.clone(),
        placement: node.copied().and_then(near).unwrap_or(Placement::CannotTell),
        nodes,
        mems: process.mems_allowed.clone(),
        processor: process.processor,
        cpu_by_node: process.cpu_by_node.clone(),
        storage: match (drives, process.opens.missing()) {
            (Some(drives), _) => Reading::Value(drives.into_iter().map(drive).collect()),
            (None, why) => Reading::Missing(why.unwrap_or(Missing::Unsupported)),
        },
    }
}

/// What is wrong with where processes may run. A node with one socket has nothing to place.
pub(super) fn judge(held: &[Held], tick: &Tick) -> Vec<Note> {
    let sockets = value(tick.numa.as_deref()).map(Sockets::of).unwrap_or_default();
    if !sockets.several() {
        return Vec::new();
    }
    let gpus = value(tick.gpu.as_deref()).map_or(&[][..], |gpus| &gpus.devices);
    let unlisted = gpus.iter().filter_map(|gpu| {
        let why = gpu.processes.missing()?;
        let says = format!("which processes hold it cannot be told ({why}), nor where they run");
        Some(Note { warn: false, about: format!("GPU {}", gpu.index), says })
    });
    unlisted.chain(held.iter().filter_map(|held| note(held, &sockets))).collect()
}

fn note(held: &Held, sockets: &Sockets) -> Option<Note> {
    let about = held.gpu.clone();
    let who = who(held);
    match (held.placement, held.gpu_node.copied()) {
        (Placement::CannotTell, _) => {
            let why = match (held.gpu_node.missing(), held.cpus.missing()) {
                (_, Some(Missing::Denied | Missing::NotYet)) => {
                    "may not be looked at, ended, or is of another pid namespace"
                }
                (Some(_), _) => {
                    "may run where it likes as far as can be told: firmware does not say on which node the GPU is"
                }
                _ => "does not say on which CPUs it may run",
            };
            Some(Note { warn: false, about, says: format!("{who} {why}: cannot tell whether it is well placed") })
        }
        (Placement::Away, Some(home)) => {
            let cpus = held.cpus.get().map(|cpus| text::clip(&text::clean(cpus), 40)).unwrap_or_default();
            let far = format!("{who} may run on CPUs {cpus} alone, all on another socket than the GPU (node {home})");
            let (warn, storage) = match held.storage.get() {
                None => (false, "what it reads cannot be told".to_owned()),
                Some(drives) => away(drives, &held.nodes, sockets),
            };
            Some(Note { warn, about, says: format!("{far}; {storage}") })
        }
        _ => None,
    }
}

/// Whether storage speaks for the CPUs that it has.
fn away(drives: &[Drive], nodes: &[u32], sockets: &Sockets) -> (bool, String) {
    let far = |drive: &Drive| sockets.all_away(nodes, drive.node.copied()?);
    let names = |drives: &[&Drive]| drives.iter().map(|drive| drive.name.as_str()).collect::<Vec<_>>().join(" ");
    let near: Vec<&Drive> = drives.iter().filter(|drive| far(drive) == Some(false)).collect();
    let unknown: Vec<&Drive> = drives.iter().filter(|drive| far(drive).is_none()).collect();
    if !near.is_empty() {
        return (false, format!("{} is near its CPUs, so that one of the two is far in any case", names(&near)));
    }
    if !unknown.is_empty() {
        return (false, format!("where {} is cannot be told", names(&unknown)));
    }
    let all: Vec<&Drive> = drives.iter().collect();
    let what = if all.is_empty() { "it has no drive open".to_owned() } else { format!("{} too", names(&all)) };
    (
        true,
        format!("{what}: bind it to CPUs near the GPU (numactl --cpunodebind, --cpu-bind=map_ldom, Topology Manager)"),
    )
}

/// `pid 4242 (python3)`.
pub(super) fn who(held: &Held) -> String {
    let name = held.comm.get().map(|comm| format!(" ({})", text::clip(&text::clean(comm), 15))).unwrap_or_default();
    format!("pid {}{name}", held.pid)
}
