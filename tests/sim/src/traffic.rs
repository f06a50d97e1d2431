//! What is read and written in one second, by device.

use std::collections::BTreeMap;

use crate::scenario::Scenario;
use crate::words::float;

/// Reads of an array are reads of its members, in equal shares.
pub(crate) fn spread(scenario: &Scenario, second: u64, device: &str, bytes: f64, block: f64, traffic: &mut Traffic) {
    traffic.read(device, bytes, block);
    if let Some(array) = scenario.arrays.iter().find(|array| array.name == device) {
        let members = scenario.members(array, second);
        let share = bytes / float(members.in_sync().count().max(1));
        members.in_sync().for_each(|name| traffic.read(name, share, block));
    }
}

/// Reads, bytes read and bytes written of each device in one second.
#[derive(Debug, Default)]
pub(crate) struct Traffic(BTreeMap<String, (f64, f64, f64)>);

impl Traffic {
    pub(crate) fn read(&mut self, device: &str, bytes: f64, block: f64) {
        let (reads, read, _) = self.0.entry(device.to_owned()).or_default();
        *reads += bytes / block;
        *read += bytes;
    }
    pub(crate) fn write(&mut self, device: &str, bytes: f64) {
        self.0.entry(device.to_owned()).or_default().2 += bytes;
    }
    pub(crate) fn of(&self, device: &str) -> (f64, f64, f64) {
        self.0.get(device).copied().unwrap_or_default()
    }
}
