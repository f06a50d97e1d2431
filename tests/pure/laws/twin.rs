//! A second ledger, written apart from the first, that can be given one fault at a time. Without a fault it keeps
//! the same accounts to the byte; with any of them a law must break, or the laws are worth nothing.

use std::collections::BTreeMap;

use gpuprod_rules::ledger::Share;
use gpuprod_rules::{Bucket, Cause, Fault, Judgement, Ledger, State, UnitId, UnitJudgement, Unknown, WeightSource};
use gpuprod_snapshot::Stamp;

use super::check::{Book, Law};
use super::twin_whose::{self, Names};

/// What is wrong with the twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    LostRemainder,
    GapBookedTwice,
    FloatArithmetic,
    SuspendedCountedAsWork,
    RebootUsesBoottime,
    BackwardClockWraps,
    BackwardClockFollowed,
    RestartForgetsGap,
    VanishedUnitDropped,
    LostGpuReleased,
    PartAboveOne,
    OrderDecidesTies,
    SavedInMicroseconds,
    NewUnitBackdated,
    NewSizeForOldTime,
    TenantsRoundedUp,
    NobodysGivenAway,
    NameCountsOnce,
    NameLostWithItsTime,
    OwnerOfTheTickBefore,
    GapGivenToItsHeir,
    RestForgotten,
    RetiredGoesOn,
    ReturnBackdated,
    OneSliceEach,
    CausedOfAll,
    EachVictimPaysAll,
    CausersCutFirst,
    CausersRoundedUp,
    CausersUncapped,
    AnyCauseWillDo,
    BlamedWithoutLoss,
    BlameOutlivesItsCause,
}

/// Every fault, and the law that must notice it (others may, too).
pub(crate) const BUGS: [(Bug, Law); 34] = [
    (Bug::LostRemainder, Law::L2BucketsSumToObserved),
    (Bug::GapBookedTwice, Law::L1StatesSumToObserved),
    (Bug::FloatArithmetic, Law::L2BucketsSumToObserved),
    (Bug::SuspendedCountedAsWork, Law::L11UnseenIsUnknown),
    (Bug::RebootUsesBoottime, Law::L11UnseenIsUnknown),
    (Bug::BackwardClockWraps, Law::L1StatesSumToObserved),
    (Bug::BackwardClockFollowed, Law::L1StatesSumToObserved),
    (Bug::RestartForgetsGap, Law::L11UnseenIsUnknown),
    (Bug::VanishedUnitDropped, Law::L5NothingDecreases),
    (Bug::LostGpuReleased, Law::L10LostStaysOwned),
    (Bug::PartAboveOne, Law::L6PartsWithinOne),
    (Bug::OrderDecidesTies, Law::L7OrderIsIrrelevant),
    (Bug::SavedInMicroseconds, Law::L9CuttingIsNothing),
    (Bug::NewUnitBackdated, Law::L1StatesSumToObserved),
    (Bug::NewSizeForOldTime, Law::L1StatesSumToObserved),
    (Bug::TenantsRoundedUp, Law::L3TenantsSumToUnit),
    (Bug::NobodysGivenAway, Law::L3TenantsSumToUnit),
    (Bug::NameCountsOnce, Law::L3TenantsSumToUnit),
    (Bug::NameLostWithItsTime, Law::L3TenantsSumToUnit),
    (Bug::OwnerOfTheTickBefore, Law::L3TenantsSumToUnit),
    (Bug::GapGivenToItsHeir, Law::L3TenantsSumToUnit),
    (Bug::NewSizeForOldTime, Law::L4PartsSumToGpu),
    (Bug::RestForgotten, Law::L4PartsSumToGpu),
    (Bug::RetiredGoesOn, Law::L4PartsSumToGpu),
    (Bug::ReturnBackdated, Law::L4PartsSumToGpu),
    (Bug::OneSliceEach, Law::L4PartsSumToGpu),
    (Bug::CausedOfAll, Law::L8CausedWithinLost),
    (Bug::EachVictimPaysAll, Law::L8CausedWithinLost),
    (Bug::CausersCutFirst, Law::L8CausedWithinLost),
    (Bug::CausersRoundedUp, Law::L8CausedWithinLost),
    (Bug::CausersUncapped, Law::L8CausedWithinLost),
    (Bug::AnyCauseWillDo, Law::L8CausedWithinLost),
    (Bug::BlamedWithoutLoss, Law::L8CausedWithinLost),
    (Bug::BlameOutlivesItsCause, Law::L8CausedWithinLost),
];

#[derive(Clone, Debug)]
pub(crate) struct Twin {
    bug: Bug,
    data: Ledger,
    names: Names,
    /// For those who look back where they must not.
    before: BTreeMap<UnitId, UnitJudgement>,
}

/// Stretches that are unknown, and what is left.
type Cut = (Vec<(Unknown, u64)>, u64);

impl Twin {
    pub(crate) fn with(bug: Bug) -> Self {
        Self { bug, data: Ledger::default(), names: Names::default(), before: BTreeMap::new() }
    }

    /// None: the clock went backwards.
    fn cut(&mut self, old: &Stamp, new: &Stamp) -> Option<Cut> {
        let (b0, b1) = (old.boottime.0, new.boottime.0);
        let wall = new.realtime.0.saturating_sub(old.realtime.0);
        if old.boot_id != new.boot_id || new.boot_id.0.is_empty() {
            self.data.clock_steps += u64::from(new.realtime < old.realtime);
            let down = match self.bug {
                Bug::RebootUsesBoottime => b1.saturating_sub(b0),
                _ => wall.min(604_800_000_000_000),
            };
            return Some((vec![(Unknown::HostDown, down)], 0));
        }
        if b1 < b0 {
            self.data.clock_steps += 1;
            return match self.bug {
                Bug::BackwardClockWraps => Some((vec![], b1.wrapping_sub(b0))),
                Bug::BackwardClockFollowed => Some((vec![], 0)),
                _ => None,
            };
        }
        let length = b1 - b0;
        let (m0, m1) = (old.monotonic.0, new.monotonic.0);
        self.data.clock_steps += u64::from(m1 < m0);
        let off = i128::from(new.realtime.0) - i128::from(old.realtime.0) - i128::from(length);
        self.data.clock_steps += u64::from(off.abs() > 1_000_000_000);
        let mut asleep = if m1 < m0 { 0 } else { length.saturating_sub(m1 - m0) };
        if asleep <= 100_000_000 || self.bug == Bug::SuspendedCountedAsWork {
            asleep = 0;
        }
        let mut unknown = vec![(Unknown::Suspended, asleep)];
        let mut rest = length - asleep;
        if self.data.resumed {
            unknown.push((Unknown::AgentDown, std::mem::take(&mut rest)));
        }
        Some((unknown, rest))
    }

    fn unit(&mut self, id: &UnitId, judged: Option<&UnitJudgement>, replaced: bool, cut: &Cut, period: u64) {
        let (unknown, rest) = (&cut.0, cut.1);
        let heir = judged.filter(|_| self.bug == Bug::GapGivenToItsHeir);
        for &(reason, length) in unknown {
            self.put_unknown(id, reason, length, heir);
        }
        let Some(judged) = judged else {
            let reason = if replaced { Unknown::Missed } else { Unknown::NvmlError };
            self.put_unknown(id, reason, rest, None);
            if let Some(account) = self.data.accounts.get_mut(id) {
                account.retired = replaced && self.bug != Bug::RetiredGoesOn;
            }
            if self.bug == Bug::VanishedUnitDropped && !replaced {
                self.data.accounts.remove(id);
            }
            return;
        };
        let seen = 2 * u128::from(rest) <= 5 * u128::from(period) || (judged.cumulative && rest <= 10_000_000_000);
        if !seen {
            self.put_unknown(id, Unknown::Missed, rest, heir);
        }
        if seen || self.bug == Bug::GapBookedTwice {
            let parts = self.parts(judged);
            let whose = self.whose(judged);
            self.put(id, judged.state, judged.weight.source, &parts, rest, Some(&whose));
        }
    }

    /// Whose it is, as the judgement says, but for those who look back.
    fn whose(&self, judged: &UnitJudgement) -> UnitJudgement {
        let mut whose = judged.clone();
        let Some(before) = self.before.get(&judged.unit) else { return whose };
        if self.bug == Bug::OwnerOfTheTickBefore {
            whose.tenant.clone_from(&before.tenant);
            whose.tenants.clone_from(&before.tenants);
        }
        if self.bug == Bug::BlameOutlivesItsCause && whose.external.is_empty() {
            whose.external.clone_from(&before.external);
        }
        whose
    }

    fn parts(&mut self, judged: &UnitJudgement) -> Vec<(Bucket, i128)> {
        let mut parts: Vec<(Bucket, i128)> = Vec::new();
        for (bucket, part) in &judged.split {
            match parts.iter_mut().find(|held| held.0 == *bucket) {
                Some(held) => held.1 += i128::from(part.0),
                None => parts.push((*bucket, i128::from(part.0))),
            }
        }
        let over = parts.iter().map(|p| p.1).sum::<i128>() - 1_000_000;
        self.data.mended += u64::from(over != 0);
        if over < 0 {
            let bucket = match judged.state {
                State::Unknown(reason) => Bucket::Unknown(reason),
                _ => Bucket::Lost(Cause::Unexplained),
            };
            match parts.iter_mut().find(|held| held.0 == bucket) {
                Some(held) => held.1 -= over,
                None => parts.push((bucket, -over)),
            }
        }
        if self.bug != Bug::OrderDecidesTies {
            parts.sort_unstable();
        }
        let mut over = if self.bug == Bug::PartAboveOne { 0 } else { over.max(0) };
        let mut cutting = parts.clone();
        cutting.sort_unstable();
        for (bucket, part) in cutting {
            let cut = over.min(part);
            over -= cut;
            for held in parts.iter_mut().filter(|held| held.0 == bucket) {
                held.1 -= cut;
            }
        }
        parts.retain(|held| held.1 > 0);
        parts
    }

    fn put_unknown(&mut self, id: &UnitId, reason: Unknown, length: u64, heir: Option<&UnitJudgement>) {
        let parts = [(Bucket::Unknown(reason), 1_000_000)];
        self.put(id, State::Unknown(reason), WeightSource::None, &parts, length, heir);
    }

    fn put(
        &mut self,
        id: &UnitId,
        state: State,
        source: WeightSource,
        parts: &[(Bucket, i128)],
        length: u64,
        whose: Option<&UnitJudgement>,
    ) {
        if self.bug == Bug::RestForgotten && id.0.ends_with("/rest") {
            return;
        }
        let Some(account) = self.data.accounts.get_mut(id) else {
            return;
        };
        if length == 0 {
            return;
        }
        let size = (account.slices, account.slices_whole);
        let at = account.shares.iter().position(|s| (s.slices, s.slices_whole) == size);
        let at = at.unwrap_or(account.shares.len());
        if at == account.shares.len() {
            let (slices, slices_whole) = size;
            account.shares.push(Share { slices, slices_whole, ..Share::default() });
        }
        let share = &mut account.shares[at];
        share.observed.0 = share.observed.0.saturating_add(length);
        let mut states: BTreeMap<_, _> = share.states.drain(..).collect();
        let time = states.entry(state).or_default();
        *time = time.saturating_add(gpuprod_snapshot::units::Nanos(length));
        share.states = states.into_iter().collect();

        let slices = if self.bug == Bug::OneSliceEach { size.0.min(1) } else { size.0 };
        let amount = i128::from(length) * i128::from(slices);
        let mut left = amount;
        let mut given = Vec::new();
        for (i, (bucket, part)) in parts.iter().enumerate() {
            let mut whole = amount * part / 1_000_000;
            if self.bug == Bug::FloatArithmetic {
                whole = float_part(amount, *part);
            }
            left -= whole;
            given.push((-(amount * part % 1_000_000), i, *bucket, whole));
        }
        given.sort_unstable();
        let mut buckets: BTreeMap<_, _> = share.buckets.drain(..).map(|b| ((b.0, b.1), b.2)).collect();
        for (_, _, bucket, mut whole) in given {
            let remainders_count = !matches!(self.bug, Bug::LostRemainder | Bug::FloatArithmetic);
            if left > 0 && remainders_count {
                (left, whole) = (left - 1, whole + 1);
            }
            if whole > 0 {
                let total: &mut u64 = buckets.entry((bucket, source)).or_default();
                *total = total.saturating_add(u64::try_from(whole).unwrap_or(u64::MAX));
            }
            if let Some(whose) = whose {
                self.names.book(self.bug, share, (bucket, source), (whole, amount), whose);
            }
        }
        share.buckets = buckets.into_iter().map(|((b, s), ns)| (b, s, ns)).collect();
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "the fault itself")]
fn float_part(amount: i128, part: i128) -> i128 {
    (amount as f64 * (part as f64 / 1e6)).round() as i128
}

impl Book for Twin {
    fn charge(&mut self, judgement: &Judgement) {
        let new = &judgement.stamp;
        let units: BTreeMap<&UnitId, &UnitJudgement> = judgement.units.iter().map(|unit| (&unit.unit, unit)).collect();
        if matches!(self.bug, Bug::NewUnitBackdated | Bug::NewSizeForOldTime) {
            for (id, unit) in &units {
                let known = self.data.accounts.contains_key(*id);
                if !known && self.bug == Bug::NewSizeForOldTime {
                    continue;
                }
                let account = self.data.accounts.entry((*id).clone()).or_default();
                (account.slices, account.slices_whole) = (unit.slices, unit.slices_whole);
            }
        }
        for gone in self.names.meet(judgement) {
            let shares = self.data.accounts.values_mut().flat_map(|account| &mut account.shares);
            shares.for_each(|share| twin_whose::rename(self.bug, share, &gone));
        }
        self.names.keep(&mut self.data);
        let mut moves = true;
        if let Some(old) = self.data.upto.clone() {
            let cut = self.cut(&old, new);
            moves = cut.is_some();
            let cut = cut.unwrap_or_default();
            let back = |id: &UnitId| self.bug == Bug::ReturnBackdated && units.contains_key(id);
            let open = self.data.accounts.iter().filter(|(id, account)| !account.retired || back(id));
            let open: Vec<_> = open.map(|(id, a)| (id.clone(), a.gpu.clone())).collect();
            for (id, gpu) in open {
                let judged = units.get(&id).copied();
                let lost = judged.is_some_and(|u| u.state == State::Faulted(Fault::Lost));
                if lost && self.bug == Bug::LostGpuReleased {
                    continue;
                }
                let gpu = gpu.unwrap_or_else(|| id.clone());
                let same = |unit: &UnitJudgement| unit.gpu.as_ref().unwrap_or(&unit.unit) == &gpu;
                let replaced = judged.is_none() && units.values().any(|unit| same(unit));
                self.unit(&id, judged, replaced, &cut, judgement.period.0);
            }
        }
        if moves {
            self.data.upto = Some(new.clone());
            self.data.resumed = false;
        }
        for (id, unit) in units {
            let account = self.data.accounts.entry(id.clone()).or_default();
            account.gpu.clone_from(&unit.gpu);
            (account.slices, account.slices_whole) = (unit.slices, unit.slices_whole);
            account.retired = false;
            if matches!(self.bug, Bug::OwnerOfTheTickBefore | Bug::BlameOutlivesItsCause) {
                let whose = self.whose(unit);
                let seen = if self.bug == Bug::BlameOutlivesItsCause { whose } else { unit.clone() };
                self.before.insert(id.clone(), seen);
            }
        }
    }

    fn resume(&mut self) {
        self.data.resumed = true;
        if self.bug == Bug::RestartForgetsGap {
            self.data.upto = None;
        }
    }

    fn save(&self) -> String {
        self.data.save()
    }

    fn load(&mut self, saved: &str) -> Result<(), String> {
        self.data.load(saved)?;
        self.names.find(&self.data);
        if let (Bug::SavedInMicroseconds, Some(upto)) = (self.bug, &mut self.data.upto) {
            upto.boottime.0 -= upto.boottime.0 % 1000;
        }
        Ok(())
    }

    fn ledger(&self) -> &Ledger {
        &self.data
    }
}
