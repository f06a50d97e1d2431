//! From what every rule says of every unit to findings: one for each cause object, with its victims.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use crate::facts::UnitFacts;
use crate::hold::{Active, Holds, is_load};
use crate::rule::{Claim, RULES};
use crate::{Bucket, Cause, Evidence, Finding, Holder, Micro, Part, RuleId, Severity, UnitId, UnitJudgement};

/// What carries a part of a unit's loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share<'a> {
    pub(crate) cause: Cause,
    pub(crate) object: &'a str,
    /// The largest part that its evidence can carry.
    pub(crate) pressure: Part,
}

/// The place of a rule in the order of precedence.
fn rank(rule: RuleId) -> Option<usize> {
    RULES.iter().position(|entry| entry.id == rule)
}

/// Every confirmed cause that is there now, the surest first, of equals in the order of precedence; each cause once. A cache
/// that is full carries what a cause outside of the engine leaves.
pub(crate) fn shares<'a>(holds: &'a Holds, unit: &UnitId) -> Vec<Share<'a>> {
    let named = |claim: &Claim| {
        claim
            .cause
            .is_some_and(|cause| !matches!(cause, Cause::Fault | Cause::Squat | Cause::Stall | Cause::Unexplained))
    };
    let mut active: Vec<(RuleId, &Active)> =
        holds.of(unit).ranked().filter(|(_, active)| active.current && named(&active.claim)).collect();
    // They stand in the order of precedence already, and equals stay so.
    active.sort_by_key(|(_, active)| {
        (active.claim.cause.is_some_and(is_load), core::cmp::Reverse(active.claim.confidence))
    });
    let mut shares: Vec<Share<'a>> = Vec::new();
    for claim in active.into_iter().map(|(_, active)| &active.claim) {
        let Some(cause) = claim.cause else { continue };
        match shares.iter_mut().find(|share| share.cause == cause) {
            Some(share) => share.pressure = share.pressure.max(claim.pressure),
            None => shares.push(Share { cause, object: claim.object.as_str(), pressure: claim.pressure }),
        }
    }
    shares
}

/// Adds what a tick of this length cost to every finding that carries a part of it.
pub(crate) fn charge(holds: &mut Holds, units: &[UnitJudgement], length: Nanos) {
    for (unit, active) in holds.iter_mut().filter(|(_, active)| active.current) {
        let (Some(cause), Some(judged)) = (active.claim.cause, units.iter().find(|judged| judged.unit == *unit)) else {
            continue;
        };
        let part = judged.split.iter().find(|(bucket, _)| *bucket == Bucket::Lost(cause)).map_or(0, |(_, part)| part.0);
        let slices = u128::from(judged.slices.min(judged.slices_whole));
        let lost = u128::from(length.0) * u128::from(part) * slices
            / (u128::from(Part::ONE.0) * u128::from(judged.slices_whole.max(1)));
        active.lost = Nanos(active.lost.0.saturating_add(u64::try_from(lost).unwrap_or(u64::MAX)));
    }
}

/// Rules that name what any cause does to its victim. Beside a rule that names the cause they are its evidence.
const EFFECTS: &[RuleId] =
    &[RuleId::BusyButStarved, RuleId::ThroughputRegression, RuleId::LatencyClassViolation, RuleId::HeadroomBreach];

pub(crate) fn is_effect(rule: RuleId) -> bool {
    EFFECTS.contains(&rule)
}

/// Whether a rule's claim names the cause. A neighbour may take what has no bucket of its own.
pub(crate) fn names(rule: RuleId, claim: &Claim) -> bool {
    named(claim) || rule == RuleId::NoisyNeighbour
}

fn named(claim: &Claim) -> bool {
    claim.cause.is_some_and(|cause| cause != Cause::Unexplained)
}

/// What a warning is about where nothing is lost to it: an engine that is asked for more than it can do works at full speed.
/// A word for whoever reads it, and for no account.
fn about(rule: RuleId, worst: Severity) -> Option<Cause> {
    match rule {
        _ if worst == Severity::Info => None,
        RuleId::QueueInstability => Some(Cause::Upstream),
        RuleId::KvSaturation | RuleId::PreemptionThrash => Some(Cause::Kv),
        _ => None,
    }
}

/// Whether an information is told beside a warning about the same object: that an engine had no room left for a burst is
/// what its full cache and its queue follow from. Other information flaps, or says no more than the warning does.
fn beside(rule: RuleId, claim: &Claim) -> bool {
    rule == RuleId::HeadroomBreach && claim.variant.as_deref() != Some("over_reserved")
}

/// The claim that names the cause of what this one tells: an effect has that of the first rule in the order of
/// precedence that names one for the same victim; who waits for a laggard has that of the laggard.
fn root<'a>(holds: &'a Holds, units: &'a [UnitFacts<'_>], rule: RuleId, unit: &'a UnitId) -> Option<&'a Claim> {
    let own = &holds.of(unit).get(rule)?.claim;
    // A hang that the engine's own counters tell: the spin of its GPUs is evidence of it.
    if rule == RuleId::Squatter {
        let hangs = own.cause == Some(Cause::Stall) && own.severity > Severity::Info;
        let told = holds.of(unit).get(RuleId::EngineStall).map(|active| &active.claim);
        return told.filter(|claim| hangs && claim.severity > Severity::Info);
    }
    let (whose, lags) = match rule {
        RuleId::StragglerLocal => (&units.iter().find(|other| other.name == own.object)?.id, true),
        _ if EFFECTS.contains(&rule) => (unit, false),
        _ => return None,
    };
    let blames = |rule: RuleId, active: &Active| {
        let claim = &active.claim;
        // A cause that goes away explains what names none, and whoever waited for its victim, to the end.
        names(rule, claim)
            && claim.severity > Severity::Info
            && (active.current || lags || !named(own))
            && !(claim.cause.is_some_and(is_load)
                && own.cause.is_some_and(|own| own != Cause::Unexplained && !is_load(own)))
            && !(lags && claim.cause == Some(Cause::Peer))
    };
    let mut others = holds.of(whose).ranked();
    let (first, active) = others.find(|(other, active)| !EFFECTS.contains(other) && blames(*other, active))?;
    let has_own_root = first == RuleId::Squatter || (first == RuleId::StragglerLocal && !lags);
    let further = if has_own_root { root(holds, units, first, whose) } else { None };
    further.or(Some(&active.claim))
}

/// Processes that one finding names at most.
const MOST_HOLDERS: usize = 64;
/// Readings that one finding shows at most; those of the rule that names it come first.
const MOST_EVIDENCE: usize = 32;

/// Claims about the same object are one finding: the first rule names it, the others are attached.
pub(crate) fn findings(holds: &Holds, units: &[UnitFacts<'_>]) -> Vec<Finding> {
    let mut objects: BTreeMap<&str, Vec<(RuleId, &UnitId, &Active)>> = BTreeMap::new();
    for (rule, unit, active) in holds.iter() {
        let object = root(holds, units, rule, unit).unwrap_or(&active.claim).object.as_str();
        objects.entry(object).or_default().push((rule, unit, active));
    }
    let mut findings: Vec<Finding> = objects
        .into_iter()
        .filter_map(|(object, claims)| {
            let worst = claims.iter().map(|(.., active)| active.claim.severity).max()?;
            let speaking = claims
                .iter()
                .filter(|(.., active)| (active.claim.severity > Severity::Info) == (worst > Severity::Info));
            // What is told of another object and has its cause here stands beside those that are about this one.
            let (root, first, lead) = speaking.clone().min_by_key(|(rule, unit, active)| {
                let beside = active.claim.object != object;
                (beside, rank(*rule), core::cmp::Reverse(active.claim.severity), *unit)
            })?;
            let mut holders: Vec<Holder> = Vec::new();
            let others = speaking
                .clone()
                .filter(|(rule, ..)| rule == root || *rule == RuleId::Squatter)
                .flat_map(|(.., active)| &active.claim.holders);
            for holder in lead.claim.holders.iter().chain(others) {
                if holders.len() < MOST_HOLDERS && holders.iter().all(|known| known.pid != holder.pid) {
                    holders.push(holder.clone());
                }
            }
            let victims: BTreeSet<&UnitId> = speaking.clone().map(|(_, unit, _)| *unit).collect();
            let told = claims.iter().filter(|(rule, _, active)| beside(*rule, &active.claim)).chain(speaking);
            let also: BTreeSet<RuleId> = told.map(|(rule, ..)| *rule).filter(|rule| rule != root).collect();
            let roots = claims.iter().filter(|(rule, ..)| rule == root);
            let since = roots.map(|(.., active)| (active.since, active.since_realtime)).min()?;
            let claim = lead.claim.clone();
            // Several rules see the same loss of a victim: it is told once.
            let lost = |unit: &UnitId| {
                // Whoever waits for a laggard loses to what holds that one up.
                let its = |cause: Option<Cause>| cause == claim.cause || cause == Some(Cause::Peer);
                let of = claims.iter().filter(|(_, victim, active)| *victim == unit && its(active.claim.cause));
                of.map(|(.., active)| active.lost.0).max().unwrap_or(0)
            };
            let lost = Nanos(victims.iter().map(|unit| lost(unit)).fold(0, u64::saturating_add));
            let mut evidence = claim.evidence;
            // One claim of each rule is enough: eight victims of one array show the same eight times.
            for rule in &also {
                let its = |own: bool| claims.iter().find(|claim| claim.0 == *rule && (!own || claim.1 == *first));
                for more in its(true).or(its(false)).into_iter().flat_map(|(.., active)| &active.claim.evidence) {
                    let new = evidence.iter().all(|known| known.what != more.what || known.of != more.of);
                    if new && evidence.len() < MOST_EVIDENCE {
                        evidence.push(more.clone());
                    }
                }
            }
            if lost.0 > 0 {
                evidence.push(Evidence {
                    what: "lost since it was confirmed".into(),
                    of: claim.object.clone(),
                    value: Micro::from_f64(lost.as_secs_f64()),
                    unit: "GPU-s".into(),
                    normal: None,
                });
            }
            Some(Finding {
                rule: *root,
                variant: claim.variant,
                severity: worst,
                subject: claim.object,
                victims: victims.into_iter().cloned().collect(),
                onset: claim.onset,
                since: since.0,
                since_realtime: since.1,
                confidence: claim.confidence,
                cause: claim.cause.or_else(|| about(*root, worst)),
                summary: claim.summary,
                evidence,
                lost,
                rejected: claim.rejected,
                also: also.into_iter().collect(),
                advice: claim.advice,
                holders,
            })
        })
        .collect();
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.since.cmp(&b.since)).then(a.subject.cmp(&b.subject)));
    findings
}
