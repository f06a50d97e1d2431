use alloc::vec::Vec;

use super::*;

fn at(block: u64) -> Nanos {
    Nanos::from_secs(block * 5)
}

fn fed(track: &mut Track, blocks: core::ops::Range<u64>, value: f64) {
    for block in blocks {
        // A little spread, so that the MAD is not the floor: +-1 % in turn.
        let value = value * if block % 2 == 0 { 1.01 } else { 0.99 };
        track.add(value * 5.0, 5.0);
        track.close(at(block), true, &Policy::default());
    }
}

#[test]
fn a_halved_rate_alarms_within_five_blocks_and_knows_its_onset() {
    let mut track = Track::new(Worse::Lower, 2.0);
    fed(&mut track, 0..40, 1000.0);
    assert!(!track.deviation(&Policy::default()).is_some_and(|deviation| deviation.alarm));
    fed(&mut track, 40..45, 500.0);
    let deviation = track.deviation(&Policy::default()).unwrap();
    assert!(deviation.alarm);
    assert_eq!(deviation.onset, Some(at(40)));
    assert!((deviation.normal - 1000.0).abs() < 11.0, "the baseline is frozen: {}", deviation.normal);
}

#[test]
fn the_beginning_of_a_slow_course_lies_before_its_first_block() {
    let policy = Policy::default();
    let second = |seconds| Some(Nanos::from_secs(seconds));
    // A tenth of a spread a second from block 40 on: it is out of the noise after half a minute.
    let mut track = Track::new(Worse::Lower, 2.0);
    fed(&mut track, 0..40, 1000.0);
    let spread = track.spread();
    for block in 40..60 {
        let seconds = gpuprod_snapshot::units::to_f64((block - 40) * 5);
        track.add((1000.0 - spread * seconds / 10.0) * 5.0, 5.0);
        track.close(at(block), true, &policy);
    }
    let deviation = track.deviation(&policy).unwrap();
    assert!(deviation.onset >= second(220), "{deviation:?}");
    assert!((second(200)..=second(210)).contains(&deviation.began()), "{deviation:?}");
    // An edge began when it began, and so does one after noise that had even alarmed.
    let mut track = Track::new(Worse::Lower, 2.0);
    fed(&mut track, 0..40, 1000.0);
    for block in 40..46 {
        track.add(1000.0 * 5.0 - 4.0 * spread * 5.0, 5.0);
        track.close(at(block), true, &policy);
    }
    assert_eq!(track.deviation(&policy).unwrap().began(), second(200));
    assert!(track.deviation(&policy).unwrap().alarm);
    fed(&mut track, 46..50, 500.0);
    assert_eq!(track.deviation(&policy).unwrap().began(), second(230));
}

#[test]
fn an_improvement_never_alarms() {
    let mut track = Track::new(Worse::Lower, 2.0);
    fed(&mut track, 0..40, 1000.0);
    fed(&mut track, 40..60, 1500.0);
    assert!(!track.deviation(&Policy::default()).is_some_and(|deviation| deviation.alarm));
}

#[test]
fn three_normal_blocks_end_the_episode() {
    let mut track = Track::new(Worse::Higher, 2.0);
    fed(&mut track, 0..40, 2.0);
    fed(&mut track, 40..60, 10.0);
    assert!(track.deviation(&Policy::default()).unwrap().alarm);
    fed(&mut track, 60..63, 2.0);
    let deviation = track.deviation(&Policy::default()).unwrap();
    assert!(!deviation.alarm);
    assert_eq!(deviation.onset, None);
}

#[test]
fn a_young_track_says_nothing() {
    let mut track = Track::new(Worse::Lower, 2.0);
    fed(&mut track, 0..24, 1000.0);
    assert_eq!(track.deviation(&Policy::default()), None, "20 blocks admitted, 4 on probation");
}

#[test]
fn the_median_is_the_middle_of_the_sorted_values() {
    let mut state = 7_u64;
    for length in 0..40 {
        let mut values: Vec<f64> = Vec::new();
        for _ in 0..length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Many equals, and both signs of zero.
            values.push([-1.5, -0.0, 0.0, 2.0, 7.25][usize::try_from(state >> 33).unwrap() % 5]);
        }
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let wanted = match length {
            0 => 0.0,
            length if length % 2 == 1 => sorted[length / 2],
            length => (sorted[length / 2 - 1] + sorted[length / 2]) / 2.0,
        };
        assert_eq!(median(&mut values).to_bits(), wanted.to_bits(), "{sorted:?}");
    }
}
