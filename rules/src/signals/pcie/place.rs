//! On which sockets the processes of GPUs spend their CPU time.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};

use gpuprod_snapshot::host::{NodeTime, Process};
use gpuprod_snapshot::topology::Numa;
use gpuprod_snapshot::units::Nanos;

use super::PcieSignals;
use crate::placement::Sockets;
use crate::unit::identity;
use crate::window::Window;

/// A block in which a workload used less CPU time than this (seconds of 5) says nothing of where it runs.
pub(super) const ENOUGH_CPU: f64 = 0.25;

/// The socket of each node that has CPUs: the lowest node that shares it.
pub(super) fn sockets(numa: &Numa) -> BTreeMap<u32, u32> {
    let sockets = Sockets::of(numa);
    let nodes = || numa.nodes.iter().map(|node| node.id).take(256);
    nodes().filter_map(|node| Some((node, nodes().find(|first| sockets.same(*first, node) == Some(true))?))).collect()
}

/// What a process used since the sample before, by node.
fn used<'a>(old: Option<&'a Process>, new: &'a Process) -> impl Iterator<Item = (u32, Nanos)> + 'a {
    let before = old.filter(|old| old.start == new.start).and_then(|old| old.cpu_by_node.get());
    before.zip(new.cpu_by_node.get()).into_iter().flat_map(|(before, after)| {
        let then = |time: &NodeTime| before.iter().find(|old| old.node == time.node).map_or(Nanos(0), |old| old.cpu);
        after.iter().map(move |time| (time.node, time.cpu.saturating_sub(then(time))))
    })
}

/// Which boards a process holds, and on which sockets they are.
type Held<'a> = (BTreeSet<Cow<'a, str>>, BTreeSet<Option<u32>>);

impl PcieSignals {
    pub(super) fn places(&mut self, window: &Window) {
        let Some((old, new, _)) = window.pair(|tick| &tick.proc) else { return };
        let Some(gpus) = window.last.gpu.as_ref().and_then(|sample| sample.value.get()) else { return };
        let mut holds: BTreeMap<u32, Held<'_>> = BTreeMap::new();
        for gpu in &gpus.devices {
            let name = identity(gpu);
            let Some(board) = self.boards.get(&*name) else { continue };
            let socket = board.node.and_then(|node| self.sockets.get(&node).copied());
            for process in gpu.processes.get().into_iter().flatten() {
                let held = holds.entry(process.pid).or_default();
                held.0.insert(name.clone());
                held.1.insert(socket);
            }
        }
        let mut spent: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for process in &new.processes {
            // Its loaders work for it.
            let own = holds.get(&process.pid).or_else(|| holds.get(&process.ppid.copied()?));
            let Some((boards, homes)) = own else { continue };
            // A GPU whose socket is not known: nothing can be said of its processes.
            if homes.contains(&None) {
                continue;
            }
            let before = old.processes.binary_search_by_key(&process.pid, |old| old.pid).ok();
            let (mut away, mut all) = (0.0, 0.0);
            for (node, time) in used(before.and_then(|place| old.processes.get(place)), process) {
                let Some(socket) = self.sockets.get(&node) else { continue };
                all += time.as_secs_f64();
                away += if homes.contains(&Some(*socket)) { 0.0 } else { time.as_secs_f64() };
            }
            for board in boards {
                let sum = spent.entry(board).or_default();
                *sum = (sum.0 + away, sum.1 + all);
            }
        }
        for (name, (away, all)) in spent {
            if let Some(board) = self.boards.get_mut(name) {
                board.away.add(away, all);
            }
        }
    }
}
