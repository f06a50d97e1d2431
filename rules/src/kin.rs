//! Which units are one workload: their processes meet in a common ancestor, a cgroup, a job or a pod.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::{Kin, UnitFacts};

/// What two units of one workload have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Tie {
    Process(u32),
    Cgroup(String),
    Owner(String),
}

/// Tells each unit that stands still or spins of the others of its workload.
pub(crate) fn introduce(facts: &mut [UnitFacts<'_>]) {
    let concerned = |unit: &UnitFacts<'_>| unit.usage.still.since().or(unit.usage.spins.since()).is_some();
    if facts.len() < 2 || !facts.iter().any(concerned) {
        return;
    }
    let groups = groups(facts);
    let all: Vec<Kin> = facts.iter().map(kin).collect();
    for (at, unit) in facts.iter_mut().enumerate().filter(|(_, unit)| concerned(unit)) {
        let others = groups.iter().zip(&all).enumerate();
        let mine = groups.get(at);
        unit.kin = others
            .filter(|(other, (group, _))| *other != at && Some(*group) == mine)
            .map(|(_, (_, kin))| kin.clone())
            .collect();
    }
}

fn kin(unit: &UnitFacts<'_>) -> Kin {
    Kin {
        name: unit.name.clone(),
        still: unit.usage.still.since(),
        spins: unit.usage.spins.since(),
        util: unit.usage.block.util,
        elsewhere: unit.elsewhere.clone(),
    }
}

/// The group of each unit, named by its first member.
pub(crate) fn groups(facts: &[UnitFacts<'_>]) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..facts.len()).collect();
    let mut met: BTreeMap<Tie, usize> = BTreeMap::new();
    for (at, unit) in facts.iter().enumerate() {
        // Of a lost GPU nobody lists the processes any more: those that it had are its workload's.
        let processes = unit.work.family.iter().copied().chain(unit.device.past()).map(Tie::Process);
        let cgroups = unit.holders.found.iter().filter_map(|holder| holder.cgroup.get()).filter(|path| path.len() > 1);
        for tie in processes.chain(cgroups.cloned().map(Tie::Cgroup)).chain(unit.work.owner.clone().map(Tie::Owner)) {
            let first = *met.entry(tie).or_insert(at);
            join(&mut groups, first, at);
        }
    }
    for (at, lost) in facts.iter().enumerate().filter(|(_, unit)| unit.device.before.is_some()) {
        for (other, _) in facts.iter().enumerate().filter(|(_, unit)| lost.device.broke_beside(unit)) {
            join(&mut groups, other, at);
        }
    }
    (0..groups.len()).map(|at| root(&groups, at)).collect()
}

fn root(groups: &[usize], mut at: usize) -> usize {
    while let Some(up) = groups.get(at).copied().filter(|up| *up != at) {
        at = up;
    }
    at
}

/// The smaller number leads, so that the name of a group does not depend on the order of ties.
fn join(groups: &mut [usize], left: usize, right: usize) {
    let (left, right) = (root(groups, left), root(groups, right));
    let (low, high) = (left.min(right), left.max(right));
    if let Some(group) = groups.get_mut(high) {
        *group = low;
    }
}
