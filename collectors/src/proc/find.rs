//! Which processes to look at.

use std::collections::{BTreeMap, BTreeSet};

use gpuprod_snapshot::units::Nanos;

use super::text::{self, Stat};
use super::{MAX_TASKS, all_pids, fds};
use crate::{Focus, Host, tree};

/// Processes in one collection.
const MAX_PROCESSES: usize = 256;
/// Generations above a process that holds a GPU.
const MAX_ANCESTORS: usize = 4;
/// Children of one process.
const MAX_CHILDREN: usize = 64;
/// Processes that are asked for their parent when the kernel does not list children.
const MAX_SCAN: usize = 4096;
/// Processes whose open files are searched for a port, in one collection; the next one goes on from there.
const MAX_SEARCH: usize = 256;

/// Remembers who listens where, so that the search over all processes is rare.
#[derive(Default)]
pub(super) struct Finder {
    holders: BTreeMap<u16, (u32, Nanos)>,
    /// The search goes down from here.
    below: Option<u32>,
}

/// A process's stat line; nothing for one that is gone or makes no sense.
pub(super) fn stat(host: &Host, pid: u32) -> Option<Stat> {
    let path = host.proc.join(pid.to_string()).join("stat");
    text::stat(&tree::text(&path).ok()?)
}

impl Finder {
    /// The pids: those in focus first (they are never crowded out), then who listens on the ports, ancestors,
    /// children. Ascending.
    pub(super) fn find(&mut self, host: &Host, focus: &Focus, listeners: &mut fds::Listeners<'_>) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let add = |pid: u32, found: &mut BTreeSet<u32>| {
            if pid > 1 && found.len() < MAX_PROCESSES {
                found.insert(pid);
            }
        };
        for pid in &focus.pids {
            add(*pid, &mut found);
        }
        let roots = found.clone();
        for pid in roots.iter().flat_map(|pid| ancestors(host, *pid)) {
            add(pid, &mut found);
        }
        for pid in self.listening(host, &focus.ports, &found, listeners) {
            add(pid, &mut found);
        }
        for pid in children(host, &roots) {
            add(pid, &mut found);
        }
        found
    }

    /// Who listens on the ports: those that did the last time, else those among `near`, else whoever the search
    /// finds.
    fn listening(
        &mut self,
        host: &Host,
        ports: &BTreeSet<u16>,
        near: &BTreeSet<u32>,
        listeners: &mut fds::Listeners<'_>,
    ) -> Vec<u32> {
        self.holders.retain(|port, (pid, start)| {
            ports.contains(port) && stat(host, *pid).is_some_and(|stat| stat.start == *start)
        });
        let mut wanted: BTreeSet<u16> = ports.clone();
        wanted.retain(|port| !self.holders.contains_key(port));
        if !wanted.is_empty() {
            for pid in near.iter().copied() {
                self.ask(host, pid, &mut wanted, listeners);
            }
        }
        if !wanted.is_empty() {
            self.search(host, &mut wanted, listeners);
        }
        self.holders.values().map(|(pid, _)| *pid).collect()
    }

    /// The youngest processes first: engines start late.
    fn search(&mut self, host: &Host, wanted: &mut BTreeSet<u16>, listeners: &mut fds::Listeners<'_>) {
        let all = all_pids(host);
        let below = self.below.unwrap_or(u32::MAX);
        let batch: Vec<u32> = all.range(..below).rev().take(MAX_SEARCH).copied().collect();
        self.below = batch.last().copied().filter(|_| batch.len() == MAX_SEARCH);
        for pid in batch {
            if wanted.is_empty() {
                return;
            }
            self.ask(host, pid, wanted, listeners);
        }
    }

    fn ask(&mut self, host: &Host, pid: u32, wanted: &mut BTreeSet<u16>, listeners: &mut fds::Listeners<'_>) {
        let Ok(targets) = fds::targets(host, pid) else {
            return;
        };
        let ports = listeners.of(&pid.to_string(), &targets);
        let ports = ports.get().map(Vec::as_slice).unwrap_or_default();
        if !ports.iter().any(|port| wanted.contains(port)) {
            return;
        }
        let Some(stat) = stat(host, pid) else { return };
        for port in ports {
            if wanted.remove(port) {
                self.holders.insert(*port, (pid, stat.start));
            }
        }
    }
}

/// Parents upwards, process 1 left out.
fn ancestors(host: &Host, pid: u32) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let mut next = pid;
    while found.len() < MAX_ANCESTORS {
        match stat(host, next) {
            Some(stat) if stat.ppid > 1 => found.push(stat.ppid),
            _ => break,
        }
        next = found.last().copied().unwrap_or_default();
    }
    found
}

/// Direct children (workers that load data): the kernel's own list where it has one, else by everybody's parent.
fn children(host: &Host, parents: &BTreeSet<u32>) -> Vec<u32> {
    let mut found = Vec::new();
    let mut unlisted = BTreeSet::new();
    for parent in parents {
        match listed(host, *parent) {
            Some(children) => found.extend(children.into_iter().take(MAX_CHILDREN)),
            None => {
                unlisted.insert(*parent);
            }
        }
    }
    if unlisted.is_empty() {
        return found;
    }
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for pid in all_pids(host).into_iter().rev().take(MAX_SCAN) {
        let Some(parent) = stat(host, pid).map(|stat| stat.ppid) else {
            continue;
        };
        let count = counts.entry(parent).or_default();
        if unlisted.contains(&parent) && *count < MAX_CHILDREN {
            *count += 1;
            found.push(pid);
        }
    }
    found
}

/// `task/*/children`: each thread lists its own. Nothing when the kernel has no such file.
fn listed(host: &Host, pid: u32) -> Option<Vec<u32>> {
    let dir = host.proc.join(pid.to_string()).join("task");
    let mut found = Vec::new();
    let mut any = false;
    let Ok(tasks) = tree::names(&dir) else {
        return Some(found); // it ended: nothing to search for
    };
    for task in tasks.iter().take(MAX_TASKS) {
        let Ok(text) = tree::text(&dir.join(task).join("children")) else {
            continue;
        };
        any = true;
        found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    any.then_some(found)
}
