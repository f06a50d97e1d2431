//! What a normal was learnt on goes with it: into the words of a finding, over a gap, and into the saved state.

use std::path::Path;

use gpuprod_rules::{Finding, Judge, Judgement, Policy, RuleId, Severity};
use gpuprod_snapshot::Tick;
use serde_json::Value;

fn ticks(scenario: &str) -> Vec<Tick> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/scenarios/{scenario}.scn"));
    gpuprod_sim::load(&path).unwrap().ticks().collect()
}

/// The judgements of all ticks from a minute on; the judge knows those of the first eight minutes, and was away since.
fn after_a_gap(ticks: &[Tick], minute: usize, saved: impl Fn(Value) -> Value) -> Vec<Judgement> {
    let mut judge = Judge::new(Policy::default());
    for tick in &ticks[..8 * 60] {
        judge.step(tick);
    }
    let saved: Judge = serde_json::from_value(saved(serde_json::to_value(&judge).unwrap())).unwrap();
    let mut resumed = saved.resume(&Policy::default(), &ticks[minute * 60]).unwrap();
    ticks[minute * 60 + 1..].iter().map(|tick| resumed.step(tick)).collect()
}

fn regression(judgement: &Judgement) -> Option<&Finding> {
    judgement.findings.iter().find(|finding| finding.rule == RuleId::ThroughputRegression)
}

fn says_the_driver(finding: &Finding) -> bool {
    let words = "(driver 570.148.08 before, 580.65.06 now)";
    finding.summary.contains(words) && finding.evidence.iter().any(|evidence| evidence.what.contains(words))
}

#[test]
fn a_driver_that_came_with_the_loss_is_named() {
    let mut judge = Judge::new(Policy::default());
    let last = ticks("engine_slower_driver").iter().map(|tick| judge.step(tick)).last().unwrap();
    let finding = regression(&last).unwrap();
    assert!(says_the_driver(finding), "{finding:?}");
    // Of a slower build on the same driver no driver is spoken of.
    let mut judge = Judge::new(Policy::default());
    let last = ticks("engine_slower_code").iter().map(|tick| judge.step(tick)).last().unwrap();
    assert!(!regression(&last).unwrap().summary.contains("driver"));
}

#[test]
fn an_update_while_the_agent_was_away_is_one_too() {
    let judged = after_a_gap(&ticks("engine_slower_driver"), 11, |saved| saved);
    let finding = judged.last().and_then(regression).unwrap();
    assert!(says_the_driver(finding), "{finding:?}");
}

#[test]
fn other_gpus_are_another_normal_after_a_gap_too() {
    let judged = after_a_gap(&ticks("engine_fewer_gpus"), 11, |saved| saved);
    let warned = |finding: &&Finding| finding.severity > Severity::Info;
    assert_eq!(judged.iter().flat_map(|judgement| &judgement.findings).find(warned), None);
    for judgement in judged.iter().skip(60) {
        let states: Vec<&str> = judgement.units.iter().map(|unit| unit.state.as_str()).collect();
        assert_eq!(states, ["productive", "productive", "unallocated", "unallocated"]);
    }
}

/// What was saved before there were fingerprints: a model, and nothing else.
fn older(mut saved: Value) -> Value {
    let engines = saved.pointer_mut("/signals/engines").and_then(Value::as_array_mut).unwrap();
    for engine in engines {
        let fields = engine.pointer_mut("/1").and_then(Value::as_object_mut).unwrap();
        assert_eq!(fields["model"], "example/vllm");
        for key in ["on", "process", "since", "learnt", "now", "proved", "confirmed", "rounds"] {
            fields.remove(key).unwrap();
        }
    }
    saved.pointer_mut("/suspect").and_then(Value::as_object_mut).unwrap().remove("hardware").unwrap();
    saved
}

#[test]
fn a_state_from_before_fingerprints_goes_on() {
    let ticks = ticks("engine_slower_driver");
    let judged = after_a_gap(&ticks, 9, older);
    // Its normal is there from the first seconds on: the loss is seen long before anything could be learnt.
    let slow = judged.iter().take(60).next_back().unwrap().units[0].weight.w.as_fraction();
    assert!(slow < 0.8, "{slow}");
}
