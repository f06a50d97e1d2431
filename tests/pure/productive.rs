//! Productive seconds: what is booked against what the scenarios' authors say was done.

use std::path::Path;

use gpuprod::pipeline::Pipeline;
use gpuprod_rules::{Bucket, Policy, WeightSource};
use gpuprod_sim::Scenario;

/// Booked and true productive seconds of every stretch whose share the author knows, without any grace.
fn errors(scenario: &Scenario) -> (f64, f64) {
    let truths: Vec<_> = scenario.truth().into_iter().filter(|truth| truth.w.is_some()).collect();
    let (mut booked, mut true_) = (0.0, 0.0);
    let (mut begin, mut before) = (None, None);
    let mut pipeline = Pipeline::new(Policy::default());
    for tick in scenario.ticks() {
        let real = tick.stamp.realtime;
        let at = real.saturating_sub(*begin.get_or_insert(real));
        let length = real.saturating_sub(before.replace(real).unwrap_or(real)).as_secs_f64();
        let frame = pipeline.feed(&tick);
        for truth in truths.iter().filter(|truth| truth.from < at && at <= truth.to) {
            let unit = &frame.judgement.units[truth.unit];
            // The reference takes its first minutes; until then another source speaks.
            if unit.weight.source != WeightSource::Tokens {
                continue;
            }
            let part =
                unit.split.iter().find(|part| part.0 == Bucket::Productive).map_or(0.0, |part| part.1.as_fraction());
            booked += part * length;
            true_ += truth.w.unwrap_or(0.0) * length;
        }
    }
    (booked, true_)
}

#[test]
fn productive_seconds_by_tokens_are_right_to_three_percent() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios");
    let mut judged = 0;
    for (_, scenario) in &gpuprod_sim::load_all(&dir).unwrap() {
        let (booked, true_) = errors(scenario);
        if true_ < 60.0 {
            continue;
        }
        judged += 1;
        let error = booked / true_ - 1.0;
        println!("{:32} booked {booked:9.1} s, true {true_:9.1} s, {:+.2} %", scenario.name, error * 100.0);
        assert!(error.abs() <= 0.03, "{}: {:+.2} %", scenario.name, error * 100.0);
    }
    assert!(judged >= 8, "{judged} scenarios only know their productive share by tokens");
}
