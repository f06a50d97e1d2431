//! Laws 3 and 8: whose a unit's time was, and what others cost it, added up from the judgements in the simplest way:
//! wide integers, no rounding, nothing of the ledger's own code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gpuprod_rules::ledger::{Account, Share};
use gpuprod_rules::{Bucket, Cause, UnitJudgement};

use super::check::{Check, Law};

const ONE: i128 = 1_000_000;
/// Names that a ledger keeps, and for how long (facts: sixteen at a time, a day).
const NAMES: usize = 16;
const DAY: u64 = 24 * 3600 * 1_000_000_000;

/// A tenant's number; `other` has none.
type Name = u64;
const OTHER: Name = u64::MAX;

/// What is due to each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whose {
    /// Millionths of millionths of a slice-ns; nobody is none.
    owned: BTreeMap<(Bucket, Option<Name>), i128>,
    /// The same in millionths of that, by cause, causer and victim.
    caused: BTreeMap<(Cause, Name, Option<Name>), i128>,
}

/// Who was ever named, and for how long: whether some may have lost their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    names: BTreeSet<Name>,
    since: Option<u64>,
    until: u64,
}

impl Crowd {
    pub(crate) fn beat(&mut self, units: &[UnitJudgement], realtime: u64) {
        let owners = |unit: &UnitJudgement| owners(unit).into_iter().filter_map(|owner| owner.0).collect::<Vec<_>>();
        self.names.extend(units.iter().flat_map(owners));
        self.names.extend(units.iter().flat_map(|unit| &unit.external).map(|external| number(&external.tenant)));
        self.since = Some(self.since.unwrap_or(realtime).min(realtime));
        self.until = self.until.max(realtime);
    }

    pub(crate) fn may_rename(&self) -> bool {
        self.names.len() > NAMES || self.until.saturating_sub(self.since.unwrap_or(0)) > DAY
    }
}

fn number(name: &str) -> Name {
    name.strip_prefix('t').and_then(|number| number.parse().ok()).unwrap_or(OTHER)
}

/// Takes parts in their order while something is left of one; what nobody took is nobody's.
fn shared_out<T: Clone>(parts: impl Iterator<Item = (T, u32)>, nobody: T) -> Vec<(T, i128)> {
    let mut left = ONE;
    let mut out = Vec::new();
    for (who, part) in parts {
        let part = i128::from(part).min(left);
        left -= part;
        out.push((who, part));
    }
    out.push((nobody, left));
    out.retain(|(_, part)| *part > 0);
    out
}

fn owners(unit: &UnitJudgement) -> Vec<(Option<Name>, i128)> {
    let name = |tenant: &Option<String>| tenant.as_deref().map(number);
    if unit.tenants.is_empty() {
        return vec![(name(&unit.tenant), ONE)];
    }
    shared_out(unit.tenants.iter().map(|(tenant, part)| (name(tenant), part.0)), None)
}

impl Whose {
    /// A stretch that nobody saw is nobody's.
    pub(crate) fn nobody(&mut self, bucket: Bucket, slice_ns: i128) {
        *self.owned.entry((bucket, None)).or_default() += slice_ns * ONE * ONE;
    }

    /// A part (in millionths) of a stretch that was judged.
    pub(crate) fn judged(&mut self, bucket: Bucket, slice_ns: i128, part: i128, unit: &UnitJudgement) {
        let owners = owners(unit);
        for &(owner, share) in &owners {
            *self.owned.entry((bucket, owner)).or_default() += slice_ns * part * share;
        }
        let Bucket::Lost(cause) = bucket else { return };
        let blamed = unit.external.iter().filter(|external| external.resource == cause);
        let blamed = blamed.map(|external| (Some(number(&external.tenant)), external.part.0));
        for (causer, blame) in shared_out(blamed, None) {
            let Some(causer) = causer else { continue };
            for &(victim, share) in &owners {
                *self.caused.entry((cause, causer, victim)).or_default() += slice_ns * part * blame * share;
            }
        }
    }
}

/// Puts laws 3 and 8 to an account. Roundings: how often a bucket may have been cut.
pub(crate) fn laws(account: &Account, due: &Whose, roundings: i128, may_rename: bool, check: Check<'_>) {
    let mut owned: BTreeMap<(Bucket, Option<Name>), i128> = BTreeMap::new();
    let mut caused: BTreeMap<(Cause, Name, Option<Name>), i128> = BTreeMap::new();
    for share in &account.shares {
        let held = by_owner(share);
        for (&(bucket, owner), slice_ns) in &held {
            let more = *slice_ns < 0;
            check(Law::L3TenantsSumToUnit, !more, &|| format!("{bucket:?}: tenants have {} too much", -slice_ns));
            *owned.entry((bucket, owner)).or_default() += slice_ns;
        }
        let mut suffered: BTreeMap<(Cause, Option<Name>), i128> = BTreeMap::new();
        for external in &share.external {
            let victim = external.victim.as_deref().map(number);
            let slice_ns = i128::from(external.slice_ns);
            *suffered.entry((external.resource, victim)).or_default() += slice_ns;
            *caused.entry((external.resource, number(&external.tenant), victim)).or_default() += slice_ns;
        }
        // Of each victim, and so of the unit, no more than it lost.
        for ((cause, victim), slice_ns) in suffered {
            let lost = held.get(&(Bucket::Lost(cause), victim)).copied().unwrap_or(0);
            check(Law::L8CausedWithinLost, slice_ns <= lost, &|| {
                format!("others cost {victim:?} {slice_ns} by {cause:?}, of {lost} lost")
            });
        }
    }
    let names = Names { may_rename, roundings };
    names.compare(&owned, &due.owned, check);
    names.compare(&caused, &due.caused, check);
    shown(account, check);
}

/// Where nobody is named, nobody has anything and nobody is blamed.
pub(crate) fn nobody(account: &Account, check: Check<'_>) {
    let (owned, blamed) =
        account.shares.iter().fold((0, 0), |sums, share| (sums.0 + share.tenants.len(), sums.1 + share.external.len()));
    check(Law::L3TenantsSumToUnit, owned == 0, &|| "is somebody's".to_owned());
    check(Law::L8CausedWithinLost, blamed == 0, &|| "is somebody's doing".to_owned());
}

/// Nobody's part is what the named have left.
fn by_owner(share: &Share) -> BTreeMap<(Bucket, Option<Name>), i128> {
    let mut held: BTreeMap<(Bucket, Option<Name>), i128> = BTreeMap::new();
    for (bucket, _, slice_ns) in &share.buckets {
        *held.entry((*bucket, None)).or_default() += i128::from(*slice_ns);
    }
    for tenant in &share.tenants {
        for (bucket, _, slice_ns) in &tenant.buckets {
            *held.entry((*bucket, Some(number(&tenant.tenant)))).or_default() += i128::from(*slice_ns);
            *held.entry((*bucket, None)).or_default() -= i128::from(*slice_ns);
        }
    }
    held
}

/// A line of an account that names somebody.
trait Line: Ord + Copy + fmt::Debug {
    const LAW: Law;
    /// Its due is told in such parts of a slice-ns, and may be cut so often in a tick.
    const PARTS: i128;
    const CUTS: i128;
    /// Lines that sum to what is due whoever lost a name.
    type Group: Ord;
    fn group(&self) -> Self::Group;
    fn is_other(&self) -> bool;
}

impl Line for (Bucket, Option<Name>) {
    const LAW: Law = Law::L3TenantsSumToUnit;
    const PARTS: i128 = ONE * ONE;
    const CUTS: i128 = 2;
    type Group = (Bucket, bool);
    fn group(&self) -> Self::Group {
        (self.0, self.1.is_some())
    }
    fn is_other(&self) -> bool {
        self.1 == Some(OTHER)
    }
}

impl Line for (Cause, Name, Option<Name>) {
    const LAW: Law = Law::L8CausedWithinLost;
    const PARTS: i128 = ONE * ONE * ONE;
    const CUTS: i128 = 3;
    type Group = Cause;
    fn group(&self) -> Self::Group {
        self.0
    }
    fn is_other(&self) -> bool {
        self.1 == OTHER || self.2 == Some(OTHER)
    }
}

struct Names {
    may_rename: bool,
    roundings: i128,
}

impl Names {
    /// Groups have what is due to them. A name has no more than its due; if it cannot have been lost, no less.
    fn compare<L: Line>(&self, got: &BTreeMap<L, i128>, due: &BTreeMap<L, i128>, check: Check<'_>) {
        let near = self.roundings * L::CUTS * L::PARTS;
        let mut groups: BTreeMap<L::Group, (L, i128, i128, i128)> = BTreeMap::new();
        for line in got.keys().chain(due.keys()).copied().collect::<BTreeSet<L>>() {
            let got = got.get(&line).copied().unwrap_or(0) * L::PARTS;
            let due = due.get(&line).copied().unwrap_or(0);
            let sums = groups.entry(line.group()).or_insert((line, 0, 0, 0));
            (sums.1, sums.2, sums.3) = (sums.1 + got, sums.2 + due, sums.3 + near);
            let no_more = got <= due + near || line.is_other();
            let no_less = got >= due - near || self.may_rename;
            check(L::LAW, no_more && no_less, &|| format!("{line:?}: {} of {}", got / L::PARTS, due / L::PARTS));
        }
        for (line, got, due, near) in groups.into_values() {
            let holds = (got - due).abs() <= near;
            check(L::LAW, holds, &|| format!("{line:?} and its like: {} of {}", got / L::PARTS, due / L::PARTS));
        }
    }
}

/// What readers are told, in time of a whole GPU: each figure is rounded down, and so sums are within a nanosecond for
/// each that they are made of.
fn shown(account: &Account, check: Check<'_>) {
    let whole: i128 = account.totals().iter().map(|total| i128::from(total.time.0)).sum();
    let tenants = account.tenants();
    let sum: i128 = tenants.values().map(|time| i128::from(time.0)).sum();
    let rounded = |account: &Account| account.shares.iter().map(|share| by_owner(share).len()).sum::<usize>();
    let near = i128::try_from(rounded(account) * 5).unwrap_or(0);
    check(Law::L3TenantsSumToUnit, (whole - sum).abs() <= near, &|| format!("shown {sum} of {whole}"));
    let mut caused: BTreeMap<Cause, i128> = BTreeMap::new();
    for ((cause, ..), time) in account.external() {
        *caused.entry(cause).or_default() += i128::from(time.0);
    }
    for (cause, time) in caused {
        let lost = i128::from(account.time_in(|bucket| bucket == Bucket::Lost(cause)).0);
        check(Law::L8CausedWithinLost, time <= lost + near, &|| format!("shown {time} of {lost} by {cause:?}"));
    }
}
