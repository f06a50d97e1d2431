//! Exactly one state per unit per tick, and how its time is split.

use alloc::vec::Vec;

use crate::facts::Demand;
use crate::merge::Share;
use crate::{Bucket, Cause, Class, Overhead, Part, Progress, State, Weight};

/// What the time without work is, when nothing else is known of it. Only demand that is met, or an owner's word, makes
/// it headroom; work that is there and not done is lost, whatever class anybody claims.
pub(crate) const fn rest(demand: Demand, class: Class, declared: bool) -> Bucket {
    match (demand, class) {
        (Demand::Present { .. }, _) => Bucket::Lost(Cause::Unexplained),
        (Demand::Met, Class::Serving) => Bucket::Headroom,
        (Demand::Unknown, Class::Serving) if declared => Bucket::Headroom,
        (Demand::Met | Demand::Unknown, _) => Bucket::Idle,
    }
}

/// The split of a tick's length. The parts sum to one.
pub(crate) fn split(state: State, weight: Weight, rest: Bucket, shares: &[Share<'_>]) -> Vec<(Bucket, Part)> {
    let whole = |bucket| alloc::vec![(bucket, Part::ONE)];
    match state {
        State::Faulted(_) => whole(Bucket::Lost(Cause::Fault)),
        State::Unknown(reason) => whole(Bucket::Unknown(reason)),
        State::Unallocated => whole(Bucket::Unallocated),
        State::Loading(_) => whole(Bucket::Overhead(Overhead::Loading)),
        State::Stalled => whole(Bucket::Lost(Cause::Stall)),
        State::Squatted => whole(Bucket::Lost(Cause::Squat)),
        State::Throttled | State::Starved(_) => lost(weight.w, shares),
        State::Productive(Progress::Checkpoint) => {
            parts([(Bucket::Productive, weight.w), (Bucket::Overhead(Overhead::Checkpoint), weight.w.rest())])
        }
        State::Productive(Progress::Eval) => {
            parts([(Bucket::Productive, weight.w), (Bucket::Overhead(Overhead::Eval), weight.w.rest())])
        }
        State::Productive(_) | State::Headroom | State::Idle => {
            parts([(Bucket::Productive, weight.w), (rest, weight.w.rest())])
        }
    }
}

/// Every confirmed cause carries at most what its evidence can, in rank order; what is left stays unexplained.
fn lost(w: Part, shares: &[Share<'_>]) -> Vec<(Bucket, Part)> {
    let mut rest = w.rest();
    let mut split = alloc::vec![(Bucket::Productive, w)];
    for share in shares {
        let carried = rest.min(share.pressure);
        rest = Part(rest.0.saturating_sub(carried.0));
        split.push((Bucket::Lost(share.cause), carried));
    }
    split.push((Bucket::Lost(Cause::Unexplained), rest));
    split.retain(|(_, part)| part.0 > 0);
    split
}

fn parts<const N: usize>(parts: [(Bucket, Part); N]) -> Vec<(Bucket, Part)> {
    parts.into_iter().filter(|(_, part)| part.0 > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(cause: Cause, part: u32) -> Share<'static> {
        Share { cause, object: "md0", pressure: Part(part) }
    }

    #[test]
    fn two_causes_carry_their_parts_and_never_more_than_was_lost() {
        let both = [share(Cause::Storage, 300_000), share(Cause::Throttle, 100_000)];
        let split = lost(Part(500_000), &both);
        let of = |cause| split.iter().find(|(bucket, _)| *bucket == Bucket::Lost(cause)).map(|(_, part)| part.0);
        assert_eq!(
            [of(Cause::Storage), of(Cause::Throttle), of(Cause::Unexplained)].map(Option::unwrap_or_default),
            [300_000, 100_000, 100_000]
        );
        let split = lost(Part(800_000), &both);
        assert_eq!(split, [(Bucket::Productive, Part(800_000)), (Bucket::Lost(Cause::Storage), Part(200_000))]);
    }

    #[test]
    fn an_inferred_class_never_makes_a_loss_smaller() {
        let present = Demand::Present { running: 1, waiting: 0 };
        for class in Class::ALL {
            assert_eq!(rest(present, *class, true), Bucket::Lost(Cause::Unexplained), "{class}");
        }
        assert_eq!(rest(Demand::Met, Class::Serving, false), Bucket::Headroom);
        assert_eq!(rest(Demand::Met, Class::Batch, true), Bucket::Idle, "batch is never headroom");
        assert_eq!(rest(Demand::Unknown, Class::Serving, true), Bucket::Headroom, "its owner says so");
        assert_eq!(rest(Demand::Unknown, Class::Serving, false), Bucket::Idle);
    }
}
