//! Exactly one state per unit per tick, and how its time is split.

use alloc::vec::Vec;

use crate::facts::Demand;
use crate::{Bucket, Cause, Class, Overhead, Part, State, Weight};

/// The split of a tick's length. The parts sum to one.
pub(crate) fn split(state: State, weight: Weight, class: Class, demand: Demand, pressure: Part) -> Vec<(Bucket, Part)> {
    let whole = |bucket| alloc::vec![(bucket, Part::ONE)];
    match state {
        State::Faulted(_) => whole(Bucket::Lost(Cause::Fault)),
        State::Unknown(reason) => whole(Bucket::Unknown(reason)),
        State::Unallocated => whole(Bucket::Unallocated),
        State::Loading(_) => whole(Bucket::Overhead(Overhead::Loading)),
        State::Stalled => whole(Bucket::Lost(Cause::Stall)),
        State::Squatted => whole(Bucket::Lost(Cause::Squat)),
        State::Throttled => with_cause(weight.w, Cause::Throttle, pressure),
        State::Starved(cause) => with_cause(weight.w, cause, pressure),
        State::Productive(_) | State::Headroom | State::Idle => {
            let rest = match (demand, class) {
                (Demand::Present { .. }, _) => Bucket::Lost(Cause::Unexplained),
                (Demand::Met, Class::Serving) => Bucket::Headroom,
                _ => Bucket::Idle,
            };
            parts([(Bucket::Productive, weight.w), (rest, weight.w.rest())])
        }
    }
}

/// A cause never carries more than its evidence; what is left stays unexplained.
fn with_cause(w: Part, cause: Cause, pressure: Part) -> Vec<(Bucket, Part)> {
    let lost = w.rest().min(pressure);
    let rest = Part(w.rest().0.saturating_sub(lost.0));
    parts([(Bucket::Productive, w), (Bucket::Lost(cause), lost), (Bucket::Lost(Cause::Unexplained), rest)])
}

fn parts<const N: usize>(parts: [(Bucket, Part); N]) -> Vec<(Bucket, Part)> {
    parts.into_iter().filter(|(_, part)| part.0 > 0).collect()
}
