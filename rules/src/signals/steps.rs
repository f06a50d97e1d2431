//! A training job's own count of steps, against its own normal pace.
//!
//! Steps are rare: seconds to minutes lie between two of them. So the pace is taken over whole intervals between steps,
//! and between two steps the last pace goes on for as long as a step normally takes, and no longer. What a step brings is
//! booked when it is there: a stop shows after one normal step, and nothing is moved back in time.
//!
//! Time in which the job is known to do something else (a checkpoint, an evaluation) is no time of a step.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::baseline::{Deviation, Track, Worse};
use crate::fingerprint::Fingerprint;

/// The pace of fast steps looks back so far; that of slow ones over one step.
const TRAIL: Nanos = Nanos::from_secs(10);
/// Longer than so many steps like the last one (a normal one at least), and than `STILL`, without one is no slow step: the
/// job does not step. One that goes on completing steps, however long they take, is slow.
const STOPPED: f64 = 3.0;
/// A pause of more normal steps than this is none of them, however slow.
const SLOWEST: f64 = 12.0;
/// A job that pauses for shorter is not said to have stopped, however short its steps are.
const STILL: f64 = 5.0;
/// From so many normal steps on, and from `SHORTEST` on, it may do something else than stepping.
const PAUSES: f64 = 1.5;
const SHORTEST: f64 = 3.0;
/// Fewer steps than this are few.
const FEW: f64 = 4.0;
/// A job whose normal is not known steps while the last one is no older than this.
const UNKNOWN: f64 = 600.0;
/// A page may be so late: until then its pace goes on.
const LATE: Nanos = Nanos::from_secs(10);
/// Seconds of steps that make a block: when a step was done is known to the second between two pages, or to a step, and
/// that must be a hundredth of it, up to a point.
const BLOCK: (f64, f64) = (5.0, 30.0);
const SHARP: f64 = 100.0;
/// So many blocks at most may one step stand for, and several: a pace is not learnt from two steps.
const MOST_BLOCKS: (u32, u32) = (4, 6);
/// Work ahead that is kept for later: scatter of steps is no loss. In seconds, and in steps.
const CREDIT: (f64, f64) = (2.0, 0.25);
/// A longer tick has no verdict of its own.
const LONGEST: f64 = 10.0;
/// Marks that are kept: one per page and second of the trail.
const MOST_MARKS: usize = 128;

/// What was learnt of a training job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StepSignals {
    workload: Option<u64>,
    /// What the normal was learnt on. (Flat, so that what an older version has saved keeps its model.)
    #[serde(flatten)]
    pub(crate) print: Box<Fingerprint>,
    /// The last page, and the seconds since the one before.
    page: Nanos,
    gap: f64,
    count: Option<u64>,
    /// When the count was seen to move, on the clock that stands still in checkpoints and evaluations.
    marks: VecDeque<(Nanos, u64)>,
    /// When it last moved.
    moved: Option<Nanos>,
    /// Seconds per step between the last marks, the newest last.
    last: [Option<f64>; 2],
    /// Seconds of the step before this one, a stop in it included.
    took: Option<f64>,
    /// Time of checkpoints and evaluations so far.
    aside: Nanos,
    /// Steps per second.
    pace: Track,
    /// Steps and seconds that make no block yet.
    open: (f64, f64),
    /// Pace as a part of the normal.
    pub(crate) ratio: Track,
    upto: Option<Nanos>,
    /// Seconds of normal work that steps have brought, less those that are booked.
    balance: f64,
    w: Option<f64>,
}

impl Default for StepSignals {
    fn default() -> Self {
        Self {
            workload: None,
            print: Box::default(),
            page: Nanos(0),
            gap: 0.0,
            count: None,
            marks: VecDeque::new(),
            moved: None,
            last: [None; 2],
            took: None,
            aside: Nanos(0),
            pace: Track::new(Worse::Lower, 1.0),
            open: (0.0, 0.0),
            ratio: Track::new(Worse::Lower, super::ENOUGH_SECONDS),
            upto: None,
            balance: 0.0,
            w: None,
        }
    }
}

/// What the judgement of the tick before says of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lesson {
    /// Which workload it is, if that can be told.
    pub(crate) workload: Option<u64>,
    /// Nobody is blamed for anything, and it works.
    pub(crate) well: bool,
    /// It writes a checkpoint, or evaluates.
    pub(crate) aside: bool,
}

impl Lesson {
    /// The same of another unit of the job.
    pub(crate) const fn meet(&mut self, other: Self) {
        (self.well, self.aside) = (self.well && other.well, self.aside || other.aside);
    }
}

impl StepSignals {
    /// Another job, another model, or other GPUs: another normal.
    pub(super) fn renew(&mut self) {
        *self = Self { print: core::mem::take(&mut self.print), ..Self::default() };
    }

    /// Takes in a page.
    pub(crate) fn read(&mut self, page: &Engine, lesson: Lesson, policy: &Policy) {
        if lesson.workload.is_some() && self.workload.is_some() && lesson.workload != self.workload {
            self.renew();
        }
        self.workload = lesson.workload.or(self.workload);
        let Some(count) = page.steps.copied().filter(|_| page.at > self.page) else { return };
        self.gap = page.at.saturating_sub(self.page).as_secs_f64();
        self.page = page.at;
        let Some(before) = self.count.replace(count) else { return };
        if count < before {
            // It began anew: its normal stays, and what was under way is gone.
            self.forget();
            return;
        }
        if count > before {
            self.mark(page.at, count, lesson, policy);
        }
    }

    fn mark(&mut self, at: Nanos, count: u64, lesson: Lesson, policy: &Policy) {
        let work = at.saturating_sub(self.aside);
        let normal = self.normal(policy);
        let stopped = self.has_stopped(at, policy);
        if let Some((since, from)) = self.marks.back().copied() {
            let (steps, seconds) = (to_f64(count.saturating_sub(from)), work.saturating_sub(since).as_secs_f64());
            if let Some(normal) = normal {
                self.balance += steps / normal;
            }
            self.took = Some(seconds / steps);
            self.last = [self.last[1], (!stopped).then(|| seconds / steps)];
            if !stopped && seconds > 0.0 {
                self.learn((steps, seconds), at, lesson.well, policy);
            }
        }
        self.moved = Some(at);
        if stopped {
            // It goes on after a stop: its pace is that of the steps from now on.
            self.marks.clear();
        }
        self.marks.push_back((work, count));
        while self.marks.len() > MOST_MARKS
            || self.marks.get(1).is_some_and(|(second, _)| work.saturating_sub(*second) >= TRAIL)
        {
            self.marks.pop_front();
        }
    }

    fn learn(&mut self, (steps, seconds): (f64, f64), at: Nanos, well: bool, policy: &Policy) {
        self.open = (self.open.0 + steps, self.open.1 + seconds);
        let (steps, seconds) = self.open;
        if seconds < (SHARP * self.gap.min(seconds / steps)).clamp(BLOCK.0, BLOCK.1) {
            return;
        }
        self.open = (0.0, 0.0);
        for block in 0..if steps > 1.0 { MOST_BLOCKS.1 } else { MOST_BLOCKS.0 } {
            if f64::from(block) * BLOCK.0 < seconds {
                self.pace.add(steps, seconds);
                self.pace.close(at, well, policy);
            }
        }
        if self.pace.mature(policy) {
            self.ratio.seed(&self.pace);
        }
    }

    /// Settles the tick that ends now.
    pub(super) fn book(&mut self, now: Nanos, lesson: Lesson, policy: &Policy) {
        let length = self.upto.and_then(|upto| now.checked_sub(upto));
        self.upto = Some(now);
        self.w = None;
        let Some(length) = length.filter(|length| length.0 > 0) else { return };
        if lesson.aside {
            self.aside = self.aside.saturating_add(length);
        }
        let seconds = length.as_secs_f64();
        let (Some(normal), Some(progress), true) =
            (self.normal(policy), self.progress(now, policy), seconds <= LONGEST)
        else {
            self.balance = 0.0;
            return;
        };
        if lesson.aside {
            self.w = Some(0.0);
            return;
        }
        self.ratio.add(progress * seconds, seconds);
        let step = 1.0 / normal;
        let goes = self.closed(normal).unwrap_or(1.0).min(1.0);
        let since = self.marks.back().map_or(0.0, |(mark, _)| self.work(self.page).saturating_sub(*mark).as_secs_f64());
        let late = now.saturating_sub(self.page).as_secs_f64();
        let due = self.balance + (goes * since).min(step) + if since < step { goes * late } else { 0.0 };
        let w = (due / seconds).clamp(0.0, 1.0);
        // What is ahead of the booked beyond the credit is forgotten.
        let ahead = due - w * seconds - (CREDIT.0 + CREDIT.1 * step);
        self.balance -= w * seconds + ahead.max(0.0);
        self.w = Some(w);
    }

    /// Ends a block.
    pub(super) fn close(&mut self, start: Nanos, lesson: Lesson, policy: &Policy) {
        self.ratio.close(start, lesson.well && !lesson.aside, policy);
    }

    /// Ends a block of its fingerprint, after its own. Whether its normal is too old.
    pub(super) fn ages(&mut self, now: Nanos, lesson: Lesson) -> bool {
        self.print.close(now, self.ratio.latest().filter(|_| !lesson.aside).map(|_| lesson.well))
    }

    fn work(&self, at: Nanos) -> Nanos {
        at.saturating_sub(self.aside)
    }

    /// Steps per second that are normal.
    fn normal(&self, policy: &Policy) -> Option<f64> {
        self.pace.normal(policy).filter(|normal| *normal > 0.0)
    }

    /// Seconds of a normal step.
    pub(crate) fn step(&self, policy: &Policy) -> Option<f64> {
        self.normal(policy).map(|normal| 1.0 / normal)
    }

    /// Steps that were seen to be done lately, and their seconds.
    fn trail(&self) -> Option<(f64, f64)> {
        let ((from, first), (to, last)) = (self.marks.front()?, self.marks.back()?);
        let seconds = to.saturating_sub(*from).as_secs_f64();
        (seconds > 0.0).then(|| (to_f64(last.saturating_sub(*first)), seconds))
    }

    /// Pace of whole steps as a part of the normal.
    fn closed(&self, normal: f64) -> Option<f64> {
        self.trail().map(|(steps, seconds)| steps / seconds / normal)
    }

    fn is_few(&self) -> bool {
        self.trail().is_some_and(|(steps, _)| steps < FEW)
    }

    /// The same for verdicts: of steps so rare that one pause (a checkpoint, an evaluation that nobody knows yet) makes the
    /// last of them slow, the better of the last two counts.
    fn patient(&self, normal: f64) -> Option<f64> {
        let pace = self.closed(normal)?;
        let best = self.last.iter().flatten().map(|step| 1.0 / step / normal).fold(pace, f64::max);
        Some(if self.is_few() { best } else { pace })
    }

    /// Whether the step under way takes so much longer than the last and than a normal one that the job may be doing
    /// something else.
    pub(crate) fn is_late(&self, now: Nanos, policy: &Policy) -> bool {
        self.lasts(now, (PAUSES, SHORTEST), self.usual(policy))
    }

    /// Whether a page came lately.
    pub(crate) fn is_fresh(&self, now: Nanos) -> bool {
        self.count.is_some() && now.saturating_sub(self.page) < LATE
    }

    /// Seconds since it last stepped, on the clock of the wall.
    pub(crate) fn since(&self, now: Nanos) -> Option<f64> {
        self.moved.map(|moved| now.saturating_sub(moved).as_secs_f64())
    }

    fn has_stopped(&self, now: Nanos, policy: &Policy) -> bool {
        self.lasts(now, (STOPPED, STILL), self.usual(policy))
    }

    /// Seconds that a step takes now: as long as the last one, and a normal one at least.
    fn usual(&self, policy: &Policy) -> Option<f64> {
        self.step(policy).map(|step| self.took.map_or(step, |took| took.max(step)))
    }

    /// Whether no step came for so many of this length, and so many seconds.
    fn lasts(&self, now: Nanos, (steps, least): (f64, f64), step: Option<f64>) -> bool {
        self.since(now).zip(step).is_some_and(|(since, step)| since >= (steps * step).max(least))
    }

    /// Whether it has stepped once after a step so long that it looked like a stop: what its pace is now, the next one tells.
    pub(crate) fn resumes(&self, now: Nanos, policy: &Policy) -> bool {
        let slow = self.took.zip(self.step(policy)).is_some_and(|(took, step)| took <= SLOWEST * step);
        self.marks.len() == 1 && slow && !self.has_stopped(now, policy)
    }

    /// When it last stepped, how many steps it had, and the seconds of a normal one, once it may be doing something else.
    pub(crate) fn pause(&self, now: Nanos, policy: &Policy) -> Option<(Nanos, u64, f64)> {
        let pauses = self.is_fresh(now) && self.lasts(now, (PAUSES, SHORTEST), self.step(policy));
        Some((self.moved?, self.count?, self.step(policy).filter(|_| pauses)?))
    }

    /// Pace as a part of the normal: of whole steps, and no more than the step under way still allows. Nothing without a
    /// normal, without a step, or when the last page is too old.
    pub(crate) fn progress(&self, now: Nanos, policy: &Policy) -> Option<f64> {
        let normal = self.normal(policy).filter(|_| self.is_fresh(now))?;
        let ((first, from), (_, to)) = (self.marks.front()?, self.marks.back()?);
        if self.has_stopped(now, policy) {
            return Some(0.0);
        }
        let open = self.work(now).saturating_sub(self.marks.back()?.0).as_secs_f64();
        let seen = self.patient(normal);
        let (steps, seconds) = match seen {
            // The step under way follows the better of two.
            Some(best) if self.is_few() => (1.0, 1.0 / (best * normal)),
            _ => (to_f64(to.saturating_sub(*from)), self.marks.back()?.0.saturating_sub(*first).as_secs_f64()),
        };
        let most = (steps + 1.0) / normal / (seconds + open).max(f64::MIN_POSITIVE);
        Some(seen.unwrap_or(1.0).min(most))
    }

    /// Progress for verdicts: within twice the ordinary scatter it *is* the normal, and when a step was done is known to
    /// the second between two pages only.
    pub(crate) fn weight(&self, now: Nanos, policy: &Policy) -> Option<f64> {
        let progress = self.progress(now, policy)?;
        let blur = self.trail().map_or(0.0, |(steps, seconds)| self.gap.min(seconds / steps) / seconds);
        Some(if progress >= 1.0 - 2.0 * self.ratio.spread().max(0.02) - blur.min(0.1) { 1.0 } else { progress })
    }

    /// The productive part of the tick at hand, exact over time; nothing without a normal.
    pub(crate) const fn exact(&self) -> Option<f64> {
        self.w
    }

    /// Steps per second over the last ones; none while it does not step.
    pub(crate) fn rate(&self, now: Nanos, policy: &Policy) -> Option<f64> {
        self.count.filter(|_| self.is_fresh(now))?;
        let stands = match self.step(policy) {
            Some(_) => self.has_stopped(now, policy),
            None => self.since(now).is_none_or(|since| since >= UNKNOWN),
        };
        if stands {
            return Some(0.0);
        }
        let slow = || self.since(now).map(|since| 1.0 / since.max(1.0));
        self.trail().map(|(steps, seconds)| steps / seconds).or_else(slow)
    }

    /// What the last block says, once there is a normal.
    pub(crate) fn deviation(&self, policy: &Policy) -> Option<Deviation> {
        self.normal(policy)?;
        self.ratio.deviation(policy)
    }

    /// Healthy blocks that were learnt from.
    pub(crate) fn blocks(&self) -> u32 {
        self.pace.blocks()
    }

    fn forget(&mut self) {
        self.marks.clear();
        (self.moved, self.open, self.balance, self.w) = (None, (0.0, 0.0), 0.0, None);
        (self.last, self.took) = ([None; 2], None);
    }

    /// Keeps the own normal and drops the present.
    pub(super) fn rest(&mut self) {
        self.forget();
        (self.page, self.count, self.upto, self.aside) = (Nanos(0), None, None, Nanos(0));
        self.pace.rest();
        self.ratio.rest();
        self.print.rest();
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
