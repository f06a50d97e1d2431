//! Ranks of one workload on one node: which of them waits for which.
//!
//! Ranks that work in step wait for the slowest of them, in a kernel that stays resident: full utilization, and a
//! silicon that does less than it normally does. Whoever waits like that is a victim. The one that does not is what the
//! others wait for, if there is exactly one.

use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::facts::{Demand, UnitFacts};
use crate::kin::groups;
use crate::signals::checkpoints::LONGEST;

/// What a unit is to the others of its workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Peers {
    /// It waits for another rank: resident, and less active than it normally is.
    pub(crate) waits: bool,
    /// The one that it waits for.
    pub(crate) laggard: Option<Laggard>,
    /// Blocks of the last ones in which it waited for that one, and nobody else.
    pub(crate) blocks: u32,
    /// Why none can be named.
    pub(crate) why: &'static str,
}

/// The rank that holds the others up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Laggard {
    pub(crate) name: String,
    pub(crate) kind: Lag,
    pub(crate) util: f64,
    /// What its utilization normally is.
    pub(crate) usual: Option<f64>,
    /// Its activity, as a part of its own normal, and the median of those that wait for it.
    pub(crate) activity: f64,
    pub(crate) others: f64,
    /// How long it has run; a rank that was just started warms up.
    pub(crate) age: Option<Nanos>,
}

/// How it lags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lag {
    /// Its clocks are held down.
    Throttled,
    /// Nothing runs on it from time to time: what feeds it is late.
    Starved,
    /// It works as it always does, all the time, while the others have less to do.
    Slow,
}

impl Lag {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Starved => "starved",
            Self::Slow => "slow",
        }
    }
}

/// Whether two units are of one workload, as far as that is plain.
pub(crate) fn is_kin(unit: &UnitFacts<'_>, other: &UnitFacts<'_>) -> bool {
    let same = |own: &Option<String>, other: &Option<String>| own.is_some() && own == other;
    other.id != unit.id
        && (unit.works_with(other)
            || !unit.work.family.is_disjoint(&other.work.family)
            || same(&unit.work.ties.cgroup, &other.work.ties.cgroup)
            || same(&unit.work.owner, &other.work.owner)
            || unit.device.broke_beside(other)
            || other.device.broke_beside(unit))
}

/// For which rank a unit has waited in the last blocks. A single block in which noise leaves one rank below the others
/// names nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Waits {
    whom: Option<String>,
    /// One bit for each of the last blocks, the latest lowest.
    blocks: u8,
    open: Option<u64>,
}

impl Waits {
    /// Takes in a block that was closed, once, and tells the facts how many there were.
    pub(crate) fn step(&mut self, facts: &mut UnitFacts<'_>) {
        let whom = facts.peers.laggard.as_ref().map(|laggard| &laggard.name);
        if whom.is_some() && whom != self.whom.as_ref() {
            (self.whom, self.blocks) = (whom.cloned(), 0);
        }
        let open = facts.usage.opened();
        if open != self.open {
            self.open = open;
            self.blocks = (self.blocks << 1) | u8::from(whom.is_some());
        }
        facts.peers.blocks = self.blocks.count_ones();
    }
}

/// What one rank shows.
struct Rank {
    throttled: bool,
    util: f64,
    /// What its utilization normally is.
    usual: Option<f64>,
    /// Of its own normal.
    activity: f64,
    /// Part of its clock that is held back.
    slower: f64,
    onset: Option<Nanos>,
}

impl Rank {
    fn fell(&self) -> f64 {
        1.0 - self.activity
    }

    /// Resident, free, and less active than it normally is.
    fn waits(&self, policy: &Policy) -> bool {
        !self.throttled
            && self.util >= policy.straggler_local.resident.as_fraction()
            && self.fell() >= policy.starved_clear.as_fraction()
    }

    /// Whether it has lost, no sooner, what a rank whose clocks are held down costs those that work in step with it. Then it
    /// waits whatever its utilization is, as long as that has not fallen.
    fn follows(&self, slow: &Self, policy: &Policy) -> bool {
        let clear = policy.starved_clear.as_fraction();
        !self.throttled
            && !self.has_gaps(policy)
            && self.fell() >= clear
            && (self.fell() - slow.slower).abs() <= f64::max(clear, slow.slower / 2.0)
            && self.onset.zip(slow.onset).is_some_and(|(own, held)| own >= held)
    }

    /// How far its utilization is above what it normally is.
    fn rose(&self) -> f64 {
        self.usual.map_or(0.0, |usual| self.util - usual)
    }

    /// Whether its utilization is below what it normally is.
    fn has_gaps(&self, policy: &Policy) -> bool {
        self.rose() <= -policy.straggler_local.gap.as_fraction()
    }
}

/// Tells each unit of the rank that it waits for.
pub(crate) fn tell(facts: &mut [UnitFacts<'_>], now: Nanos, policy: &Policy) {
    let fell = |unit: &UnitFacts<'_>| {
        unit.activity.is_some_and(|own| own.ratio() <= policy.starved_clear.rest().as_fraction())
    };
    if facts.len() < 2 || !facts.iter().any(|unit| fell(unit) && !unit.throttled) {
        return;
    }
    let groups = groups(facts);
    for first in 0..facts.len() {
        let members: Vec<usize> = (first..facts.len()).filter(|at| groups.get(*at) == Some(&first)).collect();
        if members.len() < 2 {
            continue;
        }
        let peers = within(facts, &members, now, policy);
        // Who waits in a collective while a rank of its job writes a checkpoint waits for that.
        let saves = members.iter().any(|at| facts.get(*at).is_some_and(|unit| unit.checkpoint));
        for (at, peers) in members.into_iter().zip(peers) {
            if let Some(unit) = facts.get_mut(at) {
                unit.checkpoint |= saves && peers.waits;
                unit.peers = peers;
            }
        }
    }
}

fn within(facts: &[UnitFacts<'_>], members: &[usize], now: Nanos, policy: &Policy) -> Vec<Peers> {
    let units: Vec<&UnitFacts<'_>> = members.iter().filter_map(|at| facts.get(*at)).collect();
    let ranks: Vec<Option<Rank>> = units.iter().map(|unit| rank(unit)).collect();
    let held = ranks.iter().flatten().find(|rank| rank.throttled);
    let waits = |rank: &Option<Rank>| {
        rank.as_ref().is_some_and(|rank| rank.waits(policy) || held.is_some_and(|held| rank.follows(held, policy)))
    };
    let waiting: Vec<bool> = ranks.iter().map(waits).collect();
    let found = laggard(&units, &ranks, &waiting, now, policy);
    let tell = |waits: &bool| Peers {
        waits: *waits,
        laggard: found.as_ref().ok().filter(|_| *waits).cloned(),
        blocks: 0,
        why: found.as_ref().err().copied().unwrap_or_default(),
    };
    waiting.iter().map(tell).collect()
}

fn rank(unit: &UnitFacts<'_>) -> Option<Rank> {
    let activity = unit.activity?;
    let held = unit.device.signals.and_then(|signals| signals.clocks.throttled_since());
    Some(Rank {
        throttled: unit.throttled,
        util: unit.usage.block.util?,
        usual: unit.resident.map(|util| util.normal),
        activity: activity.ratio(),
        slower: unit.slower,
        onset: held.or(activity.onset),
    })
}

/// The one rank that does not wait and has a reason of its own.
fn laggard(
    units: &[&UnitFacts<'_>],
    ranks: &[Option<Rank>],
    waiting: &[bool],
    now: Nanos,
    policy: &Policy,
) -> Result<Laggard, &'static str> {
    let limits = &policy.straggler_local;
    if units.iter().any(|unit| unit.demand == Demand::Met) {
        return Err("its engine has nothing to do: ranks without work poll");
    }
    let mut waiters: Vec<f64> = ranks
        .iter()
        .zip(waiting)
        .filter(|(_, waits)| **waits)
        .filter_map(|(rank, _)| Some(rank.as_ref()?.activity))
        .collect();
    if waiters.is_empty() {
        return Err("no rank waits");
    }
    let others = crate::baseline::median(&mut waiters);
    let waiters = || ranks.iter().zip(waiting).filter(|(_, waits)| **waits).filter_map(|(rank, _)| rank.as_ref());
    let least = waiters().map(|rank| rank.util).fold(1.0, f64::min);
    // Where it never was busy all the time, the gap between them opens because those who wait are.
    let rose = waiters().map(Rank::rose).fold(1.0, f64::min) >= limits.gap.as_fraction();
    let mut found = None;
    for ((unit, rank), _) in units.iter().zip(ranks).zip(waiting).filter(|(_, waits)| !**waits) {
        let Some(rank) = rank else { return Err("not every rank's activity is known against its own normal") };
        let kind = if rank.throttled {
            Lag::Throttled
        } else if (rose || rank.has_gaps(policy)) && rank.util <= least - limits.gap.as_fraction() {
            Lag::Starved
        } else if rank.activity >= others * limits.ratio {
            Lag::Slow
        } else {
            continue;
        };
        if found.is_some() {
            return Err("more than one rank does not wait");
        }
        found = Some((unit, kind, rank));
    }
    let (unit, kind, rank) = found.ok_or("all ranks wait alike: what they wait for is not on this node")?;
    // While it writes at that rate it is one, long or not: whether the drive is late is asked elsewhere.
    let writes = unit.usage.writes.since();
    if unit.checkpoint || writes.is_some_and(|since| now.saturating_sub(since) < LONGEST) {
        return Err("the rank that the others wait for writes a checkpoint");
    }
    let Rank { util, usual, activity, .. } = *rank;
    Ok(Laggard { name: unit.name.clone(), kind, util, usual, activity, others, age: unit.age })
}
