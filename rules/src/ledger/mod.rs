//! Where every nanosecond goes, exactly once.
//!
//! What holds at every instant, for every saved ledger, whatever clocks, reboots, suspends and devices do
//! (`tests/pure/laws.rs` checks each against an oracle of its own):
//!
//! - The states of a share sum to its observed time, to the nanosecond.
//! - Its buckets sum to the observed time times its slices, to the slice-nanosecond.
//! - No figure ever decreases, across restarts too; an account is never removed.
//! - Its tenants and what belongs to nobody sum to its buckets, to the slice-nanosecond.
//! - The units of a GPU, those that are gone too, sum to its time, however often it is cut anew.
//! - What others' use has cost a tenant is never more than what it lost to that cause.
//! - The energy of a GPU's units is what its counter gained, and that of a unit's tenants and of nobody is the unit's.
//! - A part is between zero and one, whatever the judgement says.
//! - The order of units and of parts does not matter: same judgements, same bytes.
//! - Saved, loaded and continued is the same as never having stopped.
//! - A GPU that was lost stays owned, as long as its judgement says so.
//! - What nobody saw is `unknown{reason}`, exactly.
//!
//! The unit of account is the **slice-nanosecond**: a whole GPU has as many slices as its largest MIG profile,
//! or one. An account keeps one [`Share`] per size that its unit ever had, so that figures of different sizes
//! never mix. Arithmetic is in integers; it saturates and cannot fail.
//!
//! Whose a stretch of time is (how it is cut: `interval.rs`):
//!
//! - It belongs to the units that had an account **before** it. A unit that is new in a judgement begins its
//!   account at that instant, with nothing booked.
//! - A unit that is in the judgement is booked by its verdict, with the slices that it had before.
//! - A unit that is missing from the judgement is `unknown{nvml_error}`: the judge names every unit it knows, so
//!   nobody spoke for it.
//! - Unless another unit of the same GPU is there: then the GPU was repartitioned. The last stretch is
//!   `unknown{missed}` (it was the old unit's, and nobody saw the moment), the account is retired and stands
//!   still. If the unit ever comes back, it begins again at that instant, on top of its old figures.

mod account;
pub mod energy;
pub mod external;
mod interval;
mod io;
mod split;
pub mod tenants;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

pub use account::{Account, Share, Total};
pub use external::ExternalShare;
use interval::Interval;
use tenants::Roll;

use crate::{Judgement, TenantIo, UnitId, UnitJudgement, Unknown};

/// All accounts, and the instant up to which they are charged. This is also the saved form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// Charged up to here; none in a fresh ledger.
    pub upto: Option<Stamp>,
    /// Loaded by a new process: the next stretch is the agent's absence.
    pub resumed: bool,
    /// The tenants that have a name.
    #[serde(skip_serializing_if = "Roll::is_empty")]
    pub tenants: Roll,
    /// Where the energy counter of each GPU stood.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meters: BTreeMap<UnitId, energy::Stand>,
    /// Bytes that tenants read and wrote, in the order of names; nobody's is without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<TenantIo>,
    /// The accounts, by unit.
    pub accounts: BTreeMap<UnitId, Account>,
    /// Steps of the wall clock, and clocks that went backwards: seen, noted, without effect.
    pub clock_steps: u64,
    /// Verdicts whose parts did not sum to one and were mended: a fault of the judge, never of the host.
    pub mended: u64,
}

impl Ledger {
    /// A new process goes on with a saved ledger.
    pub fn resume(&mut self) {
        self.resumed = true;
    }

    /// Books the time since the last charge. The first charge of a fresh ledger books nothing.
    pub fn charge(&mut self, judgement: &Judgement) {
        let present = by_unit(judgement);
        self.meet_tenants(&present, judgement);
        let mut advances = true;
        let mut passed = None;
        if let Some(upto) = &self.upto {
            let interval = Interval::between(upto, &judgement.stamp, self.resumed);
            self.clock_steps = self.clock_steps.saturating_add(interval.steps);
            self.book(&interval, judgement.period, &present);
            advances = interval.advances;
            if advances {
                self.add_io(&interval, &judgement.io);
                passed = Some(interval);
            }
        }
        self.read_meters(passed.as_ref(), judgement, &present);
        if advances {
            // From here on this process saw everything itself.
            self.resumed = false;
            self.upto = Some(judgement.stamp.clone());
        }
        for (id, unit) in present {
            match self.accounts.get_mut(id) {
                Some(account) => account.meet(unit),
                None => self.accounts.entry(id.clone()).or_default().meet(unit),
            }
        }
    }

    /// Names those who are there; who loses its name goes on as `other`.
    fn meet_tenants(&mut self, present: &BTreeMap<&UnitId, &UnitJudgement>, judgement: &Judgement) {
        let owners = present.values().flat_map(|unit| tenants::parts(unit)).filter_map(|part| part.0);
        let causers = present.values().flat_map(|unit| &unit.external).map(|external| external.tenant.as_str());
        let readers = judgement.io.iter().filter_map(|io| io.tenant.as_deref());
        let mut named: Vec<&str> = owners.chain(causers).chain(readers).collect();
        // In the order of names, whatever the order of units.
        named.sort_unstable();
        named.dedup();
        for gone in self.tenants.meet(named.into_iter(), judgement.stamp.realtime) {
            self.rename_io(&gone);
            self.accounts.values_mut().for_each(|account| account.rename(&gone));
        }
    }

    /// Gives the interval to every unit that had an account before it.
    fn book(&mut self, interval: &Interval, period: Nanos, present: &BTreeMap<&UnitId, &UnitJudgement>) {
        for (id, account) in &mut self.accounts {
            if account.retired {
                continue;
            }
            for &(reason, length) in &interval.unknown {
                account.book_unknown(reason, length);
            }
            let rest = interval.rest;
            match present.get(id) {
                Some(unit) if interval::is_missed(rest, period, unit.cumulative) => {
                    account.book_unknown(Unknown::Missed, rest);
                }
                Some(unit) => {
                    let (parts, mended) = split::mend(unit.state, &unit.split);
                    self.mended = self.mended.saturating_add(u64::from(mended));
                    account.book(unit.state, unit.weight.source, &parts, rest, Some((unit, &self.tenants)));
                }
                None if is_replaced(account.gpu.as_ref().unwrap_or(id), present) => {
                    account.book_unknown(Unknown::Missed, rest);
                    account.retired = true;
                }
                None => account.book_unknown(Unknown::NvmlError, rest),
            }
        }
    }
}

/// Whether another unit of the same GPU is there.
fn is_replaced(gpu: &UnitId, present: &BTreeMap<&UnitId, &UnitJudgement>) -> bool {
    let mut units = present.values();
    units.any(|unit| unit.gpu.as_ref().unwrap_or(&unit.unit) == gpu)
}

/// The verdicts by unit. Of several verdicts on one unit (a fault of the judge) the lowest in the order of words
/// counts, so that the order in which they came does not.
fn by_unit(judgement: &Judgement) -> BTreeMap<&UnitId, &UnitJudgement> {
    let mut units: BTreeMap<&UnitId, &UnitJudgement> = BTreeMap::new();
    for unit in &judgement.units {
        let rival = units.insert(&unit.unit, unit);
        if let Some(rival) = rival.filter(|rival| rank(rival) < rank(unit)) {
            units.insert(&unit.unit, rival);
        }
    }
    units
}

fn rank(unit: &UnitJudgement) -> impl Ord + '_ {
    let parts = split::mend(unit.state, &unit.split).0;
    let size = (unit.slices, unit.slices_whole, &unit.gpu);
    (
        (unit.state, unit.weight.source, parts, unit.cumulative, size),
        (&unit.tenant, &unit.tenants, &unit.model, &unit.external, unit.meter),
    )
}

#[cfg(test)]
mod tests;
