//! When a claim becomes a finding, and when a finding ends.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gpuprod_snapshot::Source;
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rule::{Claim, Hold, RULES};
use crate::{Cause, Policy, RuleId, Severity, UnitId};

/// Holds of all rules, by unit. Saved as one list, by rule and unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Holds {
    units: BTreeMap<UnitId, Held>,
}

/// What the rules hold against one unit, in the order of their names: few at a time, so a list that is looked through.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Held(Vec<(RuleId, Active)>);

/// A rule that has spoken about a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Active {
    pub(crate) claim: Claim,
    /// Confirmed at.
    pub(crate) since: Nanos,
    pub(crate) since_realtime: Nanos,
    /// Whether the claim was made on this very tick.
    pub(crate) current: bool,
    /// GPU time that its cause has cost since then.
    #[serde(default)]
    pub(crate) lost: Nanos,
    quiet_since: Option<Nanos>,
    /// What its cause is read from cannot be read, since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unread_since: Option<Nanos>,
    /// It tells what another rule has named the cause of.
    #[serde(default)]
    explained: bool,
}

/// The instant of a tick, and what cannot be read in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    pub(crate) boottime: Nanos,
    pub(crate) realtime: Nanos,
    pub(crate) unread: &'a [Source],
}

/// Rules that inform by design: their time to clear is that of the information, which else comes and goes with every block.
const INFORMS: &[RuleId] = &[RuleId::LatencyClassViolation, RuleId::HeadroomBreach];

/// What a cause, and what it does to its victim, is read from: while any of it is missing, silence clears nobody.
const fn sources(cause: Cause) -> &'static [Source] {
    match cause {
        Cause::Storage | Cause::BackgroundIo => &[Source::Md, Source::Block, Source::Gpu],
        Cause::Network => &[Source::Net, Source::Fs, Source::Gpu],
        Cause::HostCpu => &[Source::Cpu, Source::Psi, Source::Gpu],
        Cause::PcieNuma => &[Source::Gpu, Source::Pci],
        Cause::Throttle | Cause::Fault | Cause::Squat | Cause::Peer => &[Source::Gpu],
        Cause::Kv | Cause::Stall | Cause::Upstream => &[Source::Engine],
        _ => &[],
    }
}

/// What is asked of an engine, and what that does to it: as old as the demand, and felt with every other trouble.
pub(crate) const fn is_load(cause: Cause) -> bool {
    matches!(cause, Cause::Kv | Cause::Upstream)
}

impl Held {
    pub(crate) fn is_active(&self, rule: RuleId) -> bool {
        self.get(rule).is_some_and(|active| active.claim.severity > Severity::Info)
    }

    pub(crate) fn get(&self, rule: RuleId) -> Option<&Active> {
        self.0.iter().find(|(held, _)| *held == rule).map(|(_, active)| active)
    }

    /// The claim whose words are shown, if the rule still says it.
    pub(crate) fn words(&self, rule: RuleId) -> Option<&Claim> {
        self.get(rule).filter(|active| active.current).map(|active| &active.claim)
    }

    /// Whether any rule blames somebody. What is told and has cost nothing (a narrow link, a leak) must not keep a
    /// workload from having a normal.
    pub(crate) fn blames(&self) -> bool {
        self.0.iter().any(|(_, active)| active.claim.severity > Severity::Info && active.claim.cause.is_some())
    }

    /// Whether something other than its own load is blamed for what a workload lacks.
    pub(crate) fn slowed(&self) -> bool {
        let mut blamed = self.0.iter().map(|(_, active)| &active.claim);
        blamed.any(|claim| {
            let named = claim.cause.filter(|cause| *cause != Cause::Unexplained);
            claim.severity > Severity::Info && named.is_some_and(|cause| !is_load(cause))
        })
    }

    /// Whether any rule blames this object.
    pub(crate) fn blames_on(&self, object: &str) -> bool {
        let mut blamed = self.0.iter().map(|(_, active)| &active.claim);
        blamed.any(|claim| claim.severity > Severity::Info && claim.cause.is_some() && claim.object == object)
    }

    /// What may still be behind a loss, for all that anybody can see: it was blamed for one, and cannot be looked at now.
    /// It explains what has the same cause, or none.
    pub(crate) fn unread(&self, claim: &Claim, now: Now<'_>, policy: &Policy) -> Option<&str> {
        let explains = |held: &Claim| {
            held.object != claim.object && (claim.cause == held.cause || claim.cause == Some(Cause::Unexplained))
        };
        let mut unread =
            self.0.iter().filter(|(_, active)| active.is_unread(now, policy)).map(|(_, active)| &active.claim);
        unread.find(|held| explains(held)).map(|held| held.object.as_str())
    }

    /// What every rule says, in the order of precedence.
    pub(crate) fn ranked(&self) -> impl Iterator<Item = (RuleId, &Active)> {
        let rules = if self.0.is_empty() { &[] } else { RULES };
        rules.iter().filter_map(|rule| Some((rule.id, self.get(rule.id)?))).take(self.0.len())
    }

    /// Lifts what a rule says, at once.
    pub(crate) fn forget(&mut self, rule: RuleId) {
        self.0.retain(|(held, _)| *held != rule);
    }

    fn insert(&mut self, rule: RuleId, active: Active) {
        let at = self.0.partition_point(|(held, _)| *held < rule);
        self.0.insert(at, (rule, active));
    }

    /// Takes in what a rule claims of the unit now.
    /// A claim without words keeps those that are held ([`Claim::is_like`] them).
    pub(crate) fn hear(
        &mut self,
        (rule, hold): (RuleId, Hold),
        (claim, tells): (Claim, bool),
        now: Now<'_>,
        policy: &Policy,
    ) {
        match self.0.iter_mut().find(|(held, _)| *held == rule) {
            Some((_, active)) => active.renew((claim, tells), (now, hold), policy),
            None if claim.severity == Severity::Info || held_long_enough(&claim, now, hold) => {
                self.insert(rule, Active::begin(claim, now));
            }
            None => {}
        }
    }

    /// A rule claims nothing of the unit now.
    pub(crate) fn hush(&mut self, (rule, hold): (RuleId, Hold), now: Now<'_>, policy: &Policy) {
        let Some((_, active)) = self.0.iter_mut().find(|(held, _)| *held == rule) else { return };
        active.current = false;
        // What blames nobody ends at once, but where it is all that a rule has to say; blame must stay away for a while before
        // it is lifted.
        let informs = active.claim.severity == Severity::Info && !INFORMS.contains(&rule);
        if informs || active.quiet_for(now, policy) >= hold.leave {
            self.0.retain(|(held, _)| *held != rule);
        }
    }

    /// Every rule has spoken. What tells of an effect alone is over with the cause that explained it, unless it goes on by
    /// itself: its longer hold would accuse nobody of what was named before.
    pub(crate) fn settle(&mut self, is_effect: fn(RuleId) -> bool, names: fn(RuleId, &Claim) -> bool) {
        let blames = |active: &Active| active.claim.severity > Severity::Info;
        let named =
            self.0.iter().any(|(rule, active)| !is_effect(*rule) && blames(active) && names(*rule, &active.claim));
        self.0.retain(|(_, active)| named || active.current || !active.explained);
        for (rule, active) in &mut self.0 {
            active.explained = named && is_effect(*rule);
        }
    }
}

impl Holds {
    /// What is held against a unit.
    pub(crate) fn of(&self, unit: &UnitId) -> &Held {
        const NOTHING: &Held = &Held(Vec::new());
        self.units.get(unit).unwrap_or(NOTHING)
    }

    /// Takes out what is held against a unit, to be changed and put back.
    pub(crate) fn take(&mut self, unit: &UnitId) -> Held {
        self.units.remove(unit).unwrap_or_default()
    }

    /// Against most units nothing is held, and nothing is kept.
    pub(crate) fn put(&mut self, unit: &UnitId, held: Held) {
        if !held.0.is_empty() {
            self.units.insert(unit.clone(), held);
        }
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&UnitId, &mut Active)> {
        self.units.iter_mut().flat_map(|(unit, held)| held.0.iter_mut().map(move |(_, active)| (unit, active)))
    }

    /// Everything that is held, by rule and unit.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RuleId, &UnitId, &Active)> {
        let units = self.units.iter();
        let all = units.flat_map(|(unit, held)| held.0.iter().map(move |(rule, active)| (*rule, unit, active)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(rule, unit, _)| (*rule, *unit));
        all.into_iter()
    }

    /// Drops what a rule says of every unit.
    pub(crate) fn forget(&mut self, rule: RuleId) {
        self.units.values_mut().for_each(|held| held.0.retain(|(held, _)| *held != rule));
        self.units.retain(|_, held| !held.0.is_empty());
    }
}

impl Serialize for Holds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sorted: BTreeMap<(RuleId, &UnitId), &Active> =
            self.iter().map(|(rule, unit, active)| ((rule, unit), active)).collect();
        Saved { active: sorted.into_iter().collect::<Vec<_>>() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Holds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let saved: Saved<Vec<((RuleId, UnitId), Active)>> = Saved::deserialize(deserializer)?;
        let mut holds = Self::default();
        for ((rule, unit), active) in saved.active {
            holds.units.entry(unit).or_default().insert(rule, active);
        }
        Ok(holds)
    }
}

/// The saved form.
#[derive(Serialize, Deserialize)]
struct Saved<T> {
    active: T,
}

impl Active {
    /// How long nobody has said it, though it could be seen. What cannot be read for a while lifts nothing.
    fn quiet_for(&mut self, now: Now<'_>, policy: &Policy) -> Nanos {
        let from = self.claim.cause.map_or(&[][..], sources);
        let unread = from.iter().any(|source| now.unread.contains(source));
        self.unread_since = unread.then(|| self.unread_since.unwrap_or(now.boottime));
        if self.is_unread(now, policy) {
            self.quiet_since = None;
            return Nanos(0);
        }
        now.boottime.saturating_sub(*self.quiet_since.get_or_insert(now.boottime))
    }

    /// Whether its cause cannot be looked at, and could a while ago.
    fn is_unread(&self, now: Now<'_>, policy: &Policy) -> bool {
        self.unread_since.is_some_and(|since| now.boottime.saturating_sub(since) < policy.unread_holds_ns)
    }

    fn renew(&mut self, (mut claim, tells): (Claim, bool), (now, hold): (Now<'_>, Hold), policy: &Policy) {
        let blamed = self.claim.severity > Severity::Info;
        let blames = claim.severity > Severity::Info;
        // Blame that has named an object keeps it: information, another object or none is, for the held one, silence,
        // and has to last as long. When an array's sync ends, its slow members would else be blamed in its place.
        let named = self.claim.cause.is_some_and(|cause| cause != Cause::Unexplained);
        let elsewhere = named && claim.object != self.claim.object;
        if blamed && (!blames || elsewhere) {
            self.current = false;
            if self.quiet_for(now, policy) >= hold.leave {
                *self = Self::begin(claim, now);
            }
        } else if !blamed && blames {
            // Blame follows information when its own hold is over.
            if held_long_enough(&claim, now, hold) {
                *self = Self::begin(claim, now);
            }
        } else if claim.object == self.claim.object {
            // A finding may get worse, never better, while it lasts: no flapping between severities.
            let severity = self.claim.severity.max(claim.severity);
            let onset = self.claim.onset;
            // While the victim recovers, the readings go back to normal: the finding keeps the last ones that show
            // what it says.
            if !blames || claim.cause.is_none() || claim.deficit >= policy.starved_warn {
                if !tells {
                    claim.take_words(&mut self.claim);
                }
                self.claim = Claim { severity, onset, ..claim };
            } else {
                self.claim.pressure = claim.pressure;
            }
            self.current = true;
            (self.quiet_since, self.unread_since) = (None, None);
        } else {
            *self = Self::begin(claim, now);
        }
    }

    fn begin(claim: Claim, now: Now<'_>) -> Self {
        Self {
            claim,
            since: now.boottime,
            since_realtime: now.realtime,
            current: true,
            lost: Nanos(0),
            quiet_since: None,
            unread_since: None,
            explained: false,
        }
    }
}

fn held_long_enough(claim: &Claim, now: Now<'_>, hold: Hold) -> bool {
    now.boottime.saturating_sub(claim.onset) >= hold.enter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(cause: Cause, object: &str) -> Claim {
        Claim {
            variant: None,
            severity: Severity::Critical,
            cause: Some(cause),
            object: object.into(),
            deficit: crate::Part(500_000),
            onset: Nanos(0),
            pressure: crate::Part::ONE,
            confidence: crate::Part::ONE,
            summary: "".into(),
            evidence: Vec::new(),
            rejected: Vec::new(),
            advice: "".into(),
            holders: Vec::new(),
        }
    }

    #[test]
    fn what_cannot_be_read_lifts_nothing_for_a_while() {
        let policy = Policy::default();
        let hold = Hold { enter: Nanos(0), leave: Nanos::from_secs(60) };
        let rule = RuleId::RaidRebuildImpact;
        let (clear, blind): (&[Source], &[Source]) = (&[], &[Source::Md]);
        let at = |second: u64, unread| Now { boottime: Nanos::from_secs(second), realtime: Nanos(0), unread };
        let stands = |unread: fn(u64) -> bool, until: u64| {
            let mut held = Held::default();
            held.hear((rule, hold), (claim(Cause::Storage, "md0"), true), at(100, clear), &policy);
            for second in 101..until {
                held.hush((rule, hold), at(second, if unread(second) { blind } else { clear }), &policy);
            }
            held
        };
        assert!(!stands(|_| false, 170).is_active(rule), "silence lifts it");
        assert!(stands(|_| true, 390).is_active(rule), "no silence without a reading");
        assert!(!stands(|_| true, 470).is_active(rule), "nor a blame that nobody has seen for long");
        assert!(stands(|second| second < 160, 215).is_active(rule), "silence counts from the first reading on");
        assert!(!stands(|second| second < 160, 230).is_active(rule));

        let held = stands(|_| true, 200);
        let explains = |cause, object| held.unread(&claim(cause, object), at(200, blind), &policy).is_some();
        assert!(explains(Cause::Storage, "nvme0n1") && explains(Cause::Unexplained, "engine"));
        assert!(!explains(Cause::Storage, "md0") && !explains(Cause::HostCpu, "node"));
    }
}
