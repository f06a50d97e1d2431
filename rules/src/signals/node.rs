//! What the node's drives do in all: which they are, and their operations per second.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::{ENOUGH_SECONDS, Suspect};
use crate::baseline::{Track, Worse};
use crate::window::Window;
use crate::{Policy, entries};

/// Most drives that are kept.
const DRIVES: usize = 64;

/// Of the node as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSignals {
    /// Drives: what is neither a partition nor made of others.
    pub(crate) drives: BTreeSet<String>,
    /// Operations per second, by drive.
    #[serde(with = "entries")]
    pub(crate) operations: BTreeMap<String, Box<Track>>,
}

impl NodeSignals {
    pub(crate) fn update(&mut self, window: &Window) {
        let Some((old, new, between)) = window.pair(|tick| &tick.block) else { return };
        for device in &new.devices {
            let virtual_one = ["loop", "ram", "zram", "md", "dm-"].iter().any(|kind| device.name.starts_with(kind));
            if device.partition_of.is_some() || !device.slaves.is_empty() || virtual_one {
                continue;
            }
            let before = old.devices.iter().find(|before| before.name == device.name && before.dev == device.dev);
            let Some((before, after)) = before.and_then(|before| before.io.get()).zip(device.io.get()) else {
                continue;
            };
            let operations = |io: &gpuprod_snapshot::storage::IoCounters| io.reads.saturating_add(io.writes);
            let Some(done) = operations(after).checked_sub(operations(before)) else { continue };
            if !self.drives.contains(&device.name) {
                if self.drives.len() >= DRIVES {
                    continue;
                }
                self.drives.insert(device.name.clone());
            }
            let fresh = || Box::new(Track::new(Worse::Lower, ENOUGH_SECONDS));
            let track = match self.operations.get_mut(&device.name) {
                Some(known) => known,
                None => self.operations.entry(device.name.clone()).or_insert_with(fresh),
            };
            track.add(to_f64(done), between.as_secs_f64());
        }
        self.drives.retain(|name| new.devices.iter().any(|device| device.name == *name));
        self.operations.retain(|name, _| self.drives.contains(name));
    }

    pub(crate) fn close(&mut self, start: Nanos, suspect: &Suspect, policy: &Policy) {
        for (name, track) in &mut self.operations {
            track.gauge(start, !suspect.disks.contains(name), policy);
        }
    }

    pub(crate) fn rest(&mut self) {
        self.operations.values_mut().for_each(|track| track.rest());
    }
}
