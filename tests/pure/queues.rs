//! Overloaded engines under the public conversation trace: the queue is found, and its kind is named.

use gpuprod::pipeline::Pipeline;
use gpuprod_rules::{Policy, RuleId, Severity};
use gpuprod_sim::Scenario;
use gpuprod_snapshot::units::Nanos;

/// A quarter of an hour of the trace on a cache of so many tokens: when the queue was found, and every kind it was given.
fn play(kv: u32, retries: &str) -> (Option<usize>, Vec<String>) {
    let text = format!(
        "scenario queue\nlength 15m\ngpu 1\nengine e gpus 0 traffic azure_conv kv {kv} {retries} power 500W\nseed 1"
    );
    let scenario = Scenario::parse(&text).unwrap();
    let mut pipeline = Pipeline::default();
    let (mut found, mut kinds) = (None, Vec::new());
    for (second, tick) in scenario.ticks().enumerate() {
        let frame = pipeline.feed(&tick);
        for finding in frame.judgement.findings.iter().filter(|finding| finding.rule == RuleId::QueueInstability) {
            found = found.or(Some(second));
            let kind = finding.variant.clone().unwrap_or_default();
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    (found, kinds)
}

/// With patient clients the queue grows in a straight line, with clients that ask again after 30 s it accelerates. At 60,000
/// tokens the engine is at the edge of its capacity: told, not scored.
#[test]
fn queues_of_the_azure_trace_are_found_and_named() {
    for kv in [25_000, 40_000, 60_000] {
        for (retries, accelerates) in [("", false), ("retries 30s", true)] {
            let (found, kinds) = play(kv, retries);
            println!("K={kv} {retries:<12} found after {found:?} s, {kinds:?}");
            if kv == 60_000 {
                continue;
            }
            assert!(found.is_some(), "K={kv} {retries}: nobody saw the queue");
            let named = kinds.iter().any(|kind| kind == "accelerating" || kind == "mrqi");
            assert_eq!(named, accelerates, "K={kv} {retries}: {kinds:?}");
        }
    }
}

/// A promise is broken by a ramp that the engine has no room for, and kept before; without one nobody is blamed.
#[test]
fn a_broken_promise_is_a_finding_and_a_kept_one_is_none() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios");
    let scenario = gpuprod_sim::load(&dir.join("engine_morning_ramp.scn")).unwrap();
    let mut policy = Policy::default();
    policy.latency_class_violation.ttft_slo_ns = Nanos::from_secs(2);
    for (policy, promised) in [(policy, true), (Policy::default(), false)] {
        let mut pipeline = Pipeline::new(policy);
        let mut first = None;
        for (second, tick) in scenario.ticks().enumerate() {
            let frame = pipeline.feed(&tick);
            for finding in &frame.judgement.findings {
                let speaks = |rule| finding.rule == rule || finding.also.contains(&rule);
                if finding.severity > Severity::Info && speaks(RuleId::LatencyClassViolation) {
                    first = first.or(Some(second));
                }
            }
        }
        println!("promised {promised}: broken after {first:?} s");
        assert_eq!(first.is_some(), promised);
        assert!(first.is_none_or(|second| second > 480), "the ramp begins at 8 minutes, not {first:?}");
    }
}
