//! Whose the units of a schedule are, and who is blamed for what they lose: processes that come and go, several on
//! one GPU, causes that are confirmed and cleared.

use std::collections::BTreeMap;

use gpuprod_rules::{Cause, External, Part, UnitId};

use super::schedule::Rng;

/// Tenants of a large node; a ledger names 16 at a time.
pub(crate) const CROWD: u64 = 24;

/// What a judgement says of a unit's owners, and of those that cost it something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owned {
    pub(crate) tenant: Option<String>,
    pub(crate) tenants: Vec<(Option<String>, Part)>,
    pub(crate) external: Vec<External>,
}

/// Who is there now.
#[derive(Clone, Debug, Default)]
struct Unit {
    /// One entry per process; one without a name belongs to nobody.
    processes: Vec<Option<u64>>,
    external: Vec<External>,
}

#[derive(Clone, Debug)]
pub(crate) struct Owners {
    /// Of its own, so that what befalls the node is the same with tenants and without.
    rng: Rng,
    /// So many tenants may come by. Most nodes have none: their sums go ten times as fast.
    names: u64,
    units: BTreeMap<UnitId, Unit>,
}

fn name(tenant: u64) -> String {
    format!("t{tenant}")
}

impl Owners {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng(seed ^ 0x7e9a_4715);
        let names = if rng.one_in(8) { rng.pick(&[3, 8, CROWD]) } else { 0 };
        Self { rng, names, units: BTreeMap::new() }
    }

    pub(crate) fn any(&self) -> bool {
        self.names > 0
    }

    /// A tick of a unit.
    pub(crate) fn beat(&mut self, id: &UnitId) -> Owned {
        if self.names == 0 {
            return Owned::default();
        }
        let (rng, names) = (&mut self.rng, self.names);
        let unit = self.units.entry(id.clone()).or_default();
        if rng.one_in(4) && unit.processes.len() < 4 {
            let process = (!rng.one_in(6)).then(|| rng.below(names));
            unit.processes.push(process);
        }
        if rng.one_in(8) && !unit.processes.is_empty() {
            let at = usize::try_from(rng.below(unit.processes.len() as u64)).unwrap_or(0);
            unit.processes.remove(at);
        }
        if unit.external.is_empty() && rng.one_in(4) {
            unit.external = blame(rng, names);
        } else if rng.one_in(8) {
            unit.external.clear();
        }
        let external = unit.external.clone();
        let named = |process: &Option<u64>| process.map(name);
        match unit.processes.as_slice() {
            [] => Owned { external, ..Owned::default() },
            [only] if rng.one_in(2) => Owned { tenant: named(only), external, ..Owned::default() },
            several => {
                let tenants = several.iter().map(named).zip(parts(rng, several.len())).collect();
                Owned { tenant: None, tenants, external }
            }
        }
    }
}

/// A cause that is confirmed, at times two, and those whose use it is.
fn blame(rng: &mut Rng, names: u64) -> Vec<External> {
    let mut external = Vec::new();
    for _ in 0..1 + rng.below(2) {
        // Nothing is ever lost to the network here: nobody has caused anything.
        let resource = rng.pick(&[Cause::Storage, Cause::Storage, Cause::HostCpu, Cause::Kv, Cause::Network]);
        let count = usize::try_from(1 + rng.below(3)).unwrap_or(1);
        for part in parts(rng, count) {
            external.push(External { resource, tenant: name(rng.below(names)), part });
        }
    }
    external
}

/// Nearly always they sum to one, or leave something to nobody; a judge at fault says more than one.
fn parts(rng: &mut Rng, count: usize) -> Vec<Part> {
    let mut left = Part::ONE.0;
    let mut parts = Vec::new();
    let kind = rng.below(8);
    for place in 1..=count {
        let some = u32::try_from(rng.below(u64::from(left) + 1)).unwrap_or(0);
        let part = match kind {
            0 => u32::try_from(rng.below(1_200_000)).unwrap_or(0),
            1 => some,
            2 => Part::ONE.0 / u32::try_from(count).unwrap_or(1),
            _ if place == count => left,
            _ => some,
        };
        left = left.saturating_sub(part);
        parts.push(Part(part));
    }
    parts
}
