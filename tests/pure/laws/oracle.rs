//! What a schedule must come to, added up from its plain truth in the simplest way: wide integers, no rounding,
//! nothing of the ledger's own code.

use std::collections::{BTreeMap, BTreeSet};

use gpuprod_rules::{Bucket, Cause, State, UnitId, UnitJudgement, Unknown};

use super::schedule::{Beat, Fate, Schedule, Truth, gpu_of};
use super::whose::{Crowd, Whose};

/// Slices of the unit, slices of the whole.
pub(crate) type Size = (u32, u32);

/// What one unit's account must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) size: Size,
    pub(crate) retired: bool,
    /// Lost from the bus at the last tick.
    pub(crate) lost: bool,
    /// ns per size.
    pub(crate) observed: BTreeMap<Size, i128>,
    /// ns per state.
    pub(crate) states: BTreeMap<State, i128>,
    /// Millionths of a slice-ns per bucket, exactly.
    pub(crate) buckets: BTreeMap<Bucket, i128>,
    /// How often a bucket may have been rounded.
    pub(crate) roundings: i128,
    /// None where nobody is ever named.
    pub(crate) whose: Option<Whose>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) units: BTreeMap<UnitId, Expected>,
    /// ns since each GPU was first seen, however it was cut.
    pub(crate) gpus: BTreeMap<String, i128>,
    /// None where nobody is ever named.
    pub(crate) crowd: Option<Crowd>,
}

const ONE: i128 = 1_000_000;

impl Oracle {
    pub(crate) fn of(schedule: &Schedule) -> Self {
        Self { crowd: schedule.peopled.then(Crowd::default), ..Self::default() }
    }

    pub(crate) fn beat(&mut self, beat: &Beat) {
        let period = i128::from(beat.judgement.period.0);
        if let Some(crowd) = &mut self.crowd {
            crowd.beat(&beat.judgement.units, beat.judgement.stamp.realtime.0);
        }
        self.pass(beat);
        for (id, fate) in &beat.fates {
            let judged = beat.judgement.units.iter().find(|unit| unit.unit == *id);
            let whose = self.crowd.is_some().then(Whose::default);
            let unit = self.units.entry(id.clone()).or_insert_with(|| Expected { whose, ..Expected::default() });
            for &(truth, length) in &beat.truth {
                let length = i128::from(length);
                match (truth, fate, judged) {
                    (_, Fate::Begins, _) => {}
                    (Truth::Is(reason), ..) => unit.unknown(reason, length),
                    (Truth::Seen, Fate::Ends, _) => unit.unknown(Unknown::Missed, length),
                    (Truth::Seen, _, Some(judged)) => {
                        let by_counters = judged.cumulative && length <= 10_000_000_000;
                        if 2 * length <= 5 * period || by_counters {
                            unit.judged(judged, length);
                        } else {
                            unit.unknown(Unknown::Missed, length);
                        }
                    }
                    (Truth::Seen, _, None) => unit.unknown(Unknown::NvmlError, length),
                }
            }
            unit.retired = *fate == Fate::Ends;
            if let Some(judged) = judged {
                unit.size = (judged.slices, judged.slices_whole);
                unit.lost = judged.state.as_str() == "faulted";
            }
        }
    }

    /// A GPU has all the time that passes from when it is first seen, there or not, whole or in parts.
    fn pass(&mut self, beat: &Beat) {
        let length: i128 = beat.truth.iter().map(|stretch| i128::from(stretch.1)).sum();
        let there: BTreeSet<&str> = beat.fates.iter().map(|fate| gpu_of(&fate.0)).collect();
        for gpu in there {
            match self.gpus.get_mut(gpu) {
                Some(passed) => *passed += length,
                None => _ = self.gpus.insert(gpu.to_owned(), 0),
            }
        }
    }
}

impl Expected {
    fn time(&mut self, state: State, length: i128) {
        if length > 0 {
            *self.observed.entry(self.size).or_default() += length;
            *self.states.entry(state).or_default() += length;
        }
    }

    fn unknown(&mut self, reason: Unknown, length: i128) {
        self.time(State::Unknown(reason), length);
        self.bucket(Bucket::Unknown(reason), length, ONE);
        if let Some(whose) = &mut self.whose {
            whose.nobody(Bucket::Unknown(reason), length * i128::from(self.size.0));
        }
    }

    fn bucket(&mut self, bucket: Bucket, length: i128, part: i128) {
        *self.buckets.entry(bucket).or_default() += length * i128::from(self.size.0) * part;
    }

    fn judged(&mut self, unit: &UnitJudgement, length: i128) {
        self.time(unit.state, length);
        self.roundings += 1;
        let mut parts: BTreeMap<Bucket, i128> = BTreeMap::new();
        for (bucket, part) in &unit.split {
            *parts.entry(*bucket).or_default() += i128::from(part.0);
        }
        // Odd parts: too little is unexplained, too much is taken from the front.
        let mut over = parts.values().sum::<i128>() - ONE;
        if over < 0 {
            *parts.entry(Bucket::Lost(Cause::Unexplained)).or_default() -= over;
        }
        for (bucket, part) in parts {
            let cut = over.clamp(0, part);
            over -= cut;
            self.bucket(bucket, length, part - cut);
            if let Some(whose) = &mut self.whose {
                whose.judged(bucket, length * i128::from(self.size.0), part - cut, unit);
            }
        }
    }
}
