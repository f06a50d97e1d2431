//! The twin's tenants: whose a stretch is, what others cost them, and who has a name.

use std::collections::BTreeMap;

use gpuprod_rules::ledger::Share;
use gpuprod_rules::ledger::external::ExternalShare;
use gpuprod_rules::ledger::tenants::TenantShare;
use gpuprod_rules::{Bucket, Cause, Judgement, Ledger, UnitJudgement, WeightSource};
use gpuprod_snapshot::units::Nanos;

use super::twin::Bug;

const ONE: i128 = 1_000_000;
const OTHER: &str = "other";
const MINUTE: u64 = 60_000_000_000;

/// Those that have a name, and when each was last there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(BTreeMap<String, Nanos>);

impl Names {
    pub(crate) fn keep(&self, ledger: &mut Ledger) {
        let kept = serde_json::to_value(&self.0).and_then(serde_json::from_value);
        ledger.tenants = kept.unwrap_or_default();
    }

    pub(crate) fn find(&mut self, ledger: &Ledger) {
        let kept = serde_json::to_value(&ledger.tenants).and_then(serde_json::from_value);
        self.0 = kept.unwrap_or_default();
    }

    fn of(&self, tenant: &str) -> String {
        if self.0.contains_key(tenant) { tenant.to_owned() } else { OTHER.to_owned() }
    }

    /// Who is there takes a name; those that have to give theirs up.
    pub(crate) fn meet(&mut self, judgement: &Judgement) -> Vec<String> {
        let now = judgement.stamp.realtime;
        let mut there: Vec<String> = Vec::new();
        for unit in &judgement.units {
            there.extend(owners(unit, Bug::None).into_iter().filter_map(|owner| owner.0));
            there.extend(unit.external.iter().map(|external| external.tenant.clone()));
        }
        there.sort();
        let mut gone = Vec::new();
        for name in there {
            if self.0.len() == 16 && !self.0.contains_key(&name) {
                let (since, oldest) =
                    self.0.iter().map(|(name, since)| (*since, name.clone())).min().unwrap_or_default();
                if now.0.saturating_sub(since.0) <= 10 * MINUTE {
                    continue;
                }
                self.0.remove(&oldest);
                gone.push(oldest);
            }
            let since = self.0.entry(name).or_default();
            *since = now.max(*since);
        }
        let late: Vec<String> = self
            .0
            .iter()
            .filter(|held| now.0.saturating_sub(held.1.0) > 24 * 60 * MINUTE)
            .map(|held| held.0.clone())
            .collect();
        self.0.retain(|name, _| !late.contains(name));
        gone.into_iter().chain(late).collect()
    }

    /// Books what a bucket got in a stretch.
    pub(crate) fn book(
        &self,
        bug: Bug,
        share: &mut Share,
        bucket: (Bucket, WeightSource),
        amounts: (i128, i128),
        unit: &UnitJudgement,
    ) {
        let (amount, all) = amounts;
        for (owner, part) in cut(amount, &owners(unit, bug), bug == Bug::TenantsRoundedUp) {
            let owner = owner.map(|owner| self.of(&owner));
            if let (Bucket::Lost(cause), false) = (bucket.0, bug == Bug::CausersCutFirst) {
                let lost = match bug {
                    Bug::CausedOfAll => all,
                    Bug::EachVictimPaysAll => amount,
                    _ => part,
                };
                self.blame(bug, share, (cause, owner.as_deref()), lost, unit);
            }
            let Some(owner) = owner else { continue };
            let held = &mut share.tenants;
            let at = held.iter().position(|held| held.tenant >= owner).unwrap_or(held.len());
            if held.get(at).is_none_or(|held| held.tenant != owner) && part > 0 {
                held.insert(at, TenantShare { tenant: owner, buckets: Vec::new() });
            }
            if part > 0 {
                put(&mut held[at].buckets, bucket, part);
            }
        }
        if let (Bucket::Lost(cause), Bug::CausersCutFirst) = (bucket.0, bug) {
            for (causer, caused) in cut(amount, &causers(unit, cause, bug), false) {
                let Some(causer) = causer else { continue };
                for (victim, part) in cut(caused, &owners(unit, bug), false) {
                    let victim = victim.map(|victim| self.of(&victim));
                    charge(share, cause, &self.of(&causer), victim.as_deref(), part);
                }
            }
        }
        // Every cause that is confirmed is charged, whatever was lost to it.
        if bug == Bug::BlamedWithoutLoss {
            for external in &unit.external {
                charge(
                    share,
                    external.resource,
                    &self.of(&external.tenant),
                    None,
                    amount * i128::from(external.part.0) / ONE,
                );
            }
        }
    }

    fn blame(
        &self,
        bug: Bug,
        share: &mut Share,
        (cause, victim): (Cause, Option<&str>),
        lost: i128,
        unit: &UnitJudgement,
    ) {
        for (causer, part) in cut(lost, &causers(unit, cause, bug), bug == Bug::CausersRoundedUp) {
            if let Some(causer) = causer {
                charge(share, cause, &self.of(&causer), victim, part);
            }
        }
    }
}

/// Whose: names and nobody, in this order, in parts of one.
fn owners(unit: &UnitJudgement, bug: Bug) -> Vec<(Option<String>, i128)> {
    if unit.tenants.is_empty() {
        return vec![(unit.tenant.clone(), ONE)];
    }
    let named = unit.tenants.iter().map(|(name, part)| (name.clone(), i128::from(part.0)));
    let mut parts = in_order(named, true);
    if bug == Bug::NobodysGivenAway && parts.len() > 1 && parts[0].0.is_none() {
        let nobodys = parts.remove(0).1;
        parts[0].1 += nobodys;
    }
    if bug == Bug::NameCountsOnce {
        for (name, part) in &mut parts {
            let last = unit.tenants.iter().rev().find(|held| held.0 == *name);
            *part = last.map_or(*part, |last| i128::from(last.1.0).min(*part));
        }
    }
    parts
}

fn causers(unit: &UnitJudgement, cause: Cause, bug: Bug) -> Vec<(Option<String>, i128)> {
    let blamed = unit.external.iter().filter(|external| external.resource == cause || bug == Bug::AnyCauseWillDo);
    let blamed = blamed.map(|external| (Some(external.tenant.clone()), i128::from(external.part.0)));
    in_order(blamed, bug != Bug::CausersUncapped)
}

fn in_order(parts: impl Iterator<Item = (Option<String>, i128)>, capped: bool) -> Vec<(Option<String>, i128)> {
    let mut sums: BTreeMap<Option<String>, i128> = BTreeMap::new();
    let mut left = ONE;
    for (name, part) in parts {
        let part = if capped { part.min(left) } else { part };
        left -= part;
        *sums.entry(name).or_default() += part;
    }
    *sums.entry(None).or_default() += left.max(0);
    sums.into_iter().filter(|held| held.1 > 0).collect()
}

/// Whole numbers by their largest remainders, the first of equals first.
fn cut(amount: i128, parts: &[(Option<String>, i128)], up: bool) -> Vec<(Option<String>, i128)> {
    let mut out: Vec<_> = parts.iter().map(|(name, part)| (name.clone(), amount * part / ONE)).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| (-(amount * parts[*at].1 % ONE), *at));
    let left = amount - out.iter().map(|held| held.1).sum::<i128>();
    let left = if up { out.len() } else { usize::try_from(left).unwrap_or(0) };
    order.into_iter().take(left).for_each(|at| out[at].1 += 1);
    out
}

fn put(buckets: &mut Vec<(Bucket, WeightSource, u64)>, (bucket, source): (Bucket, WeightSource), amount: i128) {
    let mut sums: BTreeMap<_, _> = buckets.drain(..).map(|held| ((held.0, held.1), held.2)).collect();
    *sums.entry((bucket, source)).or_default() += u64::try_from(amount).unwrap_or(0);
    buckets.extend(sums.into_iter().map(|((bucket, source), sum)| (bucket, source, sum)));
}

fn charge(share: &mut Share, resource: Cause, tenant: &str, victim: Option<&str>, amount: i128) {
    let mut sums: BTreeMap<(Cause, String, Option<String>), u64> = BTreeMap::new();
    for held in share.external.drain(..) {
        *sums.entry((held.resource, held.tenant, held.victim)).or_default() += held.slice_ns;
    }
    *sums.entry((resource, tenant.to_owned(), victim.map(str::to_owned))).or_default() +=
        u64::try_from(amount).unwrap_or(0);
    let sums = sums.into_iter().filter(|held| held.1 > 0);
    let line = |((resource, tenant, victim), slice_ns)| ExternalShare { resource, tenant, victim, slice_ns };
    share.external = sums.map(line).collect();
}

/// A tenant that lost its name is `other` from now on.
pub(crate) fn rename(bug: Bug, share: &mut Share, name: &str) {
    for gone in share.tenants.extract_if(.., |held| held.tenant == name).collect::<Vec<_>>() {
        if bug == Bug::NameLostWithItsTime {
            continue;
        }
        let at = share.tenants.iter().position(|held| held.tenant.as_str() >= OTHER).unwrap_or(share.tenants.len());
        if share.tenants.get(at).is_none_or(|held| held.tenant != OTHER) {
            share.tenants.insert(at, TenantShare { tenant: OTHER.to_owned(), buckets: Vec::new() });
        }
        for (bucket, source, amount) in gone.buckets {
            put(&mut share.tenants[at].buckets, (bucket, source), i128::from(amount));
        }
    }
    for held in std::mem::take(&mut share.external) {
        let now = |tenant: String| if tenant == name { OTHER.to_owned() } else { tenant };
        let (tenant, victim) = (now(held.tenant), held.victim.map(now));
        charge(share, held.resource, &tenant, victim.as_deref(), i128::from(held.slice_ns));
    }
}
