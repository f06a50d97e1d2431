//! The last readings of a GPU's clocks, and how many of them were held down: nearly always none, and then nothing need be
//! looked through.

use alloc::collections::VecDeque;

use gpuprod_snapshot::units::{MegaHertz, Nanos};
use serde::{Deserialize, Serialize};

use super::Held;
use crate::baseline::room;
use crate::number::Slim;

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Moment {
    pub(super) at: Nanos,
    pub(super) held: Option<Held>,
    #[serde(with = "fraction")]
    clock: Slim,
}

/// A clock is whole megahertz; its saved form is that of a float.
mod fraction {
    use gpuprod_snapshot::units::from_f64;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Slim;

    pub(super) fn serialize<S: Serializer>(clock: &Slim, serializer: S) -> Result<S::Ok, S::Error> {
        clock.get().map(f64::from).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Slim, D::Error> {
        let clock = Option::<f64>::deserialize(deserializer)?.and_then(from_f64);
        Ok(clock.and_then(|clock| u32::try_from(clock).ok()).into())
    }
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
        room(&mut self.moments, most);
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
    pub(super) fn new(at: Nanos, held: Option<Held>, clock: Option<MegaHertz>) -> Self {
        Self { at, held, clock: clock.map(|clock| clock.0).into() }
    }

    /// The SM clock while it worked, MHz.
    pub(super) fn clock(&self) -> Option<f64> {
        self.clock.get().map(f64::from)
    }

    /// Whether it is younger than that.
    pub(super) fn within(&self, now: Nanos, length: Nanos) -> bool {
        now.saturating_sub(self.at) < length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_saved_as_a_float() {
        assert_eq!(size_of::<Moment>(), 16);
        let moment = Moment::new(Nanos(5), None, Some(MegaHertz(1980)));
        let saved = serde_json::to_string(&moment).unwrap();
        assert_eq!(saved, r#"{"at":5,"held":null,"clock":1980.0}"#);
        assert_eq!(serde_json::from_str::<Moment>(&saved).unwrap(), moment);
    }
}
