//! A ring of values and their order, so that median and median absolute deviation cost a walk and no sorting.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::baseline::room;

/// Values that a ring keeps: ten minutes of blocks. Places fit into a byte.
const KEPT: usize = 120;

/// Places of a ring's values, by value. Whoever changes the ring goes through here; a ring that was read back from the disk
/// is put in order when it is first used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order(Vec<u8>);

/// It follows from the ring: two equal rings are equal.
impl PartialEq for Order {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Order {
    pub(crate) fn of(ring: &VecDeque<f64>) -> Self {
        let mut places: Vec<u8> = (0..ring.len()).filter_map(|place| u8::try_from(place).ok()).collect();
        places.sort_unstable_by(|a, b| at(ring, *a).total_cmp(&at(ring, *b)));
        Self(places)
    }

    /// Appends a value; the oldest one makes room.
    pub(crate) fn push(&mut self, ring: &mut VecDeque<f64>, value: f64) {
        if self.0.len() != ring.len() {
            *self = Self::of(ring);
        }
        if ring.len() >= KEPT {
            ring.pop_front();
            self.0.retain(|place| *place > 0);
            self.0.iter_mut().for_each(|place| *place = place.saturating_sub(1));
        }
        let Ok(place) = u8::try_from(ring.len()) else { return };
        let above = self.0.partition_point(|other| at(ring, *other).total_cmp(&value).is_lt());
        room(ring, KEPT);
        ring.push_back(value);
        self.0.insert(above, place);
    }

    /// The value that so many others are not above.
    pub(crate) fn nth(&self, ring: &VecDeque<f64>, below: usize) -> Option<f64> {
        self.0.get(below).map(|place| at(ring, *place))
    }

    /// The largest value, where the ring was put in order.
    pub(crate) fn highest(&self, ring: &VecDeque<f64>) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        if self.0.len() == ring.len() { self.nth(ring, last) } else { None }
    }

    /// The median and the median distance from it (of an even number: the mean of the two in the middle); zeros of nothing.
    pub(crate) fn middle(&self, ring: &VecDeque<f64>) -> (f64, f64) {
        let half = self.0.len() / 2;
        let value = |place: usize| self.0.get(place).map(|place| at(ring, *place));
        let Some(high) = value(half) else { return (0.0, 0.0) };
        let even = self.0.len().is_multiple_of(2);
        let median = value(half.wrapping_sub(1)).filter(|_| even).map_or(high, |low| (low + high) / 2.0);
        // Distances grow away from the middle on both sides, so the nearest so many values are some that stand just below it
        // and some that stand just above: how many of each is looked for by halving.
        let distance = |place: usize| value(place).map(|value| libm::fabs(value - median));
        let below = |nth: usize| half.checked_sub(nth)?.checked_sub(1).and_then(distance);
        let above = |nth: usize| distance(half.checked_add(nth)?);
        let nearest = half.saturating_add(1);
        let (mut least, mut most) = (nearest.saturating_sub(self.0.len().saturating_sub(half)), half);
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

fn at(ring: &VecDeque<f64>, place: u8) -> f64 {
    ring.get(usize::from(place)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::median;

    #[test]
    fn the_middle_is_that_of_the_sorted_values_while_old_ones_make_room() {
        let (mut ring, mut order, mut state) = (VecDeque::new(), Order::default(), 7_u64);
        for step in 0..400_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = f64::from(u32::try_from(state >> 40).unwrap());
            // Equals and both signs of zero too.
            let value = if step % 3 == 0 {
                [-1.5, -0.0, 0.0, 2.0, 1e12][usize::try_from(state >> 33).unwrap() % 5]
            } else {
                value
            };
            order.push(&mut ring, value);
            let mut values: Vec<f64> = ring.iter().copied().collect();
            let wanted = median(&mut values);
            let mut distances: Vec<f64> = values.iter().map(|value| libm::fabs(value - wanted)).collect();
            let (found, distance) = order.middle(&ring);
            assert_eq!(
                (found.to_bits(), distance.to_bits()),
                (wanted.to_bits(), median(&mut distances).to_bits()),
                "{step}"
            );
        }
        assert_eq!(ring.len(), KEPT);
        assert_eq!(Order::default().middle(&VecDeque::new()), (0.0, 0.0));
    }
}
