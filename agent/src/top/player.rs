//! Plays ticks that were written down: a recording, the store's history, the demo. Each goes through the one
//! pipeline; a jump back begins anew and goes on, unseen, to where it was asked to.

use anyhow::Result;
use gpuprod_rules::{Policy, RuleId, Severity};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Stamp, Tick};

use super::view::Playing;
use crate::clock::boottime;
use crate::pipeline::{Frame, Pipeline};

/// Ticks in order; each may fail to be read.
pub type Ticks = Box<dyn Iterator<Item = Result<Tick>>>;

/// Longest step in playing: nobody waits through an hour in which the agent was down.
const GAP: Nanos = Nanos::from_secs(5);
/// Longest work of one [`Player::advance`]: keys are answered in between.
const SLICE: Nanos = Nanos::from_millis(60);
/// Recorded seconds per second while the beginning is played fast.
const FAST: u32 = 60;
/// Largest speed.
const FASTEST: u32 = 256;

/// Ticks that can be opened again and again.
pub struct Player {
    open: Box<dyn Fn() -> Result<Ticks>>,
    policy: Policy,
    ticks: Ticks,
    pipeline: Pipeline,
    /// The tick that is due next, and its place in the time of playing.
    next: Option<(Tick, Nanos)>,
    /// Stamp and place of the tick that was fetched last: the next one's place follows from it.
    fetched: Option<(Stamp, Nanos)>,
    /// The place of the tick that was fed last.
    position: Nanos,
    /// How far playing is.
    cursor: Nanos,
    /// This process's clock when `cursor` was moved last.
    moved: Nanos,
    speed: u32,
    /// Everything before this place is played fast: baselines are being learnt.
    fast_until: Nanos,
    /// On its way to the first tick that is not before this instant of the wall clock.
    skip_to: Nanos,
    /// On its way to a finding that is not among these.
    hunting: Option<Vec<Key>>,
    standing: Vec<Key>,
    length: Option<Nanos>,
}

/// What tells one finding from another.
type Key = (RuleId, String, Nanos);

impl Player {
    /// From the beginning, with what is before `fast_until` played fast.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn new(
        open: impl Fn() -> Result<Ticks> + 'static,
        policy: Policy,
        speed: u32,
        fast_until: Nanos,
    ) -> Result<Self> {
        let ticks = open()?;
        let mut player = Self {
            open: Box::new(open),
            pipeline: Pipeline::new(policy.clone()),
            policy,
            ticks,
            next: None,
            fetched: None,
            position: Nanos(0),
            cursor: Nanos(0),
            moved: boottime(),
            speed,
            fast_until,
            skip_to: Nanos(0),
            hunting: None,
            standing: Vec::new(),
            length: None,
        };
        player.fetch()?;
        Ok(player)
    }

    /// Where it stands.
    #[must_use]
    pub fn playing(&self) -> Playing {
        Playing {
            position: self.position,
            length: self.length,
            speed: self.speed_now(),
            seeking: self.hunting.is_some() || self.is_behind(),
            ended: self.next.is_none(),
        }
    }

    /// Feeds what is due, for a short while, and gives the frame of the last tick that was fed; `each` sees them all.
    ///
    /// # Errors
    /// When the recording is damaged.
    pub fn advance(&mut self, paused: bool, mut each: impl FnMut(&Frame<'_>)) -> Result<Option<Frame<'static>>> {
        let begun = boottime();
        let elapsed = begun.saturating_sub(self.moved).min(Nanos::from_secs(1));
        self.moved = begun;
        // What was slept or sought through is not caught up with afterwards.
        if !paused && self.hunting.is_none() && !self.is_behind() {
            let step = elapsed.0.saturating_mul(u64::from(self.speed_now()));
            self.cursor = self.cursor.saturating_add(Nanos(step));
        }
        let mut shown = None;
        while self.hunting.is_some() || self.is_behind() {
            let Some((tick, place)) = self.next.take() else { break };
            self.fetch()?;
            self.position = place;
            let frame = self.pipeline.feed(&tick);
            each(&frame);
            self.standing = keys(&frame);
            if self.hunting.as_ref().is_some_and(|old| self.standing.iter().any(|key| !old.contains(key))) {
                self.hunting = None;
                self.cursor = place;
            }
            let due = self.next.as_ref().is_some_and(|(tick, next)| {
                self.hunting.is_some() || *next <= self.cursor || tick.stamp.realtime < self.skip_to
            });
            if !due || boottime().saturating_sub(begun) > SLICE {
                shown = Some(frame.to_owned());
                break;
            }
        }
        if self.skip_to > Nanos(0) && !self.is_behind() {
            self.skip_to = Nanos(0);
            self.cursor = self.cursor.max(self.position);
        }
        if self.next.is_none() {
            self.hunting = None;
            self.length = Some(self.position);
            self.cursor = self.position;
        }
        Ok(shown)
    }

    /// Begins at an instant of the wall clock; what comes before is fed, and not shown.
    #[must_use]
    pub fn from(mut self, realtime: Nanos) -> Self {
        self.skip_to = realtime;
        self
    }

    /// Twice or half as fast.
    pub fn faster(&mut self, faster: bool) {
        let speed = self.speed_now();
        self.fast_until = Nanos(0);
        self.speed = if faster { (speed * 2).min(FASTEST) } else { (speed / 2).max(1) };
    }

    /// Jumps on.
    pub fn on(&mut self, by: Nanos) {
        self.hunting = None;
        self.cursor = self.position.saturating_add(by);
    }

    /// Jumps back: begins anew, and goes on to there as fast as it can.
    ///
    /// # Errors
    /// When it cannot be opened again.
    pub fn back(&mut self, by: Nanos) -> Result<()> {
        self.ticks = (self.open)()?;
        self.pipeline = Pipeline::new(self.policy.clone());
        self.cursor = self.position.saturating_sub(by);
        self.position = Nanos(0);
        (self.next, self.fetched, self.hunting, self.skip_to) = (None, None, None, Nanos(0));
        self.standing.clear();
        self.fetch()
    }

    /// Goes on to the next finding that does not stand yet.
    pub fn hunt(&mut self) {
        self.hunting = Some(self.standing.clone());
    }

    fn speed_now(&self) -> u32 {
        if self.position < self.fast_until { FAST } else { self.speed }
    }

    fn is_behind(&self) -> bool {
        self.next.as_ref().is_some_and(|(tick, place)| *place <= self.cursor || tick.stamp.realtime < self.skip_to)
    }

    fn fetch(&mut self) -> Result<()> {
        let Some(tick) = self.ticks.next().transpose()? else {
            self.next = None;
            return Ok(());
        };
        let place = self
            .fetched
            .as_ref()
            .map_or(Nanos(0), |(stamp, place)| place.saturating_add(between(stamp, &tick.stamp).min(GAP)));
        self.fetched = Some((tick.stamp.clone(), place));
        self.next = Some((tick, place));
        Ok(())
    }
}

/// Time between two ticks: by the boot clock, across a reboot by the wall clock.
fn between(old: &Stamp, new: &Stamp) -> Nanos {
    if old.boot_id == new.boot_id {
        new.boottime.saturating_sub(old.boottime)
    } else {
        new.realtime.saturating_sub(old.realtime)
    }
}

fn keys(frame: &Frame<'_>) -> Vec<Key> {
    let blaming = frame.judgement.findings.iter().filter(|finding| finding.severity > Severity::Info);
    blaming.map(|finding| (finding.rule, finding.subject.clone(), finding.since)).collect()
}
