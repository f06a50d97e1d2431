//! On which NUMA node processes spend their CPU time. `numa_maps` would say where their memory lies, and is never read:
//! it walks all page tables under a lock that page faults of the process wait for.

use std::collections::BTreeMap;

use gpuprod_snapshot::CpuList;
use gpuprod_snapshot::host::NodeTime;
use gpuprod_snapshot::units::Nanos;

use super::MAX_TASKS;
use super::text::Stat;
use crate::{Host, Missing, Reading, tree};

/// The nodes of a running machine hardly ever change: their CPUs are read on every so manieth collection.
const REFRESH: u32 = 60;
/// Nodes that are looked at.
const MAX_NODES: usize = 256;

/// What is known of all processes.
#[derive(Default)]
pub(super) struct Placed {
    /// CPUs by node; nothing where the kernel does not say.
    nodes: Vec<(u32, CpuList)>,
    age: u32,
    before: BTreeMap<(u32, Nanos), Times>,
    now: BTreeMap<(u32, Nanos), Times>,
}

/// Of one process.
#[derive(Default)]
struct Times {
    /// CPU time of each live thread at the last look.
    threads: BTreeMap<u32, Nanos>,
    nodes: BTreeMap<u32, Nanos>,
}

impl Placed {
    /// For another collection: processes that are not counted in it are forgotten.
    pub(super) fn next(&mut self, host: &Host) -> Self {
        let last = std::mem::take(self);
        let known = !last.nodes.is_empty() && last.age + 1 < REFRESH;
        let (nodes, age) = if known { (last.nodes, last.age + 1) } else { (read(host), 0) };
        Self { nodes, age, before: last.now, now: BTreeMap::new() }
    }

    /// Counts what its threads used since the last collection to the nodes on which they are.
    pub(super) fn count(&mut self, id: (u32, Nanos), threads: &[(u32, Stat)]) -> Reading<Vec<NodeTime>> {
        if self.nodes.is_empty() {
            return Reading::Missing(Missing::Unsupported);
        }
        let mut times = self.before.remove(&id).unwrap_or_default();
        let before = std::mem::take(&mut times.threads);
        // Of a process with more threads than are looked at, one that comes into sight may be as old as the process.
        let crowded = threads.len() >= MAX_TASKS && !before.is_empty();
        for (thread, stat) in threads {
            times.threads.insert(*thread, stat.cpu);
            let node = stat.processor.and_then(|cpu| self.nodes.iter().find(|(_, cpus)| cpus.contains(cpu)));
            let Some((node, _)) = node else { continue };
            let used = match before.get(thread) {
                // A number that was taken by another thread meanwhile begins at zero.
                Some(before) => stat.cpu.checked_sub(*before).unwrap_or(stat.cpu),
                None if crowded => Nanos(0),
                None => stat.cpu,
            };
            let sum = times.nodes.entry(*node).or_default();
            *sum = sum.saturating_add(used);
        }
        let counted = times.nodes.iter().map(|(node, cpu)| NodeTime { node: *node, cpu: *cpu }).collect();
        self.now.insert(id, times);
        Reading::Value(counted)
    }
}

/// Nodes that have CPUs.
fn read(host: &Host) -> Vec<(u32, CpuList)> {
    let list = host.sys.join("devices/system/node");
    let names = tree::names(&list).unwrap_or_default();
    let node = |name: &String| {
        let id: u32 = name.strip_prefix("node")?.parse().ok()?;
        let cpus = CpuList::parse(&tree::text(&list.join(name).join("cpulist")).ok()?)?;
        (!cpus.is_empty()).then_some((id, cpus))
    };
    let mut nodes: Vec<(u32, CpuList)> = names.iter().filter_map(node).take(MAX_NODES).collect();
    nodes.sort_unstable_by_key(|(id, _)| *id);
    nodes
}
