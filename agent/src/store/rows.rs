//! The ledger by hour: what the accounts gained from one charge to the next, spread over the wall clock's hours.
//!
//! A row is hour x unit x tenant x class x bucket x reason x weight source. All rows of a unit sum to its account, to
//! the slice-nanosecond: rows are differences of accounts, and a difference is spread by an integer division whose
//! remainder goes to the last hour. What others caused is cut out of the rows of what was lost, so that it is never more
//! than them.

use std::collections::BTreeMap;

use gpuprod_rules::ledger::energy::Energy;
use gpuprod_rules::ledger::{Share, external, tenants};
use gpuprod_rules::{Bucket, Class, Judgement, Ledger, UnitId, UnitJudgement, Unknown, WeightSource};
use gpuprod_snapshot::units::Nanos;

const HOUR: u64 = 3_600_000_000_000;
/// Rows in memory at most; what comes after is kept without its tenant.
const MOST: usize = 200_000;

/// Which row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Hours since the Unix epoch.
    pub hour: u64,
    /// Which unit.
    pub unit: UnitId,
    /// Whose it was; none when nobody could tell.
    pub tenant: Option<String>,
    /// What it was for.
    pub class: Class,
    /// Where the time was booked.
    pub bucket: Bucket,
    /// On whose word.
    pub source: WeightSource,
    /// Slices of the whole GPU.
    pub slices_whole: u32,
}

/// Slice-nanoseconds by row.
pub type Rows = BTreeMap<Key, u64>;

/// Slice-nanoseconds of a row of what was lost that somebody's use caused: by row and causer.
pub type Caused = BTreeMap<(Key, String), u64>;

/// What was gained, by hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gains {
    /// Where the time went.
    pub rows: Rows,
    /// Of what was lost, what others caused.
    pub caused: Caused,
    /// Energy of the GPUs, in microjoules.
    pub energy: BTreeMap<EnergyKey, u64>,
    /// What tenants read from storage and wrote there, by hour and name.
    pub io: BTreeMap<(u64, Option<String>), Moved>,
}

/// Which row of energy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnergyKey {
    /// Hours since the Unix epoch.
    pub hour: u64,
    /// Which unit.
    pub unit: UnitId,
    /// Whose it was; none when nobody could tell.
    pub tenant: Option<String>,
    /// What it was for.
    pub class: Class,
}

/// Bytes read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From storage.
    pub read: u64,
    /// To storage.
    pub written: u64,
}

impl Gains {
    /// Adds what is newer.
    pub fn merge(&mut self, newer: Self) {
        for (key, amount) in newer.rows {
            add(&mut self.rows, key, amount);
        }
        for (key, amount) in newer.caused {
            add_caused(&mut self.caused, key, amount);
        }
        for (key, amount) in newer.energy {
            add_energy(&mut self.energy, key, amount);
        }
        for (key, moved) in newer.io {
            add_io(&mut self.io, key, moved);
        }
    }

    /// Adds what a charge booked: the difference of two ledgers, of which the later has just been charged with the
    /// judgement.
    pub fn note(&mut self, before: &Ledger, after: &Ledger, judgement: &Judgement) {
        note(self, before, after, judgement);
        self.note_energy(before, after, judgement);
        self.note_io(before, after, judgement);
    }

    fn note_energy(&mut self, before: &Ledger, after: &Ledger, judgement: &Judgement) {
        let to = judgement.stamp.realtime.0;
        for (id, account) in &after.accounts {
            let old = before.accounts.get(id);
            let gained =
                |read: fn(&Energy) -> u64| read(&account.energy).saturating_sub(old.map_or(0, |old| read(&old.energy)));
            let amount = gained(|energy| energy.total_uj);
            if amount == 0 {
                continue;
            }
            let length = account.observed().saturating_sub(old.map_or(Nanos(0), |old| old.observed()));
            let unit = judgement.units.iter().find(|unit| unit.unit == *id);
            // Nobody's gained nothing, or all of it: what was named is split as the ledger has split it.
            let named = amount > gained(Energy::unattributed_uj);
            let owner = unit.filter(|_| named);
            let parts = owner.map_or_else(|| vec![(None, amount)], |unit| tenants::split(amount, unit).collect());
            for (tenant, amount) in parts {
                for (hour, amount) in spread(amount, to.saturating_sub(length.0), to) {
                    let (unit, tenant) = (id.clone(), tenant.map(str::to_owned));
                    let class = owner.map_or(Class::Unspecified, |unit| unit.class);
                    add_energy(&mut self.energy, EnergyKey { hour, unit, tenant, class }, amount);
                }
            }
        }
    }

    /// What was moved, if the charge took it in. It is the hour's in which it was read.
    fn note_io(&mut self, before: &Ledger, after: &Ledger, judgement: &Judgement) {
        if before.io == after.io {
            return;
        }
        let hour = judgement.stamp.realtime.0.saturating_sub(1) / HOUR;
        for io in &judgement.io {
            let moved = Moved { read: io.read.0, written: io.written.0 };
            add_io(&mut self.io, (hour, io.tenant.clone()), moved);
        }
    }
}

/// What has no room is nobody's.
fn add_caused(caused: &mut Caused, key: (Key, String), amount: u64) {
    if caused.len() < MOST || caused.contains_key(&key) {
        let held = caused.entry(key).or_default();
        *held = held.saturating_add(amount);
    }
}

fn add_energy(energy: &mut BTreeMap<EnergyKey, u64>, mut key: EnergyKey, amount: u64) {
    if energy.len() >= MOST && !energy.contains_key(&key) {
        (key.tenant, key.class) = (None, Class::Unspecified);
    }
    let held = energy.entry(key).or_default();
    *held = held.saturating_add(amount);
}

fn add_io(io: &mut BTreeMap<(u64, Option<String>), Moved>, mut key: (u64, Option<String>), moved: Moved) {
    if io.len() >= MOST && !io.contains_key(&key) {
        key.1 = None;
    }
    let held = io.entry(key).or_default();
    held.read = held.read.saturating_add(moved.read);
    held.written = held.written.saturating_add(moved.written);
}

fn add(rows: &mut Rows, mut key: Key, amount: u64) {
    if rows.len() >= MOST && !rows.contains_key(&key) {
        (key.tenant, key.class) = (None, Class::Unspecified);
    }
    let row = rows.entry(key).or_default();
    *row = row.saturating_add(amount);
}

fn note(gains: &mut Gains, before: &Ledger, after: &Ledger, judgement: &Judgement) {
    let units: BTreeMap<&UnitId, &UnitJudgement> = judgement.units.iter().map(|unit| (&unit.unit, unit)).collect();
    let to = judgement.stamp.realtime.0;
    for (id, account) in &after.accounts {
        let old = before.accounts.get(id);
        let length = account.observed().saturating_sub(old.map_or(Nanos(0), |old| old.observed()));
        if length.0 == 0 {
            continue;
        }
        let from = to.saturating_sub(length.0);
        for share in &account.shares {
            let same = |held: &&Share| held.slices == share.slices && held.slices_whole == share.slices_whole;
            let old = old.and_then(|old| old.shares.iter().find(same));
            for &(bucket, source, total) in &share.buckets {
                let amount = total.saturating_sub(held(old, bucket, source));
                if amount == 0 {
                    continue;
                }
                let owner = units.get(id).filter(|_| !is_gap(bucket));
                let parts = owner.map_or_else(|| vec![(None, amount)], |unit| tenants::split(amount, unit).collect());
                for (tenant, amount) in parts {
                    for (hour, amount) in spread(amount, from, to) {
                        let key = Key {
                            hour,
                            unit: id.clone(),
                            tenant: tenant.map(str::to_owned),
                            class: owner.map_or(Class::Unspecified, |unit| unit.class),
                            bucket,
                            source,
                            slices_whole: share.slices_whole,
                        };
                        if let (Some(unit), Bucket::Lost(cause)) = (owner, bucket) {
                            for (causer, amount) in external::split(cause, amount, unit) {
                                if let Some(causer) = causer.filter(|_| amount > 0) {
                                    add_caused(&mut gains.caused, (key.clone(), causer.to_owned()), amount);
                                }
                            }
                        }
                        add(&mut gains.rows, key, amount);
                    }
                }
            }
        }
    }
}

fn held(share: Option<&Share>, bucket: Bucket, source: WeightSource) -> u64 {
    let found = share.and_then(|share| share.buckets.iter().find(|held| held.0 == bucket && held.1 == source));
    found.map_or(0, |held| held.2)
}

/// A stretch that nobody saw has no owner: the one who was there after it need not have been there in it.
fn is_gap(bucket: Bucket) -> bool {
    matches!(bucket, Bucket::Unknown(Unknown::AgentDown | Unknown::HostDown | Unknown::Suspended | Unknown::Missed))
}

/// Shares an amount out over the hours between two instants of the wall clock, in proportion to their lengths.
fn spread(amount: u64, from: u64, to: u64) -> Vec<(u64, u64)> {
    let length = u128::from(to.saturating_sub(from));
    // An instant on the hour is the end of the hour before.
    let last = to.saturating_sub(1) / HOUR;
    let first = (from / HOUR).min(last);
    let mut parts = Vec::new();
    let mut given = 0;
    for hour in first..=last {
        let end = (hour.saturating_add(1)).saturating_mul(HOUR).min(to);
        let passed = u128::from(end.saturating_sub(from));
        let due = if hour == last || length == 0 {
            Some(amount)
        } else {
            u64::try_from(u128::from(amount).saturating_mul(passed) / length).ok()
        };
        let due = due.unwrap_or(amount).max(given);
        if due > given {
            parts.push((hour, due - given));
        }
        given = due;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_spread_over_hours_and_sums() {
        let at = |minutes: u64| minutes * 60_000_000_000;
        assert_eq!(spread(100, at(10), at(20)), [(0, 100)]);
        assert_eq!(spread(100, at(50), at(70)), [(0, 50), (1, 50)]);
        // The end on the hour belongs to the hour before.
        assert_eq!(spread(7, at(59), at(60)), [(0, 7)]);
        assert_eq!(spread(3, at(59), at(61)), [(0, 1), (1, 2)]);
        let week = spread(u64::MAX, at(30), at(30) + 7 * 24 * HOUR);
        assert_eq!(week.len(), 169);
        assert_eq!(week.iter().map(|part| u128::from(part.1)).sum::<u128>(), u128::from(u64::MAX));
        // A clock near its beginning.
        assert_eq!(spread(5, 0, 0), [(0, 5)]);
    }
}
