//! What was used beside the time: energy, and bytes of storage. What nobody measured is absent, and not zero.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sum::{By, Of};
use crate::store::rows::Gains;

/// Of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Energy of the GPUs, in microjoules; absent where it is split by what energy is not known by (cause).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_microjoules: Option<u64>,
    /// Read from block devices; absent where it is split by anything but tenant and hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Written there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
}

fn add(sum: &mut Option<u64>, amount: u64) {
    *sum = Some(sum.unwrap_or(0).saturating_add(amount));
}

/// The sums by group, and of all.
pub(super) fn sum(gains: &Gains, keys: &[By]) -> (BTreeMap<Vec<Option<String>>, Used>, Used) {
    let (mut groups, mut total) = (BTreeMap::<_, Used>::new(), Used::default());
    let splits = |known: &[By]| keys.iter().all(|by| known.contains(by));
    let (energy, io) = (splits(&[By::Gpu, By::Tenant, By::Class, By::Hour]), splits(&[By::Tenant, By::Hour]));
    for (key, amount) in &gains.energy {
        add(&mut total.energy_microjoules, *amount);
        if energy {
            let of =
                Of { unit: Some(&key.unit), tenant: key.tenant.as_deref(), class: key.class, ..Of::hour(key.hour) };
            let group = groups.entry(keys.iter().map(|by| by.of(&of)).collect()).or_default();
            add(&mut group.energy_microjoules, *amount);
        }
    }
    for ((hour, tenant), moved) in &gains.io {
        let of = Of { tenant: tenant.as_deref(), ..Of::hour(*hour) };
        let group = io.then(|| groups.entry(keys.iter().map(|by| by.of(&of)).collect()).or_default());
        for used in group.into_iter().chain([&mut total]) {
            add(&mut used.read_bytes, moved.read);
            add(&mut used.written_bytes, moved.written);
        }
    }
    (groups, total)
}
