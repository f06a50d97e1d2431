//! Overloaded engines under the public conversation trace: the queue is found, and its kind is named.

use gpuprod::pipeline::{Frame, Pipeline};
use gpuprod_rules::{Declared, KvBytes, KvSource, Policy, RuleId, Severity};
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

/// How bursty requests are, against figures that were computed from the traces themselves: the busiest minute of a hundred
/// has 1.5 (chat) and 3.8 (code) times the mean.
#[test]
fn bursts_of_the_azure_traces_are_those_of_the_traces() {
    for (trace, published) in [("azure_conv", 1.5), ("azure_code", 3.8)] {
        let text = format!("scenario burst\nlength 55m\ngpu 1\nengine e gpus 0 traffic {trace} kv 400000 power 500W");
        let scenario = Scenario::parse(&text).unwrap();
        let mut pipeline = Pipeline::default();
        let mut last = None;
        for tick in scenario.ticks() {
            last = pipeline.feed(&tick).judgement.serving.first().cloned();
        }
        let engine = last.unwrap();
        println!("{trace}: {:.2} times the mean (published {published})", engine.burst.as_f64());
        assert!(engine.burst_learnt && (engine.burst.as_f64() / published - 1.0).abs() < 0.15, "{engine:?}");
    }
}

fn is_tight(frame: &Frame<'_>) -> bool {
    let mut findings = frame.judgement.findings.iter();
    findings.any(|finding| finding.rule == RuleId::HeadroomBreach && finding.variant.as_deref() == Some("burst"))
}

/// Twice the requests of the code trace, whose busiest minutes have nearly four times the mean: no room for its own bursts.
#[test]
fn an_engine_without_room_for_its_own_bursts_is_told() {
    let tight = |text: &str| {
        let mut pipeline = Pipeline::default();
        Scenario::parse(text).unwrap().ticks().any(|tick| is_tight(&pipeline.feed(&tick)))
    };
    assert!(tight(
        "scenario burst\nlength 55m\ngpu 1\nengine e gpus 0 traffic azure_code scale 2 kv 300000 power 500W"
    ));
    assert!(!tight("scenario calm\nlength 55m\ngpu 1\nengine e gpus 0 traffic azure_conv kv 300000 power 500W"));
}

/// The capacity that is learnt is what the simulated engine does at its limit, and half of the requests are half of the load.
#[test]
fn an_engine_that_was_at_its_limit_has_a_capacity_and_its_room_is_known() {
    // Two thousand tokens a second at its limit for three minutes, then a load of forty in a hundred.
    let text = "scenario room\nlength 12m\nnoise 1%\ngpu 2\n\
                engine e gpus 0-1 rate 2000tok/s prompt 5000tok/s hits 20% running 32 waiting 3 kv 80% power 500W \
                mem 64GiB\n\
                at 4m set e rate 800tok/s prompt 2000tok/s running 12 waiting 0 kv 30%\n\
                at 8m set e rate 1700tok/s prompt 4250tok/s running 27 waiting 0 kv 70%";
    let mut pipeline = Pipeline::default();
    let mut seen = Vec::new();
    for (second, tick) in Scenario::parse(text).unwrap().ticks().enumerate() {
        let frame = pipeline.feed(&tick);
        if [470, 700].contains(&second) {
            // How bursty others' requests are is no evidence against this engine.
            seen.push((frame.judgement.serving.first().cloned().unwrap(), is_tight(&frame)));
        }
    }
    let near = |value: Option<gpuprod_rules::Micro>, want: f64| {
        assert!(value.is_some_and(|value| (value.as_f64() / want - 1.0).abs() < 0.06), "{value:?} is not {want}");
    };
    let [(calm, false), (busy, false)] = &seen[..] else { panic!("{seen:#?}") };
    near(calm.decode, 2000.0);
    near(calm.prefill, 4000.0);
    near(calm.load, 0.4);
    // Prior burst 1.5: two GPUs, four tenths of them, and half of that again.
    near(calm.gpus_decode, 1.2);
    near(calm.gpus_kv, 0.9);
    // 30 % of 524,288 slots over twelve requests.
    near(calm.kv_tokens, 13_107.0);
    near(calm.kv_requests, 40.0);
    // Of the two boards' 64 GiB each, 256 KiB a slot at most.
    let size = calm.kv_size.unwrap();
    assert_eq!(size.source, KvSource::AtMost);
    near(Some(size.bytes), 13_107.0 * 262_144.0);
    // Six tenths are free, and a burst takes two.
    near(calm.headroom, 3.0);
    near(busy.load, 0.85);
    assert!(busy.headroom.unwrap().as_f64() < 1.0, "{:?}", busy.headroom);
    // What the operator says of the model counts, and of another model nothing.
    let declared = |model: &str| {
        let line = KvBytes { model: model.to_owned(), per_token: 131_072 };
        let declared = Declared { kv_bytes: vec![line], ..Declared::default() };
        let mut pipeline = Pipeline::new(Policy { declared, ..Policy::default() });
        let ticks: Vec<_> = Scenario::parse(text).unwrap().ticks().take(300).collect();
        let frames = ticks.iter().map(|tick| pipeline.feed(tick).judgement.serving.first().and_then(|e| e.kv_size));
        frames.last().flatten().unwrap()
    };
    let size = declared("*");
    assert_eq!(size.source, KvSource::Declared);
    near(Some(size.bytes), 13_107.0 * 131_072.0);
    assert_eq!(declared("another").source, KvSource::AtMost);
}
