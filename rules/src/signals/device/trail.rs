//! The last readings of a GPU's clocks, and how many of them were held down: nearly always none, and then nothing need be
//! looked through.

use alloc::collections::VecDeque;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::Held;

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Moment {
    pub(super) at: Nanos,
    pub(super) held: Option<Held>,
    pub(super) clock: Option<f64>,
}

/// Readings, the newest last. Its saved form is the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "VecDeque<Moment>", into = "VecDeque<Moment>")]
pub(super) struct Trail {
    moments: VecDeque<Moment>,
    held: usize,
}

impl From<VecDeque<Moment>> for Trail {
    fn from(moments: VecDeque<Moment>) -> Self {
        let held = moments.iter().filter(|moment| moment.held.is_some()).count();
        Self { moments, held }
    }
}

impl From<Trail> for VecDeque<Moment> {
    fn from(trail: Trail) -> Self {
        trail.moments
    }
}

impl Trail {
    /// Appends a reading; those that are too old make room, and the oldest of so many.
    pub(super) fn push(&mut self, moment: Moment, most: usize, length: Nanos) {
        while self.moments.len() >= most || self.moments.front().is_some_and(|first| !first.within(moment.at, length)) {
            let first = self.moments.pop_front();
            self.held -= usize::from(first.is_some_and(|first| first.held.is_some()));
        }
        self.held += usize::from(moment.held.is_some());
        self.moments.push_back(moment);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Moment> {
        self.moments.iter()
    }

    /// Those in which the clocks were held down.
    pub(super) fn held(&self) -> impl Iterator<Item = &Moment> {
        let all = if self.held > 0 { self.moments.iter() } else { Default::default() };
        all.filter(|moment| moment.held.is_some())
    }
}

impl Moment {
    /// Whether it is younger than that.
    pub(super) fn within(&self, now: Nanos, length: Nanos) -> bool {
        now.saturating_sub(self.at) < length
    }
}
