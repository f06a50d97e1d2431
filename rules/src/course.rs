//! Short series, kept in as little as they need.

use alloc::collections::VecDeque;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::baseline::push;

/// The last values of a signal, block by block; none where a block told nothing. Eight bytes each, where an option takes
/// sixteen: a number that no arithmetic makes stands for "none". Its saved form is the list of options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course(VecDeque<f64>);

/// The bits that stand for none: not a number, and none that arithmetic gives.
const NONE: u64 = 0x7ff8_0000_6e6f_6e65;

impl Course {
    /// Appends to a ring of this capacity.
    pub(crate) fn push(&mut self, value: Option<f64>, capacity: usize) {
        push(&mut self.0, value.unwrap_or(f64::from_bits(NONE)), capacity);
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Option<f64>> + '_ {
        self.0.iter().map(|value| told(*value))
    }

    pub(crate) fn last(&self) -> Option<f64> {
        self.0.back().copied().and_then(told)
    }

    /// So many blocks ago; zero is the last one.
    pub(crate) fn ago(&self, blocks: usize) -> Option<f64> {
        self.0.len().checked_sub(blocks.checked_add(1)?).and_then(|at| self.0.get(at).copied()).and_then(told)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = VecDeque::new();
    }
}

fn told(value: f64) -> Option<f64> {
    (value.to_bits() != NONE).then_some(value)
}

impl FromIterator<Option<f64>> for Course {
    fn from_iter<I: IntoIterator<Item = Option<f64>>>(values: I) -> Self {
        Self(values.into_iter().map(|value| value.unwrap_or(f64::from_bits(NONE))).collect())
    }
}

impl PartialEq for Course {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Serialize for Course {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Course {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values: VecDeque<Option<f64>> = VecDeque::deserialize(deserializer)?;
        Ok(values.into_iter().collect())
    }
}

/// Values that wait until they are admitted, at most so many. Its saved form is the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probation<const MOST: usize> {
    values: [f64; MOST],
    count: u8,
}

impl<const MOST: usize> Default for Probation<MOST> {
    fn default() -> Self {
        Self { values: [0.0; MOST], count: 0 }
    }
}

impl<const MOST: usize> Probation<MOST> {
    /// Appends a value; gives back the oldest one when all places are taken.
    pub(crate) fn push(&mut self, value: f64) -> Option<f64> {
        if let Some(place) = self.values.get_mut(usize::from(self.count)) {
            *place = value;
            self.count = self.count.saturating_add(1);
            return None;
        }
        self.values.rotate_left(1);
        Some(core::mem::replace(self.values.last_mut()?, value))
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().copied().take(usize::from(self.count))
    }
}

impl<const MOST: usize> PartialEq for Probation<MOST> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<const MOST: usize> Serialize for Probation<MOST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, const MOST: usize> Deserialize<'de> for Probation<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values: VecDeque<f64> = VecDeque::deserialize(deserializer)?;
        let mut probation = Self::default();
        for value in values {
            probation.push(value);
        }
        Ok(probation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_saved_as_a_list_of_options() {
        let mut course = Course::default();
        for value in [Some(1.5), None, Some(-0.0), Some(3.0)] {
            course.push(value, 3);
        }
        assert_eq!(course.iter().collect::<VecDeque<_>>(), [None, Some(-0.0), Some(3.0)]);
        assert_eq!([0, 1, 2, 3].map(|blocks| course.ago(blocks)), [Some(3.0), Some(-0.0), None, None]);
        let saved = serde_json::to_string(&course).unwrap();
        assert_eq!(saved, "[null,-0.0,3.0]");
        assert_eq!(serde_json::from_str::<Course>(&saved).unwrap(), course);
    }

    #[test]
    fn a_value_is_admitted_when_as_many_came_after_it() {
        let mut probation = Probation::<2>::default();
        assert_eq!([1.0, 2.0, 3.0, 4.0].map(|value| probation.push(value)), [None, None, Some(1.0), Some(2.0)]);
        let saved = serde_json::to_string(&probation).unwrap();
        assert_eq!(saved, "[3.0,4.0]");
        assert_eq!(serde_json::from_str::<Probation<2>>(&saved).unwrap(), probation);
        probation.clear();
        assert_eq!(probation.push(5.0), None);
    }
}
