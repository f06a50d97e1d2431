//! Units that suffer with another one of their workload: the same processes from the same cause, other ranks by waiting.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::attribution::far;
use crate::facts::UnitFacts;
use crate::hold::{Active, Held, Holds};
use crate::kin::groups;
use crate::rule::Claim;
use crate::{Cause, Part, Policy, RuleId, Severity, UnitId};

/// A rank that waits in a collective spins: its utilization is full.
const SPINS: f64 = 0.9;

/// What starves one rank and leaves the others waiting.
const fn starves(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Storage | Cause::BackgroundIo | Cause::HostMem | Cause::HostCpu | Cause::PcieNuma | Cause::Network
    )
}

/// What is known to hold up a rank and the one that it would be blamed on alike: the whole job waits for that, and no rank
/// for another one.
pub(crate) fn common(claim: &Claim, own: &Held, facts: &[UnitFacts<'_>], holds: &Holds) -> Option<RuleId> {
    let accused = facts.iter().find(|unit| unit.name == claim.object).map(|unit| holds.of(&unit.id))?;
    let blames = |active: &&Active| active.current && active.claim.severity > Severity::Info;
    own.ranked().find_map(|(rule, active)| {
        let same =
            |other: &Active| other.claim.cause == active.claim.cause && other.claim.object == active.claim.object;
        let both = blames(&active) && active.claim.cause.is_some_and(starves);
        (both && accused.get(rule).filter(blames).is_some_and(same)).then_some(rule)
    })
}

/// Units that do less than they normally do without a cause of their own, while another unit of the same workload is
/// starved by one. The same processes share its cause; other ranks, at full utilization, wait for theirs.
pub(crate) fn borrowed(facts: &[UnitFacts<'_>], holds: &Holds, policy: &Policy) -> BTreeMap<UnitId, (Cause, Part)> {
    let starved = |unit: &UnitFacts<'_>| {
        let mut claims =
            holds.of(&unit.id).ranked().filter(|(_, active)| active.current).map(|(_, active)| &active.claim);
        claims.find_map(|claim| Some((claim.cause.filter(|cause| starves(*cause))?, claim.pressure)))
    };
    let slow = |unit: &UnitFacts<'_>| {
        unit.engine.is_none()
            && unit.deficit_since.is_some()
            && unit.deviation.is_some_and(|deviation| far(&deviation, policy))
            && holds.of(&unit.id).ranked().all(|(_, active)| active.claim.cause.is_none())
    };
    let guilty: Vec<(usize, (Cause, Part))> =
        facts.iter().enumerate().filter_map(|(at, unit)| Some((at, starved(unit)?))).collect();
    if guilty.is_empty() || !facts.iter().any(slow) {
        return BTreeMap::new();
    }
    let groups = groups(facts);
    let mut borrowed = BTreeMap::new();
    for (at, unit) in facts.iter().enumerate().filter(|(_, unit)| slow(unit)) {
        let mut others = guilty.iter().filter(|(other, _)| groups.get(*other) == groups.get(at));
        let Some((_, (cause, pressure))) = others
            .clone()
            .find(|(other, _)| facts.get(*other).is_some_and(|other| other.work.family == unit.work.family))
        else {
            if others.next().is_some() && unit.usage.block.util.is_some_and(|util| util >= SPINS) {
                borrowed.insert(unit.id.clone(), (Cause::Peer, Part::ONE));
            }
            continue;
        };
        borrowed.insert(unit.id.clone(), (*cause, *pressure));
    }
    borrowed
}
