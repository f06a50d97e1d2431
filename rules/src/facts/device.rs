//! What is known of a unit as a device, and of the devices that its workload also uses.

use alloc::collections::BTreeSet;
use alloc::string::String;

use gpuprod_snapshot::units::Nanos;

use crate::Fault;
use crate::facts::UnitFacts;
use crate::kin::groups;
use crate::signals::device::{DeviceSignals, Lie};

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
    /// The processes that were its workload when they could last be listed.
    pub(crate) before: BTreeSet<u32>,
}

impl DeviceFacts<'_> {
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
