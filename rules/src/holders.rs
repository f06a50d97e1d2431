//! Who holds a unit, and whether the holders are alive.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::Missing;
use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::host::Process;

use crate::gather::Gather;
use crate::unit::Unit;
use crate::usage::{End, Life};
use crate::wait::{self, Wait};
use crate::{Holder, Policy};

/// The processes with a context on a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders<'a> {
    pids: Vec<u32>,
    /// Those that are in the process table.
    pub(crate) found: Vec<&'a Process>,
    /// Some of them, or the list itself, cannot be looked at: another pid namespace, no permission.
    pub(crate) hidden: bool,
    /// Pids that were in the table and are not any more.
    gone: Vec<u32>,
}

impl<'a> Gather<'a> {
    pub(crate) fn holders(&self, unit: &Unit, gpu: Option<&Gpu>, memory: Option<f64>, policy: &Policy) -> Holders<'a> {
        let listed = gpu.is_some_and(|gpu| gpu.processes.get().is_some());
        let pids = unit.pids_on(gpu);
        let found: Vec<&Process> = pids.iter().filter_map(|pid| self.processes.get(pid).copied()).collect();
        let missing = pids.iter().filter(|pid| !self.processes.contains_key(pid));
        let (gone, unseen): (Vec<u32>, Vec<u32>) = missing.copied().partition(|pid| unit.usage.seen.contains_key(pid));
        // The driver may drop a dead process from its list and keep its memory.
        let held = memory.is_some_and(|memory| memory >= policy.squatter.dead_mem.as_fraction());
        let dropped = unit.usage.seen.keys().copied().filter(|_| listed && held && pids.is_empty());
        let gone = gone.into_iter().chain(dropped).filter(|_| self.looked).collect();
        Holders { hidden: !listed || !self.looked || !unseen.is_empty(), pids, found, gone }
    }
}

impl Holders<'_> {
    /// Those of the table that hold it.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.found.iter().map(|process| process.pid).collect()
    }

    /// Whether nobody is known to hold it, or to have held it until it was gone.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.gone.is_empty()
    }

    /// For the finding: those of the table, and those that are gone.
    pub(crate) fn shown(&self) -> Vec<Holder> {
        let found = self.found.iter().map(|process| Holder {
            pid: process.pid,
            comm: process.comm.get().cloned().unwrap_or_default(),
            uid: process.uid.copied(),
            state: process.state.copied(),
            cgroup: process.cgroup.get().cloned().unwrap_or_default(),
        });
        let gone = self.gone.iter().map(|pid| Holder {
            pid: *pid,
            comm: String::new(),
            uid: None,
            state: None,
            cgroup: String::new(),
        });
        found.chain(gone).collect()
    }

    /// Whether a holder is stopped: by a debugger, or by a scheduler.
    pub(crate) fn stopped(&self) -> bool {
        self.found.iter().any(|process| matches!(process.state.copied(), Some('T' | 't')))
    }

    /// Why a rank of the workload may run on another node; nothing when that is ruled out.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        if self.hidden || self.found.is_empty() || self.found.len() < self.pids.len() {
            return Some("its processes cannot be looked at".into());
        }
        self.found.iter().find_map(|process| match (process.rdma.copied(), process.remote_peers.copied()) {
            (Some(true), _) => Some("it holds an RDMA device open".into()),
            (_, Some(peers)) if peers > 0 => Some(format!("it has {peers} connections with other hosts")),
            (Some(false), Some(_)) => None,
            _ => Some("its sockets cannot be read (needs root)".into()),
        })
    }
}

/// Takes note of holders that are alive, and of the engine that answers for them.
pub(crate) fn remember(
    unit: &mut Unit,
    holders: &Holders<'_>,
    engine: Option<&Engine>,
    memory: Option<f64>,
    policy: &Policy,
) {
    let usage = Arc::make_mut(&mut unit.usage);
    let free = memory.is_some_and(|memory| memory < policy.squatter.dead_mem.as_fraction());
    // With nobody on the list and the memory free, nobody is missed.
    if !holders.pids.is_empty() || free {
        usage.seen.retain(|pid, _| holders.pids.contains(pid));
        if usage.seen.is_empty() {
            (usage.served, usage.answered) = (None, None);
        }
    }
    for process in holders.found.iter().filter(|process| !is_dead(process)) {
        usage.meet(process.pid, process.start.copied(), process.ppid.copied());
    }
    if let Some(engine) = engine.filter(|engine| engine.page.get().is_some()) {
        usage.serve(&engine.url);
    }
}

impl Gather<'_> {
    /// Whether the engine that served the unit refuses its page now; nothing while it cannot be told. It is asked
    /// by its address: a link that was lost is no answer that was lost.
    pub(crate) fn refused(&self, unit: &mut Unit) -> Option<bool> {
        let url = unit.usage.served.as_ref()?;
        let engine = self.engines.iter().find(|engine| engine.url == *url)?;
        if engine.page.get().is_some() {
            Arc::make_mut(&mut unit.usage).answered = Some(self.now);
            return Some(false);
        }
        (engine.page.missing() == Some(Missing::Gone)).then_some(true)
    }
}

/// What the holders tell at this tick.
pub(crate) fn life(
    unit: &Unit,
    holders: &Holders<'_>,
    (refused, over): (Option<bool>, bool),
    memory: Option<f64>,
    policy: &Policy,
) -> Life {
    let held = memory.map(|memory| memory >= policy.squatter.dead_mem.as_fraction());
    if holders.hidden || held.is_none() {
        return Life { refused, ..Life::default() };
    }
    let present = !holders.found.is_empty() || !holders.gone.is_empty();
    let all = |is: &dyn Fn(&&Process) -> bool| present && holders.found.iter().all(is);
    let end = if held != Some(true) || !present {
        None
    } else if all(&|process| is_dead(process)) {
        Some(End::Dead)
    } else if all(&|process| is_dead(process) || in_removed_cgroup(process)) {
        Some(End::CgroupGone)
    } else if over {
        Some(End::JobOver)
    } else if refused == Some(true) && unit.usage.refused.since().is_some() {
        Some(End::EngineGone)
    } else if all(&|process| is_dead(process) || was_left(unit, process)) {
        Some(End::Reparented)
    } else {
        None
    };
    let wedged = holders.found.iter().any(|process| {
        let place = process.wchan.get().map(|place| wait::of(place));
        process.threads_blocked.copied().is_some_and(|threads| threads > 0) && place == Some(Wait::Driver)
    });
    Life { end: Some(end), wedged: Some(wedged), refused }
}

/// A zombie whose threads are gone too, or are stuck on their way out. The leader of a process may end alone.
fn is_dead(process: &Process) -> bool {
    let others = process.threads.copied().unwrap_or(1).saturating_sub(1);
    let blocked = process.threads_blocked.copied().unwrap_or(0);
    match process.state.copied() {
        Some('X') => true,
        Some('Z') => others == 0 || blocked >= others,
        _ => false,
    }
}

fn in_removed_cgroup(process: &Process) -> bool {
    process.cgroup.get().is_some_and(|path| path.ends_with(" (deleted)"))
}

/// Its parent died: it has another one than at first, and that is no ancestor of before but the first process.
fn was_left(unit: &Unit, process: &Process) -> bool {
    let first = unit.usage.seen.get(&process.pid).and_then(|seen| seen.parent);
    process.ppid.copied() == Some(1) && first.is_some_and(|parent| parent > 1)
}
