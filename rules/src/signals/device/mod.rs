//! What is learnt of each GPU as a device: its errors, its clocks, its link, and whether its readings can be believed.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::topology::PciAddress;
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Source, Tick};
use serde::{Deserialize, Serialize};

use crate::unit::identity;
use crate::window::Window;
use crate::{Policy, entries};

mod clocks;
mod codes;
mod errors;
mod trail;
mod trust;

pub(crate) use clocks::{Clocks, Held, HeldDown};
pub(crate) use codes::meaning;
pub(crate) use errors::{Errors, Line};
pub(crate) use trust::{Lie, Trust};

/// No node has more; a hostile recording must not cost more than a node can.
const MOST_DEVICES: usize = 1024;

/// All GPUs ever seen, by their identity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Devices {
    #[serde(with = "entries")]
    devices: BTreeMap<String, Box<DeviceSignals>>,
    /// The driver has said nothing since, and the call that does not come back.
    #[serde(default)]
    silent: Option<(Nanos, Option<String>)>,
}

/// What was learnt about one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceSignals {
    pci: Option<PciAddress>,
    pub(crate) errors: Errors,
    pub(crate) clocks: Clocks,
    pub(crate) trust: Trust,
}

impl Devices {
    pub(crate) fn get(&self, identity: &str) -> Option<&DeviceSignals> {
        self.devices.get(identity).map(|device| &**device)
    }

    /// Ends the block that began at `start`.
    pub(crate) fn close(&mut self, start: Nanos, policy: &Policy) {
        for device in self.devices.values_mut() {
            device.clocks.close(start, policy);
        }
    }

    /// Keeps every own normal and drops the present.
    pub(crate) fn rest(&mut self) {
        for device in self.devices.values_mut() {
            device.clocks.rest();
            device.trust.rest();
        }
    }

    /// Since when the driver has said nothing, though it was asked, and the call that does not come back.
    pub(crate) fn silence(&self, now: Nanos) -> Option<(Nanos, Option<&str>)> {
        self.silent.as_ref().filter(|(since, _)| *since <= now).map(|(since, call)| (*since, call.as_deref()))
    }

    /// Takes in what the tick brought.
    pub(crate) fn update(&mut self, window: &Window, tick: &Tick, policy: &Policy) {
        let now = tick.stamp.boottime;
        let gpus = tick.gpu.as_ref().and_then(|sample| sample.value.get());
        for gpu in gpus.into_iter().flat_map(|gpus| &gpus.devices) {
            let identity = identity(gpu);
            let full = self.devices.len() >= MOST_DEVICES;
            let device = match self.devices.get_mut(&*identity) {
                Some(device) => device,
                None if full => continue,
                None => self.devices.entry(identity.into_owned()).or_default(),
            };
            device.pci = gpu.pci.copied().or(device.pci);
        }
        let events = tick.xid.iter().filter_map(|sample| sample.value.get()).flat_map(|xids| &xids.events);
        for event in events {
            let age = tick.stamp.monotonic.saturating_sub(event.at);
            for device in self.devices.values_mut() {
                if event.pci.copied().zip(device.pci).is_some_and(|(event, own)| event.same_slot(own)) {
                    device.errors.line(event, now, age, policy);
                }
            }
        }
        if let Some(sample) = &tick.gpu {
            let hung = sample.hung.as_ref();
            self.silent = sample.value.missing().map(|_| {
                let since = self.silent.as_ref().map_or(now, |(since, _)| *since);
                (hung.map_or(since, |hung| hung.since), hung.map(|hung| hung.call.clone()))
            });
        }
        let silent = window.value(Source::Gpu, |tick| &tick.gpu).missing().is_some();
        for (name, device) in &mut self.devices {
            device.trust.tick(now, policy);
            match gpus {
                Some(gpus) => {
                    let gpu = gpus.devices.iter().find(|gpu| is(gpu, name));
                    device.errors.read(gpu, now, policy);
                    device.trust.read(gpu, now);
                    if let Some(gpu) = gpu {
                        device.clocks.read(gpu, now, policy);
                    }
                }
                None => {
                    device.trust.read(None, now);
                    if silent {
                        device.errors.unseen();
                    }
                }
            }
        }
    }
}

/// Whether this is the GPU of that identity, without writing its name down.
fn is(gpu: &Gpu, name: &str) -> bool {
    match gpu.uuid.get() {
        Some(uuid) => uuid == name,
        None => identity(gpu) == name,
    }
}
