//! What is known of a unit as a device, and of the devices that its workload also uses.

use alloc::collections::BTreeSet;
use alloc::string::String;

use crate::Fault;
use crate::facts::UnitFacts;
use crate::kin::groups;
use crate::signals::device::DeviceSignals;

/// The device below a unit at this tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceFacts<'a> {
    pub(crate) signals: Option<&'a DeviceSignals>,
    /// It is broken.
    pub(crate) fault: Option<Fault>,
    /// Another unit of the same workload that is broken.
    pub(crate) broken_peer: Option<String>,
    /// The processes that were its workload when they could last be listed.
    pub(crate) before: BTreeSet<u32>,
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
