//! A ring of values and their order, so that median and median absolute deviation cost a walk and no sorting.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::baseline::room;

/// Values that a ring keeps: ten minutes of blocks. Places fit into a byte.
const KEPT: usize = 120;

/// Values in the order in which they came, and their places by value. Half of what a node is watched for never moves (no
/// quota, no steal, no wait, one clock): as long as all values are the same, one is kept. Its saved form is the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    values: VecDeque<f64>,
    /// Places by value; of a ring that was read back from the disk they are made when they are first needed.
    places: Vec<u8>,
    /// So many times the one value is there; zero: each stands for itself.
    same: u8,
}

/// How the values are kept does not matter.
impl PartialEq for Ring {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Serialize for Ring {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Ring {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        VecDeque::deserialize(deserializer).map(Self::of)
    }
}

impl FromIterator<f64> for Ring {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self::of(values.into_iter().collect())
    }
}

impl Ring {
    fn of(mut values: VecDeque<f64>) -> Self {
        let mut same = 0;
        if let (Some(first), Ok(count)) = (values.front().copied(), u8::try_from(values.len()))
            && values.iter().all(|value| value.to_bits() == first.to_bits())
        {
            (values, same) = (VecDeque::from([first]), count);
        }
        values.shrink_to_fit();
        Self { values, places: Vec::new(), same }
    }

    pub(crate) fn len(&self) -> usize {
        if self.same > 0 { usize::from(self.same) } else { self.values.len() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().copied().cycle().take(self.len())
    }

    /// Appends a value; the oldest one makes room.
    pub(crate) fn push(&mut self, value: f64) {
        match self.values.front() {
            None => self.same = 1,
            Some(only) if self.same > 0 && only.to_bits() == value.to_bits() => {
                self.same = self.same.saturating_add(u8::from(self.len() < KEPT));
                return;
            }
            Some(_) if self.same > 0 => {
                self.values = self.iter().collect();
                self.same = 0;
            }
            Some(_) => {}
        }
        if self.same > 0 {
            self.values = VecDeque::from([value]);
            return;
        }
        self.sort();
        if self.values.len() >= KEPT {
            self.values.pop_front();
            self.places.retain(|place| *place > 0);
            self.places.iter_mut().for_each(|place| *place = place.saturating_sub(1));
        }
        let Ok(place) = u8::try_from(self.values.len()) else { return };
        let values = &self.values;
        let above = self.places.partition_point(|other| at(values, *other).total_cmp(&value).is_lt());
        room(&mut self.values, KEPT);
        self.values.push_back(value);
        if self.places.len() == self.places.capacity() {
            self.places.reserve_exact(self.places.len().clamp(8, KEPT.saturating_sub(self.places.len()).max(8)));
        }
        self.places.insert(above, place);
    }

    /// Makes the places, where there are none yet.
    fn sort(&mut self) {
        if self.places.len() != self.values.len() {
            let values = &self.values;
            self.places = (0..values.len()).filter_map(|place| u8::try_from(place).ok()).collect();
            self.places.sort_unstable_by(|a, b| at(values, *a).total_cmp(&at(values, *b)));
        }
    }

    /// The value that so many others are not above.
    pub(crate) fn nth(&self, below: usize) -> Option<f64> {
        if self.same > 0 {
            return self.values.front().copied().filter(|_| below < self.len());
        }
        self.places.get(below).map(|place| at(&self.values, *place))
    }

    /// The largest value.
    pub(crate) fn highest(&self) -> Option<f64> {
        let ordered = self.same > 0 || self.places.len() == self.values.len();
        let last = self.len().checked_sub(1).filter(|_| ordered);
        last.and_then(|last| self.nth(last)).or_else(|| self.iter().reduce(f64::max))
    }

    /// The median and the median distance from it (of an even number: the mean of the two in the middle); zeros of nothing.
    pub(crate) fn middle(&mut self) -> (f64, f64) {
        if self.same == 0 {
            self.sort();
        }
        let count = self.len();
        let half = count / 2;
        let value = |place: usize| self.nth(place);
        let Some(high) = value(half) else { return (0.0, 0.0) };
        let even = count.is_multiple_of(2);
        let median = value(half.wrapping_sub(1)).filter(|_| even).map_or(high, |low| (low + high) / 2.0);
        // Distances grow away from the middle on both sides, so the nearest so many values are some that stand just below it
        // and some that stand just above: how many of each is looked for by halving.
        let distance = |place: usize| value(place).map(|value| libm::fabs(value - median));
        let below = |nth: usize| half.checked_sub(nth)?.checked_sub(1).and_then(distance);
        let above = |nth: usize| distance(half.checked_add(nth)?);
        let nearest = half.saturating_add(1);
        let (mut least, mut most) = (nearest.saturating_sub(count.saturating_sub(half)), half);
        while least < most {
            let down = usize::midpoint(least, most);
            if below(down) <= above(nearest.saturating_sub(down).saturating_sub(1)) {
                least = down.saturating_add(1);
            } else {
                most = down;
            }
        }
        // The farthest of them, and the one before it.
        let last = |count: usize, side: &dyn Fn(usize) -> Option<f64>| side(count.checked_sub(1)?);
        let mut farthest = [
            last(least, &below),
            last(least.saturating_sub(1), &below),
            last(nearest.saturating_sub(least), &above),
            last(nearest.saturating_sub(least).saturating_sub(1), &above),
        ];
        farthest.sort_unstable_by(|a, b| b.partial_cmp(a).unwrap_or(core::cmp::Ordering::Equal));
        let [last, before, ..] = farthest.map(|distance| distance.unwrap_or(0.0));
        (median, if even { (before + last) / 2.0 } else { last })
    }
}

fn at(values: &VecDeque<f64>, place: u8) -> f64 {
    values.get(usize::from(place)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::median;

    #[test]
    fn the_middle_is_that_of_the_sorted_values_while_old_ones_make_room() {
        let (mut ring, mut state) = (Ring::default(), 7_u64);
        for step in 0..400_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = f64::from(u32::try_from(state >> 40).unwrap());
            // Equals and both signs of zero too.
            let value = if step % 3 == 0 {
                [-1.5, -0.0, 0.0, 2.0, 1e12][usize::try_from(state >> 33).unwrap() % 5]
            } else {
                value
            };
            ring.push(value);
            let mut values: Vec<f64> = ring.iter().collect();
            let wanted = median(&mut values);
            let mut distances: Vec<f64> = values.iter().map(|value| libm::fabs(value - wanted)).collect();
            let (found, distance) = ring.middle();
            assert_eq!(
                (found.to_bits(), distance.to_bits()),
                (wanted.to_bits(), median(&mut distances).to_bits()),
                "{step}"
            );
        }
        assert_eq!(ring.len(), KEPT);
        assert_eq!(Ring::default().middle(), (0.0, 0.0));
    }
}
