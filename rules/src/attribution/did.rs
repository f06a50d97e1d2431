//! The counterfactual: how the victim did while the resource was in trouble and while it was not, against the units of
//! the node that do not use it.
//!
//! Difference in differences = (median of the victim, on - off) - (median of the control, on - off). Six blocks of each
//! are needed; it is significant from two pooled spreads and ten points on. Without a control the victim must have
//! recovered after the trouble ended: that it fell when the trouble began is what the other gates say already.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::Thresholds;
use super::memo::Memo;
use super::switch::Switch;
use crate::baseline::{Track, median, push};
use crate::course::Course as Blocks;
use crate::facts::peers::is_kin;
use crate::facts::{Demand, UnitFacts};
use crate::rule::View;
use crate::{Cause, Policy, State, UnitId, UnitJudgement, entries};

/// Blocks that are remembered: a little more than five minutes.
const BLOCKS: usize = 64;
/// Good blocks that are remembered.
const GOOD: usize = 24;
/// Blocks of each kind that are needed, and blocks of trouble after which a control that lost as much denies: a finding
/// takes six.
const ENOUGH: usize = 6;
const DENIES: usize = 3;
/// Trouble of fewer blocks, two minutes, is young.
const YOUNG: usize = 24;
/// Progress is never taken to scatter less.
const FLOOR: f64 = 0.02;
const MAD_TO_SIGMA: f64 = 1.4826;
/// A longer step between ticks is a gap.
const LONGEST: Nanos = Nanos::from_secs(10);
/// No node has more units.
const MOST: usize = 1024;

/// What each unit did in the last blocks: w, where it was asked for work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct History {
    #[serde(with = "entries")]
    units: BTreeMap<UnitId, Course>,
    block: Option<u64>,
    at: Option<Nanos>,
    step: Nanos,
    /// What was compared in this block already.
    #[serde(skip)]
    memo: Memo,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Course {
    /// Sum and number of the block under way.
    open: (f64, u32),
    blocks: Blocks,
    /// The last blocks without a deficit, however long ago: trouble that lasts leaves no other to compare with.
    good: VecDeque<f64>,
    /// Whether its loss is put down to something in the block under way, or is no loss that anybody saw it suffer, and in
    /// which of the last blocks it was: the lowest bit is the last.
    #[serde(default)]
    told: bool,
    #[serde(default)]
    explained: u64,
}

impl Course {
    fn close(&mut self, clear: f64) {
        let (sum, count) = core::mem::take(&mut self.open);
        let w = (count > 0).then(|| sum / f64::from(count));
        self.blocks.push(w, BLOCKS);
        self.explained = (self.explained << 1) | u64::from(core::mem::take(&mut self.told));
        if let Some(w) = w.filter(|w| 1.0 - w < clear) {
            push(&mut self.good, w, GOOD);
        }
    }

    /// So many good blocks ago.
    fn good(&self, blocks: usize) -> Option<f64> {
        self.good.len().checked_sub(blocks.checked_add(1)?).and_then(|at| self.good.get(at).copied())
    }

    fn ago(&self, blocks: usize) -> Option<f64> {
        self.blocks.ago(blocks)
    }

    /// The same of a control: a block in which its loss has a reason of its own, or may be its own will, says nothing about
    /// the victim's.
    fn unexplained(&self, blocks: usize) -> Option<f64> {
        let told = u32::try_from(blocks).ok().and_then(|blocks| self.explained.checked_shr(blocks));
        self.ago(blocks).filter(|_| told.is_none_or(|told| told & 1 == 0))
    }
}

/// Whether a unit that does less than its normal is seen to be held up: its requests are there and its normal for them is
/// known, its steps go on, or its workload waits. Whoever merely does less may have less to do, evaluate, or be over.
fn is_held_up(unit: &UnitFacts<'_>, policy: &Policy) -> bool {
    let waits = || {
        unit.usage.waits.since().or(unit.usage.waits_remote.since()).is_some()
            || unit.work.cpu_some.is_some_and(|some| some >= policy.cpu_starved_loader.wait_some.as_fraction())
    };
    match unit.engine {
        Some(_) => unit.deviation.is_some() && matches!(unit.demand, Demand::Present { .. }),
        None => (unit.trainer.steps() && !unit.trainer.late && !unit.trainer.evaluates) || waits(),
    }
}

impl History {
    /// Closes the block if its time is over, and says whether it was.
    pub(crate) fn turn(&mut self, now: Nanos, policy: &Policy) -> bool {
        // A gap is nobody's doing.
        let since = self.at.replace(now).map_or(Nanos(0), |at| now.saturating_sub(at));
        self.step = if since <= LONGEST { since } else { Nanos(0) };
        let block = now.0 / policy.block_ns.0.max(1);
        let over = self.block.is_some_and(|open| open != block);
        if over {
            for course in self.units.values_mut() {
                course.close(policy.starved_clear.as_fraction());
            }
            self.memo.forget();
        }
        self.block = Some(block);
        over
    }

    /// Length of the tick under way; none after a gap.
    pub(crate) fn step(&self) -> Nanos {
        self.step
    }

    /// Takes in the verdicts of a tick on units that worked or should have.
    pub(crate) fn add(&mut self, units: &[UnitJudgement], facts: &[UnitFacts<'_>], policy: &Policy) {
        // Both are in the order of ids; a unit without a verdict is skipped.
        let mut facts = facts.iter();
        for unit in units {
            let facts = facts.find(|facts| facts.id == unit.unit);
            let demand = facts.map_or(Demand::Met, |facts| facts.demand);
            let measured = match unit.state {
                State::Productive(_) | State::Starved(_) | State::Throttled => demand != Demand::Met,
                // Nobody says whether it should have worked: a workload without an engine that waits is idle.
                State::Idle => demand == Demand::Unknown,
                _ => false,
            };
            if self.units.len() >= MOST && !self.units.contains_key(&unit.unit) {
                continue;
            }
            let course = self.units.entry(unit.unit.clone()).or_default();
            course.told |= match unit.state {
                State::Starved(cause) => cause != Cause::Unexplained,
                state => state == State::Throttled,
            };
            let lost = unit.weight.w.rest() >= policy.starved_clear;
            course.told |= lost && !facts.is_some_and(|facts| is_held_up(facts, policy));
            if measured {
                course.open.0 += unit.weight.w.as_fraction();
                course.open.1 = course.open.1.saturating_add(1);
            }
        }
    }

    /// Drops units that are no more.
    pub(crate) fn keep(&mut self, units: &[UnitJudgement]) {
        if self.units.len() > units.len() {
            self.units.retain(|id, _| units.iter().any(|unit| unit.unit == *id));
            self.memo.forget();
        }
    }

    /// Loss of the last blocks, oldest first; at most so many.
    pub(crate) fn deficit(&self, unit: &UnitId, most: usize) -> Vec<Option<f64>> {
        let blocks = self.units.get(unit).map(|course| &course.blocks);
        let skip = blocks.map_or(0, |blocks| blocks.len().saturating_sub(most));
        blocks.into_iter().flat_map(Blocks::iter).skip(skip).map(|w| w.map(|w| 1.0 - w)).collect()
    }
}

/// What came of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Did {
    /// The victim's change, as a part of full progress: negative is worse.
    pub(crate) victim: f64,
    /// The control's change; none when nobody on the node can be compared.
    pub(crate) control: Option<f64>,
    /// Large enough to count.
    pub(crate) significant: bool,
    pub(crate) on: usize,
    pub(crate) off: usize,
}

impl Did {
    /// The difference in differences.
    pub(crate) fn difference(&self) -> f64 {
        self.victim - self.control.unwrap_or(0.0)
    }

    /// Those who do not use the resource lost as much: it cannot be the cause.
    pub(crate) fn denies(&self, asked: &Thresholds) -> bool {
        let fell = |change: f64| change <= -asked.least.as_fraction();
        self.control.is_some_and(|control| fell(self.victim) && fell(control) && self.difference() > self.victim / 2.0)
    }
}

/// On and off.
type Sides = (Vec<f64>, Vec<f64>);

/// Compares; nothing while there are too few blocks of either kind.
pub(crate) fn compare(
    view: &View<'_>,
    object: &str,
    uses: fn(&UnitFacts<'_>, &str) -> bool,
    switch: Switch,
) -> Option<Did> {
    let host = view.host;
    let unit = view.unit;
    // Ranks of the victim's own job wait for it: that they lost as much clears nobody. Nor does a loss that has a reason
    // of its own.
    let stranger = |other: &&UnitFacts<'_>| {
        other.id != unit.id && !is_kin(unit, other) && !uses(other, object) && !has_its_own(view, other)
    };
    let controls: Vec<&UnitId> = host.units.iter().filter(stranger).map(|other| &other.id).collect();
    host.history.memo.compared(&unit.id, &controls, switch, || {
        host.history.compare(&unit.id, &controls, switch, &view.policy.attribution)
    })
}

/// Whether a unit has trouble that the victim has not: clocks of its workload are held, or something in its own path to its
/// data answers late. It is asked for what is seen, not for what was found: else two syncs at once would clear each
/// other before either is blamed.
fn has_its_own(view: &View<'_>, other: &UnitFacts<'_>) -> bool {
    let signals = view.host.signals;
    let late = |latency: Option<&Track>, ratio: f64| {
        let deviation = latency.and_then(|latency| latency.deviation(view.policy));
        deviation.is_some_and(|latency| latency.alarm && latency.ratio() >= ratio)
    };
    let victim = view.unit;
    let (disk, array) = (view.policy.flooded_await_ratio, view.policy.raid_rebuild_impact.sync_await_ratio);
    let mut disks = other.work.path.disks.iter().filter(|disk| !victim.work.path.disks.contains(*disk));
    let mut arrays = other.work.path.arrays.iter().filter(|array| !victim.work.path.arrays.contains(*array));
    let mut mounts = other.work.mounts.iter().filter(|mount| !victim.work.mounts.contains(*mount));
    let mut throttled = view.host.units.iter().filter(|unit| unit.throttled && !is_kin(victim, unit));
    throttled.any(|unit| unit.id == other.id || is_kin(other, unit))
        || disks.any(|name| late(signals.disks.get(name).map(|signals| &signals.latency), disk))
        || arrays.any(|name| late(signals.arrays.get(name).map(|signals| &signals.latency), array))
        || mounts.any(|name| late(signals.mounts.get(name).map(|signals| &signals.latency), disk))
}

impl History {
    /// The same courses give the same answer until a block ends.
    fn compare(&self, unit: &UnitId, controls: &[&UnitId], switch: Switch, asked: &Thresholds) -> Option<Did> {
        let (mut victim, mut control): (Sides, Sides) = Default::default();
        let own = self.units.get(unit);
        let controls: Vec<&Course> = controls.iter().filter_map(|other| self.units.get(*other)).collect();
        // One of several that stumbles is not the node.
        let mut values = Vec::with_capacity(controls.len());
        let mut middle = |value: &dyn Fn(&Course) -> Option<f64>| {
            values.clear();
            values.extend(controls.iter().filter_map(|other| value(other)));
            (!values.is_empty()).then(|| median(&mut values))
        };
        for ago in 0..BLOCKS {
            let Some(on) = switch.ago(ago) else { continue };
            let note = |sides: &mut Sides, value: Option<f64>| {
                let side = if on { &mut sides.0 } else { &mut sides.1 };
                side.extend(value);
            };
            note(&mut victim, own.and_then(|own| own.ago(ago)));
            note(&mut control, middle(&|other| other.unexplained(ago)));
        }
        if victim.1.len() < ENOUGH {
            victim.1 = (0..GOOD).filter_map(|ago| own?.good(ago)).collect();
            control.1 = (0..GOOD).filter_map(|ago| middle(&|other| other.good(ago))).collect();
        }
        // What a unit makes is read over some seconds, and blocks of noise count as trouble: while trouble is young, its
        // newest blocks show sooner than all of them that the others lost as much.
        if (DENIES..YOUNG).contains(&victim.0.len()) {
            let newest = |sides: &Sides| (sides.0.iter().take(DENIES).copied().collect(), sides.1.clone());
            let early = Did::of((newest(&victim), newest(&control)), switch, asked);
            if early.as_ref().is_some_and(|early| early.denies(asked)) {
                return early;
            }
        }
        Did::of((victim, control), switch, asked)
    }

    /// The rank correlation of a cause's course with a unit's loss.
    pub(crate) fn coupled(&self, cause: &[Option<f64>], effect: Vec<Option<f64>>) -> Option<f64> {
        self.memo.coupled(cause, effect)
    }
}

impl Did {
    /// The newest blocks stand first.
    fn of((victim, control): (Sides, Sides), switch: Switch, asked: &Thresholds) -> Option<Self> {
        let (on, off) = (victim.0.len(), victim.1.len());
        let (change, spread) = self::change(victim)?;
        let (against, noise) = self::change(control).map_or((None, spread), |(against, noise)| (Some(against), noise));
        let pooled = libm::sqrt(f64::midpoint(spread * spread, noise * noise));
        let difference = change - against.unwrap_or(0.0);
        let large = difference <= -asked.least.as_fraction() && -difference >= asked.spreads * pooled;
        Some(Self {
            victim: change,
            control: against,
            significant: large && on >= ENOUGH && (against.is_some() || switch.ended()),
            on,
            off,
        })
    }
}

/// Difference of the medians, and the pooled spread within the sides.
fn change((mut on, mut off): Sides) -> Option<(f64, f64)> {
    if on.len() < DENIES || off.len() < ENOUGH {
        return None;
    }
    let (high, low) = (median(&mut on), median(&mut off));
    let scatter = |values: &[f64], middle: f64| {
        let mut distances: Vec<f64> = values.iter().map(|value| libm::fabs(value - middle)).collect();
        (MAD_TO_SIGMA * median(&mut distances)).max(FLOOR)
    };
    let (a, b) = (scatter(&on, high), scatter(&off, low));
    Some((high - low, libm::sqrt(f64::midpoint(a * a, b * b))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_needs_three_bad_blocks_and_six_good_ones() {
        assert_eq!(change((alloc::vec![0.5; 2], alloc::vec![1.0; 20])), None);
        assert_eq!(change((alloc::vec![0.5; 20], alloc::vec![1.0; 5])), None);
        let (difference, spread) = change((alloc::vec![0.5; 6], alloc::vec![1.0; 6])).unwrap();
        assert!((difference + 0.5).abs() < 1e-12 && (spread - FLOOR).abs() < 1e-12);
    }

    #[test]
    fn young_trouble_is_denied_by_its_newest_blocks() {
        let (unit, other) = (UnitId("a".into()), UnitId("b".into()));
        let course = |blocks: &[f64]| Course {
            blocks: blocks.iter().copied().map(Some).collect::<Blocks>(),
            good: core::iter::repeat_n(1.0, GOOD).collect(),
            ..Course::default()
        };
        // Five blocks of noise were on before, then both fall, and what they make is read late.
        let fell = [&[1.0; 48][..], &[1.0, 0.9, 0.7, 0.5, 0.5, 0.5]].concat();
        let mut switch = Switch::default();
        (0..54).for_each(|block| switch.push(Some(block >= 48 || block % 9 == 0)));
        let (mut history, asked) = (History::default(), Thresholds::default());
        history.units.insert(unit.clone(), course(&fell));
        history.units.insert(other.clone(), course(&fell));
        assert!(history.compare(&unit, &[&other], switch, &asked).unwrap().denies(&asked));
        // One that goes on as ever denies nothing, and nothing is denied without others.
        history.units.insert(other.clone(), course(&[1.0; 54]));
        assert!(!history.compare(&unit, &[&other], switch, &asked).unwrap().denies(&asked));
        assert!(!history.compare(&unit, &[], switch, &asked).unwrap().denies(&asked));
    }

    #[test]
    fn control_that_falls_as_far_denies() {
        let asked = Thresholds::default();
        let did = |victim, control| Did { victim, control, significant: false, on: 6, off: 6 };
        assert!(did(-0.5, Some(-0.5)).denies(&asked));
        assert!(!did(-0.5, Some(0.0)).denies(&asked));
        assert!(!did(-0.5, Some(-0.2)).denies(&asked), "the larger half is the resource's");
        assert!(!did(-0.5, None).denies(&asked));
    }
}
