//! A training job whose steps get slower: the slower they are, the more is lost and the plainer it is told.

use gpuprod::pipeline::Pipeline;
use gpuprod_rules::{Bucket, Policy, RuleId};
use gpuprod_sim::Scenario;

/// Of the last six minutes of ten, in which every step takes `1 / pace` times as long: seconds with the finding, and
/// productive seconds that were booked.
fn slowed(step: u32, pace: f64) -> (u32, f64) {
    let text = format!(
        "scenario slowed\nseed 5\nlength 20m\ngpu 1\n\
         job train gpus 0 step {step}s util 95% power 640W mem 70GB\nfault at 10m slow train to {pace} for 10m\n"
    );
    let scenario = Scenario::parse(&text).unwrap();
    let mut pipeline = Pipeline::new(Policy::default());
    let (mut ticks, mut told, mut booked) = (scenario.ticks(), 0, 0.0);
    while let Some(tick) = ticks.next() {
        let frame = pipeline.feed(&tick);
        if ticks.second() < 14 * 60 {
            continue;
        }
        told += u32::from(frame.judgement.findings.iter().any(|finding| finding.rule == RuleId::BusyButStarved));
        let split = &frame.judgement.units[0].split;
        booked += split.iter().find(|part| part.0 == Bucket::Productive).map_or(0.0, |part| part.1.as_fraction());
    }
    (told, booked)
}

#[test]
fn the_slower_the_steps_the_more_is_lost_and_told() {
    for step in [1, 2, 5, 12] {
        let mut before = (0, 360.0);
        for pace in [0.9, 0.7, 0.5, 0.35, 0.3, 0.2, 0.1] {
            let (told, booked) = slowed(step, pace);
            println!("steps of {step} s at {pace}: told in {told} s of 360, {booked:.1} s booked as productive");
            assert!(
                told >= before.0,
                "steps of {step} s at {pace}: told in {told} s, with less trouble in {}",
                before.0
            );
            assert!(booked <= before.1, "steps of {step} s at {pace}: {booked} s, with less trouble {}", before.1);
            // What one step more or less brings is a normal step.
            let right = 360.0 * pace;
            assert!(
                (booked - right).abs() <= f64::from(step) + 18.0,
                "steps of {step} s at {pace}: {booked}, not {right}"
            );
            assert!(told >= 355 || pace > 0.8, "steps of {step} s at {pace}: told in {told} s");
            before = (told, booked);
        }
    }
}
