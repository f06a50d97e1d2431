//! What the screen shows: the newest frame, a short memory for rates and histories, and where the eye is.

use std::collections::{BTreeMap, VecDeque};

use gpuprod_rules::{Finding, State, UnitId, VitalKind};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Stamp, Tick};

use crate::http;
use crate::pipeline::Frame;

/// Ticks of history that a unit keeps: ten minutes at 1 Hz.
const TRAIL: usize = 600;
/// Units whose history is kept: a node has at most 16 GPUs of 7 instances.
const UNITS: usize = 256;

/// Where frames come from, in the header's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A running agent, and its address.
    Agent(String),
    /// This process samples the host itself.
    Own,
    /// A recording, by name.
    Recording(String),
}

/// Where a recording stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Playing {
    /// Played so far, gaps shortened.
    pub position: Nanos,
    /// Its length, once known.
    pub length: Option<Nanos>,
    /// Recorded seconds per second.
    pub speed: u32,
    /// It catches up with a jump.
    pub seeking: bool,
    /// Nothing is left.
    pub ended: bool,
}

/// The parts of the screen that scroll on their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The units.
    #[default]
    Gpus,
    /// Software RAID.
    Arrays,
    /// Disks.
    Drives,
    /// Engines.
    Engines,
    /// Pressure, and what hangs.
    Host,
    /// What the rules found.
    Findings,
}

impl Section {
    /// All of them, in the order of the screen.
    pub const ALL: [Self; 6] = [Self::Gpus, Self::Arrays, Self::Drives, Self::Engines, Self::Host, Self::Findings];

    /// Place in [`Section::ALL`].
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

/// What lies over the sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    #[default]
    Nothing,
    /// The keys.
    Help,
    /// The evidence of the selected finding.
    Evidence,
}

/// Everything that [`super::draw::draw`] needs.
#[derive(Debug, Default)]
pub struct View {
    /// The newest frame; none before the first.
    pub frame: Option<Frame<'static>>,
    /// What was known one frame before: rates are differences.
    pub before: Option<Tick>,
    /// The host's name.
    pub host: String,
    /// Where frames come from.
    pub origin: Option<Origin>,
    /// Of a recording.
    pub playing: Option<Playing>,
    /// The screen is held still.
    pub paused: bool,
    /// This process's clock when the newest frame came, and now.
    pub came: Nanos,
    /// This process's clock.
    pub now: Stamp,
    /// What went wrong on the way, in one line.
    pub trouble: Option<String>,
    /// w per unit, newest last; none where nothing can be said.
    pub trail: BTreeMap<UnitId, VecDeque<Option<u32>>>,
    /// Which section the arrows move.
    pub focus: Section,
    /// First line shown, per section.
    pub scroll: [usize; 6],
    /// Which finding is selected.
    pub selected: usize,
    /// What lies over the sections.
    pub over: Over,
    /// First line shown of what lies over them.
    pub over_scroll: usize,
    /// Colours may be used.
    pub colour: bool,
    /// Only ASCII may be used.
    pub ascii: bool,
}

impl View {
    /// Remembers what a frame says of each unit, whether the frame is shown or not.
    pub fn note(&mut self, frame: &Frame<'_>) {
        for unit in &frame.judgement.units {
            let known = !matches!(unit.state, State::Unknown(_));
            let w = known.then_some(unit.weight.w.0);
            if self.trail.len() < UNITS || self.trail.contains_key(&unit.unit) {
                let trail = self.trail.entry(unit.unit.clone()).or_default();
                trail.push_back(w);
                if trail.len() > TRAIL {
                    trail.pop_front();
                }
            }
        }
    }

    /// Shows a frame; false when it is the one that is shown already.
    pub fn show(&mut self, frame: Frame<'static>) -> bool {
        if self.frame.as_ref().is_some_and(|old| old.known.stamp == frame.known.stamp) {
            return false;
        }
        self.came = self.now.boottime;
        self.before = self.frame.take().map(|old| old.known.into_owned());
        self.frame = Some(frame);
        self.selected = self.selected.min(self.findings().len().saturating_sub(1));
        true
    }

    /// Forgets what came before: a recording begins anew.
    pub fn forget(&mut self) {
        self.trail.clear();
        self.before = None;
    }

    /// The findings of the newest frame.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.frame.as_ref().map_or(&[], |frame| &frame.judgement.findings)
    }

    /// How old the newest frame is, when it is too old to be called live.
    #[must_use]
    pub fn stale(&self) -> Option<Nanos> {
        let frame = self.frame.as_ref()?;
        if matches!(self.origin, Some(Origin::Recording(_))) {
            return None;
        }
        let stamp = &frame.known.stamp;
        let here = stamp.boot_id == self.now.boot_id && !stamp.boot_id.0.is_empty();
        // Another machine's clock tells nothing: then its age counts from when it came.
        let then = if here { stamp.boottime } else { self.came };
        let age = self.now.boottime.saturating_sub(then);
        (age > http::limit(frame.known.period)).then_some(age)
    }

    /// One of the judge's vitals: its value, its own normal, and how many blocks were learnt.
    #[must_use]
    pub fn vital(&self, what: VitalKind, of: &str) -> Option<(Option<f64>, Option<f64>, u32)> {
        let vitals = &self.frame.as_ref()?.judgement.vitals;
        let vital = vitals.iter().find(|vital| vital.what == what && vital.of == of)?;
        let float = |micro: gpuprod_rules::Micro| super::words::float(micro);
        Some((vital.value.map(float), vital.normal.map(float), vital.n))
    }
}
