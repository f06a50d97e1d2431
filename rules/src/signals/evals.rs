//! Evaluation: a training job stops stepping, its GPUs go on working, and it has done so before.
//!
//! A hang looks like that for a while, and so does a job that has lost its way. What tells them apart is recurrence: an
//! evaluation comes after as many steps as the one before, takes about as long, and is over. The first two prove nothing
//! and are booked as what they look like; from the third on, one like them is overhead, for half as long again as the
//! longest of them. A GPU that spins or rests never evaluates.

use alloc::collections::VecDeque;

use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::baseline::push;

/// Evaluations that must have been seen, and that are remembered.
const BEFORE: usize = 2;
const REMEMBERED: usize = 4;
/// None takes longer than this, however long those before took.
const LONGEST: f64 = 1800.0;
/// A shorter pause, in seconds and in normal steps, may be one slow step.
const SHORTEST: (f64, f64) = (10.0, 4.0);
/// A job that pauses again after fewer steps is slow, and does not evaluate.
const LEAST_STEPS: f64 = 10.0;
/// Steps between two of them differ by so much, and by `ROUND` steps.
const PERIOD: f64 = 0.1;
const ROUND: f64 = 2.0;
/// Lengths differ by no more than this factor.
const LENGTH: f64 = 2.0;
/// One may take so many times the longest before it, and so many seconds more.
const OVER: (f64, f64) = (1.5, 10.0);
/// The GPU works in so much of it.
const WORKS: f64 = 0.8;

/// One that is over: how many seconds it took, and how many steps after the one before it began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    seconds: f64,
    after: Option<f64>,
}

/// A pause of steps under way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Pause {
    since: Nanos,
    at_step: u64,
    /// Seconds of a normal step.
    step: f64,
    ticks: u32,
    works: u32,
    writes: bool,
}

/// What is known of a unit's evaluations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Evals {
    pause: Option<Pause>,
    seen: VecDeque<Seen>,
    last: Option<u64>,
    on: bool,
}

impl Evals {
    /// Whether it evaluates, by the last tick.
    pub(crate) const fn on(&self) -> bool {
        self.on
    }

    /// Takes in a tick: since when and at which step the job pauses, if it does, and the seconds of a normal step; whether
    /// its GPU works; whether it writes at the rate of a checkpoint.
    pub(crate) fn step(&mut self, now: Nanos, pause: Option<(Nanos, u64, f64)>, works: Option<bool>, writes: bool) {
        let same = pause.zip(self.pause).is_some_and(|((since, ..), open)| since == open.since);
        if !same && let Some(open) = self.pause.take() {
            self.ends(open, now);
        }
        self.on = false;
        let Some((since, at_step, step)) = pause else { return };
        let open = self.pause.get_or_insert(Pause { since, at_step, step, ticks: 0, works: 0, writes: false });
        open.ticks = open.ticks.saturating_add(1);
        open.works = open.works.saturating_add(u32::from(works == Some(true)));
        open.writes |= writes;
        let open = *open;
        self.on = works == Some(true) && self.is_like(open, now);
    }

    fn ends(&mut self, open: Pause, now: Nanos) {
        let seconds = now.saturating_sub(open.since).as_secs_f64();
        let short = seconds < (SHORTEST.1 * open.step).max(SHORTEST.0);
        if short || !worked(open) || open.writes || seconds > LONGEST {
            return;
        }
        let after = self.last.map(|last| to_f64(open.at_step.saturating_sub(last)));
        self.last = Some(open.at_step);
        if after.is_some_and(|after| after < LEAST_STEPS) {
            self.seen.clear();
            return;
        }
        push(&mut self.seen, Seen { seconds, after }, REMEMBERED);
    }

    /// Whether a pause is one more of those before it.
    fn is_like(&self, open: Pause, now: Nanos) -> bool {
        let lasts = now.saturating_sub(open.since).as_secs_f64();
        let longest = self.seen.iter().map(|seen| seen.seconds).fold(0.0, f64::max);
        let shortest = self.seen.iter().map(|seen| seen.seconds).fold(f64::INFINITY, f64::min);
        let after = self.last.map(|last| to_f64(open.at_step.saturating_sub(last)));
        let periods = self.seen.iter().filter_map(|seen| seen.after).chain(after);
        let (low, high) =
            periods.fold((f64::INFINITY, 0.0), |(low, high), after| (f64::min(low, after), f64::max(high, after)));
        self.seen.len() >= BEFORE
            && !open.writes
            && worked(open)
            && longest <= LENGTH * shortest
            && lasts <= (longest * OVER.0 + OVER.1).min(LONGEST)
            && low >= LEAST_STEPS
            && high - low <= high * PERIOD + ROUND
    }
}

fn worked(open: Pause) -> bool {
    f64::from(open.works) >= WORKS * f64::from(open.ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses of so many seconds after so many steps of one second; in which of them how many seconds are evaluation.
    fn recognised(pauses: &[(u64, u64, bool, bool)]) -> alloc::vec::Vec<u64> {
        let (mut evals, mut now, mut step) = (Evals::default(), 0_u64, 0_u64);
        let mut found = alloc::vec::Vec::new();
        for (steps, length, works, writes) in pauses {
            for _ in 0..*steps {
                (now, step) = (now + 1, step + 1);
                evals.step(Nanos::from_secs(now), None, Some(true), false);
            }
            let since = Nanos::from_secs(now);
            let mut on = 0;
            for second in 0..*length {
                now += 1;
                let pause = (second >= 2).then_some((since, step, 1.0));
                evals.step(Nanos::from_secs(now), pause, Some(*works), *writes);
                on += u64::from(evals.on());
            }
            found.push(on);
        }
        found
    }

    #[test]
    fn the_third_like_two_others_is_one_and_no_longer_than_they_allow() {
        let usual = (300, 60, true, false);
        assert_eq!(recognised(&[usual, usual, usual, usual]), [0, 0, 58, 58]);
        // One that does not end is none from a point on: a hang just where an evaluation was due.
        let hang = (300, 900, true, false);
        assert_eq!(recognised(&[usual, usual, hang]), [0, 0, 99]);
    }

    #[test]
    fn what_comes_at_another_step_rests_or_writes_is_none() {
        let usual = (300, 60, true, false);
        assert_eq!(recognised(&[usual, usual, (140, 60, true, false)])[2], 0, "another step");
        assert_eq!(recognised(&[usual, usual, (300, 60, false, false)])[2], 0, "the GPU rests");
        assert_eq!(recognised(&[usual, usual, (300, 60, true, true)])[2], 0, "a checkpoint");
        assert_eq!(recognised(&[usual, (300, 200, true, false), usual])[2], 0, "of another length");
        let slow = (1, 15, true, false);
        assert_eq!(recognised(&[slow; 20]), [0; 20], "slow steps");
        let written = (300, 60, true, true);
        assert_eq!(recognised(&[written, written, usual])[2], 0, "checkpoints teach nothing");
    }
}
