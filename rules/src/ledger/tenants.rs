//! The same time by tenant: named parts of a share's buckets. What nobody owned is the rest, and is not kept.
//!
//! A ledger names so many tenants at a time. One that booked nothing for a day, or that must make room, goes on as
//! `other`, with all that it has; so no figure of `other` ever decreases, and the sum over tenants is the unit's.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::account::{Account, Share};
use crate::{Bucket, Part, UnitJudgement, WeightSource};

/// Tenants by name at a time, on one node.
pub const MOST: usize = 16;
/// Name of those that have none any more.
pub const OTHER: &str = "other";
/// A tenant that booked nothing for so long loses its name.
const LIVES: Nanos = Nanos::from_secs(24 * 3600);
/// One that must make room has been silent for so long at least.
const GIVES_WAY: Nanos = Nanos::from_secs(600);

/// The tenants that have a name now, and when each booked last (Unix time).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Roll(BTreeMap<String, Nanos>);

/// Slice-nanoseconds of one tenant in a share, per bucket and weight source, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantShare {
    /// Who.
    pub tenant: String,
    /// How much, where, and on whose word.
    pub buckets: Vec<(Bucket, WeightSource, u64)>,
}

impl Roll {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name under which a tenant is booked now, and whom it displaced.
    fn admit(&mut self, tenant: &str, now: Nanos) -> (String, Option<String>) {
        if let Some(last) = self.0.get_mut(tenant) {
            *last = now.max(*last);
            return (tenant.to_owned(), None);
        }
        let mut displaced = None;
        if self.0.len() >= MOST {
            let oldest = self.0.iter().min_by_key(|(name, last)| (**last, *name));
            let idle = oldest.filter(|(_, last)| now.saturating_sub(**last) > GIVES_WAY);
            let Some((name, _)) = idle else { return (OTHER.to_owned(), None) };
            displaced = Some(name.clone());
        }
        if let Some(name) = &displaced {
            self.0.remove(name);
        }
        self.0.insert(tenant.to_owned(), now);
        (tenant.to_owned(), displaced)
    }

    /// Takes in who is there, and gives those that lose their name.
    pub(super) fn meet<'a>(&mut self, tenants: impl Iterator<Item = &'a str>, now: Nanos) -> Vec<String> {
        let mut gone: Vec<String> = tenants.filter_map(|tenant| self.admit(tenant, now).1).collect();
        let late = |last: &Nanos| now.saturating_sub(*last) > LIVES;
        gone.extend(self.0.iter().filter(|(_, last)| late(last)).map(|(name, _)| name.clone()));
        self.0.retain(|_, last| !late(last));
        gone
    }

    /// The name under which a tenant is booked.
    pub(super) fn name<'a>(&self, tenant: &'a str) -> &'a str {
        if self.0.contains_key(tenant) { tenant } else { OTHER }
    }
}

/// Whose a unit is, in parts that sum to one; a part without a name is nobody's.
#[must_use]
pub fn parts(unit: &UnitJudgement) -> Vec<(Option<&str>, u64)> {
    let one = u64::from(Part::ONE.0);
    if unit.tenants.is_empty() {
        return alloc::vec![(unit.tenant.as_deref(), one)];
    }
    let mut left = one;
    let mut named: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for (tenant, part) in &unit.tenants {
        let part = u64::from(part.0).min(left);
        left -= part;
        let held = named.entry(tenant.as_deref()).or_default();
        *held = held.saturating_add(part);
    }
    let rest = named.entry(None).or_default();
    *rest = rest.saturating_add(left);
    named.into_iter().filter(|(_, part)| *part > 0).collect()
}

/// An amount of a unit's time, split over its tenants by largest remainder; sums to the amount.
pub fn split(amount: u64, unit: &UnitJudgement) -> impl Iterator<Item = (Option<&str>, u64)> {
    let sole = unit.tenants.is_empty().then_some((unit.tenant.as_deref(), amount));
    let several = if sole.is_none() { super::split::distribute(amount, &parts(unit)) } else { Vec::new() };
    sole.into_iter().chain(several)
}

impl Share {
    pub(super) fn add_tenant(&mut self, tenant: &str, bucket: Bucket, source: WeightSource, slice_ns: u64) {
        if slice_ns == 0 {
            return;
        }
        let at = match self.tenants.binary_search_by(|held| held.tenant.as_str().cmp(tenant)) {
            Ok(at) => at,
            Err(at) => {
                self.tenants.insert(at, TenantShare { tenant: tenant.to_owned(), buckets: Vec::new() });
                at
            }
        };
        if let Some(held) = self.tenants.get_mut(at) {
            super::account::add(&mut held.buckets, bucket, source, slice_ns);
        }
    }

    /// Slice-nanoseconds of a bucket that belong to nobody.
    #[must_use]
    pub fn unattributed(&self, bucket: Bucket, source: WeightSource) -> u64 {
        let of = |buckets: &[(Bucket, WeightSource, u64)]| {
            let found = buckets.iter().find(|held| held.0 == bucket && held.1 == source);
            found.map_or(0, |held| held.2)
        };
        self.tenants.iter().fold(of(&self.buckets), |left, held| left.saturating_sub(of(&held.buckets)))
    }

    fn rename(&mut self, tenant: &str) {
        let Some(at) = self.tenants.iter().position(|held| held.tenant == tenant) else { return };
        let gone = self.tenants.remove(at);
        for (bucket, source, slice_ns) in gone.buckets {
            self.add_tenant(OTHER, bucket, source, slice_ns);
        }
    }
}

impl Account {
    /// A tenant goes on as `other`.
    pub(super) fn rename(&mut self, tenant: &str) {
        self.energy.rename(tenant);
        self.shares.iter_mut().for_each(|share| {
            share.rename(tenant);
            share.rename_external(tenant);
        });
    }

    /// GPU time by tenant, bucket and weight source, in their order; none for what belongs to nobody.
    #[must_use]
    pub fn tenants(&self) -> BTreeMap<(Option<&str>, Bucket, WeightSource), Nanos> {
        let mut totals: BTreeMap<(Option<&str>, Bucket, WeightSource), Nanos> = BTreeMap::new();
        let mut add = |key, time: Nanos| {
            let total = totals.entry(key).or_default();
            *total = total.saturating_add(time);
        };
        for share in &self.shares {
            for held in &share.tenants {
                for &(bucket, source, slice_ns) in &held.buckets {
                    add((Some(held.tenant.as_str()), bucket, source), share.gpu_time(u128::from(slice_ns)).0);
                }
            }
            for &(bucket, source, _) in &share.buckets {
                let left = share.unattributed(bucket, source);
                add((None, bucket, source), share.gpu_time(u128::from(left)).0);
            }
        }
        totals.retain(|_, time| time.0 > 0);
        totals
    }
}
