//! The energy of a GPU, split over its units by their slices and over the tenants of a unit as its time is.
//!
//! What counts is what the driver's counter gained from one charge to the next; the counter of a GPU that has none is made
//! of its power, for the stretches that a verdict speaks for. What was gained over a stretch that nobody speaks for (the
//! agent was away, the driver was silent) is the GPU's and nobody's. A counter that went back, and one of another boot,
//! begins anew: what it gained before it was first seen again is not known.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::{Millijoules, Nanos};
use serde::{Deserialize, Serialize};

use super::interval::{self, Interval};
use super::tenants::{self, OTHER};
use super::{Ledger, split};
use crate::{Judgement, Meter, UnitId, UnitJudgement};

/// No board draws more than 10 kW: a millijoule in 100 ns. Readings of counter and clock are apart by a second at most,
/// 10 kJ of that.
const NANOS_PER_MOST_MJ: u64 = 100;
const SLACK_MJ: u64 = 10_000_000;

/// Energy of a unit, in microjoules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Energy {
    /// All of it.
    pub total_uj: u64,
    /// Of that, what had an owner, in the order of names.
    pub tenants: Vec<(String, u64)>,
}

/// Where a counter stood, and when (CLOCK_BOOTTIME).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stand {
    /// The counter.
    #[serde(rename = "counter_mj")]
    pub counter: Millijoules,
    /// Of the tick in which it was read.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
}

/// What tells a GPU's energy.
pub(crate) fn meter(gpu: &Gpu) -> Option<Meter> {
    let counter = gpu.energy.copied().map(Meter::Counter);
    counter.or_else(|| gpu.power.copied().map(Meter::Power))
}

impl Energy {
    pub(super) const fn is_none(&self) -> bool {
        self.total_uj == 0
    }

    /// What belongs to nobody.
    #[must_use]
    pub fn unattributed_uj(&self) -> u64 {
        self.tenants.iter().fold(self.total_uj, |left, held| left.saturating_sub(held.1))
    }

    fn add(&mut self, tenant: &str, amount: u64) {
        if amount == 0 {
            return;
        }
        match self.tenants.binary_search_by(|held| held.0.as_str().cmp(tenant)) {
            Ok(at) => {
                if let Some((_, held)) = self.tenants.get_mut(at) {
                    *held = held.saturating_add(amount);
                }
            }
            Err(at) => self.tenants.insert(at, (tenant.to_owned(), amount)),
        }
    }

    pub(super) fn rename(&mut self, tenant: &str) {
        if let Ok(at) = self.tenants.binary_search_by(|held| held.0.as_str().cmp(tenant)) {
            let (_, amount) = self.tenants.remove(at);
            self.add(OTHER, amount);
        }
    }
}

impl Ledger {
    /// Books what the GPUs took since their meters were read last. The interval is the one just booked; none before the
    /// first.
    pub(super) fn read_meters(
        &mut self,
        interval: Option<&Interval>,
        judgement: &Judgement,
        present: &BTreeMap<&UnitId, &UnitJudgement>,
    ) {
        let stamp = &judgement.stamp;
        if self.upto.as_ref().is_some_and(|upto| upto.boot_id != stamp.boot_id || stamp.boot_id.0.is_empty()) {
            self.meters.clear();
        }
        // Nearly always a unit is a whole GPU.
        let mut boards: BTreeMap<&UnitId, Vec<&UnitJudgement>> = BTreeMap::new();
        for unit in present.values().copied() {
            match &unit.gpu {
                None => self.read_meter(&unit.unit, &[unit], interval, judgement),
                Some(gpu) => boards.entry(gpu).or_default().push(unit),
            }
        }
        for (gpu, units) in boards {
            self.read_meter(gpu, &units, interval, judgement);
        }
    }

    fn read_meter(
        &mut self,
        gpu: &UnitId,
        units: &[&UnitJudgement],
        interval: Option<&Interval>,
        judgement: &Judgement,
    ) {
        let (at, period) = (judgement.stamp.boottime, judgement.period);
        let Some(meter) = units.iter().find_map(|unit| unit.meter) else { return };
        let gained = match (meter, interval) {
            (Meter::Counter(counter), Some(_)) => self.gained(gpu, counter, at, period),
            // Where the clock went back or nothing was booked yet, it is the beginning at most.
            (Meter::Counter(counter), None) => {
                self.meters.entry(gpu.clone()).or_insert(Stand { counter, at });
                None
            }
            (Meter::Power(power), Some(interval)) if !self.meters.contains_key(gpu) => {
                let missed = interval::is_missed(interval.rest, period, false);
                let micros = u128::from(power.0).saturating_mul(u128::from(interval.rest.0)) / 1_000_000;
                (!missed).then(|| (u64::try_from(micros).unwrap_or(u64::MAX), true))
            }
            (Meter::Power(_), _) => None,
        };
        let Some((amount, seen)) = gained.filter(|gained| gained.0 > 0) else { return };
        let spoken = interval.filter(|interval| seen && interval.unknown.is_empty());
        self.share_out(amount, units, spoken.map(|interval| interval.rest), period);
    }

    /// What a counter gained, in microjoules, and whether that was within the time that its owner can be charged with.
    fn gained(&mut self, gpu: &UnitId, counter: Millijoules, at: Nanos, period: Nanos) -> Option<(u64, bool)> {
        let stand = Stand { counter, at };
        let before = match self.meters.get_mut(gpu) {
            Some(held) => core::mem::replace(held, stand),
            None => return self.meters.insert(gpu.clone(), stand).and(None),
        };
        let gained = counter.0.checked_sub(before.counter.0)?;
        let passed = at.saturating_sub(before.at);
        let believed = gained <= (passed.0 / NANOS_PER_MOST_MJ).saturating_add(SLACK_MJ);
        believed.then(|| (gained.saturating_mul(1_000), !interval::is_missed(passed, period, true)))
    }

    /// Gives the energy of a GPU to its units by their slices, and to their owners as their time was given.
    fn share_out(&mut self, amount: u64, units: &[&UnitJudgement], spoken: Option<Nanos>, period: Nanos) {
        let slices: Vec<(usize, u64)> = units.iter().map(|unit| u64::from(unit.slices.max(1))).enumerate().collect();
        let whole = slices.iter().fold(0, |all: u64, part| all.saturating_add(part.1));
        for (place, amount) in split::in_proportion(amount, &slices, whole) {
            let Some(unit) = units.get(place) else { continue };
            // A unit that is new in this judgement had no owner in the time before it.
            let account = match self.accounts.get_mut(&unit.unit) {
                Some(account) => account,
                None => self.accounts.entry(unit.unit.clone()).or_default(),
            };
            let booked = account.observed().0 > 0 && !account.retired;
            let owned = spoken.is_some_and(|rest| booked && !interval::is_missed(rest, period, unit.cumulative));
            account.energy.total_uj = account.energy.total_uj.saturating_add(amount);
            if !owned {
                continue;
            }
            for (tenant, part) in tenants::split(amount, unit) {
                if let Some(tenant) = tenant {
                    account.energy.add(self.tenants.name(tenant), part);
                }
            }
        }
    }

    /// Energy of all GPUs by tenant, in microjoules; none for what belongs to nobody.
    #[must_use]
    pub fn energy(&self) -> BTreeMap<Option<&str>, u64> {
        let mut totals: BTreeMap<Option<&str>, u64> = BTreeMap::new();
        let mut add = |tenant, amount: u64| {
            let total = totals.entry(tenant).or_default();
            *total = total.saturating_add(amount);
        };
        for account in self.accounts.values() {
            account.energy.tenants.iter().for_each(|(tenant, amount)| add(Some(tenant.as_str()), *amount));
            add(None, account.energy.unattributed_uj());
        }
        totals.retain(|_, amount| *amount > 0);
        totals
    }
}
