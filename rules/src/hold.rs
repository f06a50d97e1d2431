//! When a claim becomes a finding, and when a finding ends.

use alloc::collections::BTreeMap;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::rule::{Claim, Hold, Outcome, RULES};
use crate::{Cause, Policy, RuleId, Severity, UnitId, entries};

/// Holds of all rules, by rule and unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Holds {
    #[serde(with = "entries")]
    active: BTreeMap<(RuleId, UnitId), Active>,
}

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
}

/// The instant of a tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) boottime: Nanos,
    pub(crate) realtime: Nanos,
}

impl Holds {
    pub(crate) fn is_active(&self, rule: RuleId, unit: &UnitId) -> bool {
        self.get(rule, unit).is_some_and(|active| active.claim.severity > Severity::Info)
    }

    pub(crate) fn get(&self, rule: RuleId, unit: &UnitId) -> Option<&Active> {
        self.active.get(&(rule, unit.clone()))
    }

    /// What every rule says of one unit.
    pub(crate) fn of(&self, unit: &UnitId) -> impl Iterator<Item = (RuleId, &Active)> {
        RULES.iter().filter_map(move |rule| Some((rule.id, self.get(rule.id, unit)?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&(RuleId, UnitId), &mut Active)> {
        self.active.iter_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&(RuleId, UnitId), &Active)> {
        self.active.iter()
    }

    /// Drops what a rule says of every unit.
    pub(crate) fn forget(&mut self, rule: RuleId) {
        self.active.retain(|(held, _), _| *held != rule);
    }

    /// Takes in what a rule says of a unit now.
    pub(crate) fn update(
        &mut self,
        (rule, hold): (RuleId, Hold),
        unit: &UnitId,
        outcome: Outcome,
        now: Now,
        policy: &Policy,
    ) {
        let key = (rule, unit.clone());
        let held = self.active.get_mut(&key);
        match (outcome, held) {
            (Outcome::Claim(claim), Some(active)) => active.renew(claim, now, hold, policy),
            (Outcome::Claim(claim), None) => {
                if claim.severity == Severity::Info || held_long_enough(&claim, now, hold) {
                    self.active.insert(key, Active::begin(claim, now));
                }
            }
            (_, Some(active)) => {
                active.current = false;
                // What blames nobody ends at once; blame must stay away for a while before it is lifted.
                if active.claim.severity == Severity::Info || active.quiet_for(now) >= hold.leave {
                    self.active.remove(&key);
                }
            }
            (_, None) => {}
        }
    }
}

impl Active {
    fn quiet_for(&mut self, now: Now) -> Nanos {
        now.boottime.saturating_sub(*self.quiet_since.get_or_insert(now.boottime))
    }

    fn renew(&mut self, claim: Claim, now: Now, hold: Hold, policy: &Policy) {
        let blamed = self.claim.severity > Severity::Info;
        let blames = claim.severity > Severity::Info;
        // Blame that has named an object keeps it: information, another object or none is, for the held one, silence,
        // and has to last as long. When an array's sync ends, its slow members would else be blamed in its place.
        let named = self.claim.cause.is_some_and(|cause| cause != Cause::Unexplained);
        let elsewhere = named && claim.object != self.claim.object;
        if blamed && (!blames || elsewhere) {
            self.current = false;
            if self.quiet_for(now) >= hold.leave {
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
            self.claim = if !blames || claim.cause.is_none() || claim.deficit >= policy.starved_warn {
                Claim { severity, onset, ..claim }
            } else {
                Claim { pressure: claim.pressure, ..self.claim.clone() }
            };
            self.current = true;
            self.quiet_since = None;
        } else {
            *self = Self::begin(claim, now);
        }
    }

    fn begin(claim: Claim, now: Now) -> Self {
        Self {
            claim,
            since: now.boottime,
            since_realtime: now.realtime,
            current: true,
            lost: Nanos(0),
            quiet_since: None,
        }
    }
}

fn held_long_enough(claim: &Claim, now: Now, hold: Hold) -> bool {
    now.boottime.saturating_sub(claim.onset) >= hold.enter
}
