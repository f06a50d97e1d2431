//! Growth and its kind, on queues whose answer is known.

use alloc::collections::VecDeque;

use gpuprod_snapshot::units::Nanos;

use super::{EngineLoad, Second, trend};
use crate::{Part, Policy};

/// A queue, second by second; eight requests finish in each.
fn queue(waiting: impl Fn(u32) -> u32) -> VecDeque<Second> {
    let second = |at: u32| Second {
        at: Nanos::from_secs(u64::from(at)),
        running: 20,
        waiting: waiting(at),
        finished: 8,
        ..Second::default()
    };
    (0..120).map(second).collect()
}

fn of(waiting: impl Fn(u32) -> u32) -> trend::Trend {
    trend::of(&queue(waiting), &Policy::default()).unwrap()
}

#[test]
fn a_straight_queue_is_certain_exact_and_does_not_accelerate() {
    let trend = of(|at| at * 2);
    assert_eq!((trend.slope, trend.halves), (2_000_000, (2_000_000, 2_000_000)));
    assert!(trend.certain && !trend.accelerates);
    assert_eq!((trend.began, trend.growth), (0, 238));
}

#[test]
fn a_queue_that_doubles_every_twenty_seconds_accelerates() {
    let trend = of(|at| {
        let doublings = at / 20;
        (1 << doublings) * (20 + at % 20)
    });
    assert!(trend.certain && trend.accelerates, "{trend:?}");
    assert!(trend.halves.1 > 2 * trend.halves.0);
}

/// S of 0, 0, 1, 1, ... is far from chance; S of a sawtooth is not.
#[test]
fn ties_and_waves_are_no_growth() {
    assert!(!of(|at| 5 + at % 7).certain);
    assert!(!of(|_| 9).certain);
    assert!(of(|at| at / 30).certain, "four steps of thirty equal values each");
    let falls = of(|at| 300 - 2 * at);
    assert_eq!((falls.slope, falls.certain), (-2_000_000, false));
}

#[test]
fn too_little_says_nothing() {
    let few: VecDeque<Second> = queue(|at| at).into_iter().take(60).collect();
    assert_eq!(trend::of(&few, &Policy::default()), None);
    assert_eq!(trend::of(&VecDeque::new(), &Policy::default()), None);
}

#[test]
fn shares_and_rates_are_of_the_last_stretch() {
    let load = EngineLoad { seconds: queue(|at| u32::from(at >= 90)), ..EngineLoad::default() };
    assert_eq!(load.share(Nanos::from_secs(60), |second| second.waiting > 0), Some(Part(500_000)));
    assert_eq!(load.share(Nanos::from_secs(600), |_| true), None, "less than half of it was seen");
    assert_eq!(load.drain(), Some(Nanos(122_916_667)), "1 request at 480 in 59 s");
}
