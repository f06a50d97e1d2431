//! On which sockets the processes of GPUs spend their CPU time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

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

impl PcieSignals {
    pub(super) fn places(&mut self, window: &Window) {
        let Some((old, new, _)) = window.pair(|tick| &tick.proc) else { return };
        let Some(gpus) = window.last.gpu.as_ref().and_then(|sample| sample.value.get()) else { return };
        // The socket of each GPU's board, and the places of the GPUs that a process holds.
        let mut homes: Vec<Option<u32>> = Vec::with_capacity(gpus.devices.len());
        let mut holds: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, gpu) in gpus.devices.iter().enumerate() {
            let board = self.board(gpu);
            homes.push(board.and_then(|board| self.sockets.get(&board.node?).copied()));
            for process in gpu.processes.get().into_iter().flatten().filter(|_| board.is_some()) {
                let held = holds.entry(process.pid).or_default();
                if held.last() != Some(&place) {
                    held.push(place);
                }
            }
        }
        let home = |place: &usize| homes.get(*place).copied().flatten();
        let mut spent: Vec<(f64, f64)> = alloc::vec![(0.0, 0.0); homes.len()];
        for process in &new.processes {
            // Its loaders work for it.
            let own = holds.get(&process.pid).or_else(|| holds.get(&process.ppid.copied()?));
            let Some(boards) = own else { continue };
            // A GPU whose socket is not known: nothing can be said of its processes.
            if boards.iter().any(|place| home(place).is_none()) {
                continue;
            }
            let before = old.processes.binary_search_by_key(&process.pid, |old| old.pid).ok();
            let (mut away, mut all) = (0.0, 0.0);
            for (node, time) in used(before.and_then(|place| old.processes.get(place)), process) {
                let Some(socket) = self.sockets.get(&node) else { continue };
                let near = boards.iter().any(|place| home(place) == Some(*socket));
                all += time.as_secs_f64();
                away += if near { 0.0 } else { time.as_secs_f64() };
            }
            for place in boards {
                if let Some(sum) = spent.get_mut(*place) {
                    *sum = (sum.0 + away, sum.1 + all);
                }
            }
        }
        for (gpu, (away, all)) in gpus.devices.iter().zip(spent) {
            if all > 0.0
                && let Some(board) = self.boards.get_mut(&*identity(gpu))
            {
                board.away.add(away, all);
            }
        }
    }
}
