//! What is known of a unit as a device, and of the devices that its workload also uses.

use alloc::collections::BTreeSet;
use alloc::string::String;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::Fault;
use crate::facts::UnitFacts;
use crate::kin::groups;
use crate::signals::device::{DeviceSignals, Lie};

/// Processes of a workload that are remembered while nobody lists them.
const MOST_REMEMBERED: usize = 64;

/// The device below a unit at this tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceFacts<'a> {
    pub(crate) signals: Option<&'a DeviceSignals>,
    /// It is broken.
    pub(crate) fault: Option<Fault>,
    /// Another unit of the same workload that is broken.
    pub(crate) broken_peer: Option<String>,
    /// What of its readings cannot be believed, and since when.
    pub(crate) lie: Option<(Lie, Nanos)>,
    /// Its engine's tokens and its own activity contradict each other since.
    pub(crate) conflict: Option<Nanos>,
    /// Whose it was when its processes were last listed, and how long ago that is; only of what is broken.
    pub(crate) before: Option<(Before, Nanos)>,
}

/// Whose a unit was when its processes were last listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Before {
    /// The processes that were its workload.
    pub(crate) family: BTreeSet<u32>,
    /// Their cgroup, and in words whose they were: with one process per rank, all that ties it to the others.
    pub(crate) cgroup: Option<String>,
    pub(crate) owner: Option<String>,
    /// The last time.
    pub(crate) seen: Nanos,
}

impl Before {
    /// Takes note of who has it, while somebody says.
    pub(crate) fn note(&mut self, unit: &UnitFacts<'_>, now: Nanos) {
        if unit.work.family.is_empty() {
            return;
        }
        self.seen = now;
        if unit.work.family != self.family {
            self.family = unit.work.family.iter().copied().take(MOST_REMEMBERED).collect();
        }
        if unit.work.ties.cgroup != self.cgroup {
            self.cgroup.clone_from(&unit.work.ties.cgroup);
        }
        if unit.work.owner != self.owner {
            self.owner.clone_from(&unit.work.owner);
        }
    }
}

impl DeviceFacts<'_> {
    /// The processes that were its workload before it broke.
    pub(crate) fn past(&self) -> impl Iterator<Item = u32> + '_ {
        self.before.iter().flat_map(|(before, _)| before.family.iter().copied())
    }

    /// Whether it broke while a unit was of the same workload. What was started later is another one, though it runs in the
    /// same cgroup.
    pub(crate) fn broke_beside(&self, unit: &UnitFacts<'_>) -> bool {
        let Some((before, ago)) = &self.before else { return false };
        let same = |own: &Option<String>, other: &Option<String>| own.is_some() && own == other;
        unit.age.is_some_and(|age| age >= *ago)
            && (same(&before.cgroup, &unit.work.ties.cgroup) || same(&before.owner, &unit.work.owner))
    }

    /// Whether this is what cannot be believed.
    pub(crate) fn is(&self, lie: Lie) -> bool {
        self.lie.is_some_and(|(told, _)| told == lie)
    }
}

/// Tells each unit of a broken one in its workload: whoever waits for it is a victim.
pub(crate) fn tell(facts: &mut [UnitFacts<'_>]) {
    if facts.iter().all(|unit| unit.device.fault.is_none()) {
        return;
    }
    let groups = groups(facts);
    for at in 0..facts.len() {
        let broken = facts.iter().zip(&groups).enumerate().find(|(other, (unit, group))| {
            *other != at && unit.device.fault.is_some() && Some(*group) == groups.get(at)
        });
        let name = broken.map(|(_, (unit, _))| unit.name.clone());
        if let Some(unit) = facts.get_mut(at).filter(|unit| unit.device.fault.is_none()) {
            unit.device.broken_peer = name;
        }
    }
}
