//! Overloaded engines under public traces: the queue is found, and its kind is named.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use gpuprod::pipeline::{Frame, Pipeline};
use gpuprod_rules::{Declared, KvBytes, KvSource, Policy, RuleId, Severity};
use gpuprod_sim::Scenario;
use gpuprod_snapshot::units::{Nanos, to_f64};

/// What the simulated engine itself knows of a quarter of an hour: its own counts and its own work, no rule.
#[derive(Debug)]
struct Truth {
    longest: f64,
    /// In the last five minutes more requests came than it could finish, by a tenth.
    grows: bool,
    /// In some minute twice as many came as without clients that ask again.
    feeds_itself: bool,
    /// Largest part of a minute with a full cache (.95, or a preemption), while requests waited in most of it.
    full: f64,
    /// Largest part of a minute's computed tokens that was computed before.
    again: f64,
    /// Most requests that were preempted in a minute.
    preempted: f64,
}

fn scenario(traffic: &str) -> Scenario {
    let text = format!("scenario queue\nlength 15m\ngpu 1\nengine e gpus 0 traffic {traffic} power 500W\nseed 1");
    Scenario::parse(&text).unwrap()
}

/// What the simulated engine counts and shows at the end of a second.
struct Second {
    came: f64,
    finished: f64,
    waiting: f64,
    preempted: f64,
    kv: f64,
    computed: f64,
    again: f64,
}

fn seconds(traffic: &str) -> Vec<Second> {
    let scenario = scenario(traffic);
    let mut ticks = scenario.ticks();
    let mut rows = Vec::new();
    while let Some(tick) = ticks.next() {
        let engine = tick.engine.unwrap().value.get().unwrap().engines[0].clone();
        let count = |reading: gpuprod_snapshot::Reading<u64>| to_f64(reading.copied().unwrap());
        let (finished, waiting) = (count(engine.requests_success), count(engine.waiting));
        let work = ticks.computed("e").unwrap();
        rows.push(Second {
            came: finished + waiting + count(engine.running),
            finished,
            waiting,
            preempted: count(engine.preemptions),
            kv: engine.kv_usage.copied().unwrap().as_fraction(),
            computed: work.all,
            again: work.again,
        });
    }
    rows
}

fn grown(rows: &[Second], of: fn(&Second) -> f64) -> f64 {
    of(rows.last().unwrap()) - of(&rows[0])
}

/// Part of the seconds of a minute for which something holds; each beside the one before.
fn share(minute: &[Second], holds: impl Fn(&Second, &Second) -> bool) -> f64 {
    minute.windows(2).filter(|pair| holds(&pair[0], &pair[1])).count() as f64 / (minute.len() - 1) as f64
}

impl Truth {
    fn of(trace: &str, retries: &str) -> Self {
        let (rows, patient) = (seconds(&format!("{trace} {retries}")), seconds(trace));
        let minutes = || rows.windows(61);
        let largest = |of: &dyn Fn(&[Second]) -> f64| minutes().map(of).fold(0.0, f64::max);
        let end = &rows[rows.len() - 300..];
        let waits = |minute: &[Second]| share(minute, |_, row| row.waiting > 0.0) >= 0.5;
        // Nobody is preempted while there is room.
        let full = |minute: &[Second]| share(minute, |last, row| row.kv >= 0.95 || row.preempted > last.preempted);
        Self {
            longest: largest(&|minute| minute[60].waiting),
            grows: grown(end, |row| row.came) > 1.1 * grown(end, |row| row.finished) && end[299].waiting >= 100.0,
            feeds_itself: minutes().zip(patient.windows(61)).any(|(minute, patient)| {
                grown(minute, |row| row.came) >= 2.0 * grown(patient, |row| row.came).max(1.0)
            }),
            full: largest(&|minute| if waits(minute) { full(minute) } else { 0.0 }),
            again: largest(&|minute| grown(minute, |row| row.again) / grown(minute, |row| row.computed).max(1.0)),
            preempted: largest(&|minute| grown(minute, |row| row.preempted)),
        }
    }
}

/// What was said in that quarter of an hour, at any severity.
#[derive(Debug, Default)]
struct Said {
    queue: Option<usize>,
    kinds: Vec<String>,
    full: Option<usize>,
    thrash: Option<usize>,
}

fn said(traffic: &str) -> Said {
    let scenario = scenario(traffic);
    let mut pipeline = Pipeline::default();
    let mut said = Said::default();
    for (second, tick) in scenario.ticks().enumerate() {
        for finding in &pipeline.feed(&tick).judgement.findings {
            let speaks = |rule| finding.rule == rule || finding.also.contains(&rule);
            for (rule, first) in [
                (RuleId::QueueInstability, &mut said.queue),
                (RuleId::KvSaturation, &mut said.full),
                (RuleId::PreemptionThrash, &mut said.thrash),
            ] {
                *first = first.or(speaks(rule).then_some(second));
            }
            let kind = finding.variant.clone().unwrap_or_default();
            if finding.rule == RuleId::QueueInstability && !said.kinds.contains(&kind) {
                said.kinds.push(kind);
            }
        }
    }
    said
}

/// One row of the table in docs/validation.md: what is true, what was said, and that they agree. Where the truth stands at
/// an edge (a queue of 5 to 100, a cache full for .55 to .65 of a minute, .05 to .15 computed twice or 3 to 12 preempted in a
/// minute) it is told, not scored. One long context that is preempted is computed twice, and is no thrash.
fn agree(trace: &str, retries: &str) {
    let (truth, said) = (Truth::of(trace, retries), said(&format!("{trace} {retries}")));
    let row = format!("{trace} {retries}");
    println!(
        "{row:<42} queue {:>6.0}{}{} full {:.2} again {:.3} preempted {} | {said:?}",
        truth.longest,
        if truth.grows { " grows" } else { "" },
        if truth.feeds_itself { " feeds itself" } else { "" },
        truth.full,
        truth.again,
        truth.preempted
    );
    let scored = |what: &str, sure: bool, never: bool, found: bool| {
        assert!(!sure || found, "{row}: nobody saw {what}: {truth:?}, {said:?}");
        assert!(!never || !found, "{row}: {what} was seen: {truth:?}, {said:?}");
    };
    scored("a queue that grows", truth.grows, truth.longest <= 5.0, said.queue.is_some());
    let accelerates = said.kinds.iter().any(|kind| kind == "accelerating" || kind == "mrqi");
    scored("a queue that feeds itself", truth.grows && truth.feeds_itself, !truth.feeds_itself, accelerates);
    scored("a full cache", truth.full >= 0.65, truth.full < 0.55, said.full.is_some());
    let thrash = (truth.again >= 0.15 && truth.preempted >= 12.0, truth.again < 0.05 || truth.preempted < 3.0);
    scored("work that is done twice", thrash.0, thrash.1, said.thrash.is_some());
}

/// With patient clients the queue grows in a straight line, with clients that ask again after 30 s it accelerates.
#[test]
fn queues_of_the_azure_trace_are_found_and_named() {
    for kv in [25_000, 40_000, 200_000] {
        for retries in ["", "retries 30s"] {
            agree(&format!("azure_conv kv {kv}"), retries);
        }
    }
}

/// The same under long contexts with reused prefixes, from several places of the trace.
#[test]
fn queues_of_the_mooncake_trace_are_found_and_named() {
    for from in ["0s", "3m"] {
        for (scale, kv) in [(1, 100_000), (1, 400_000), (2, 200_000), (2, 800_000)] {
            for retries in ["", "retries 30s"] {
                agree(&format!("mooncake scale {scale} kv {kv} from {from}"), retries);
            }
        }
    }
    // Long prompts that are mostly known and are computed in full after a preemption, and an engine with room.
    agree("mooncake scale 2 kv 400000 hits 90%", "");
    agree("mooncake scale 0.1 kv 400000", "retries 30s");
}

/// The trace that the simulator carries is the beginning of the public one, and that is the one that its publisher has:
/// requests, tokens, blocks, and how many of them an endless prefix cache would have.
#[test]
fn the_mooncake_trace_is_the_public_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/datasets/mooncake");
    if !path.is_dir() {
        println!("skipped: no public data in {} (see docs/validation.md)", path.display());
        return;
    }
    let packed = std::fs::read(path.join("conversation_trace.jsonl.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let carried = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/sim/traces/mooncake.csv.zst");
    let carried = zstd::decode_all(std::fs::read(carried).unwrap().as_slice()).unwrap();
    let carried: Vec<String> = String::from_utf8(carried).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(carried.len(), 3_658);
    let (mut seen, mut last) = (BTreeSet::new(), 0);
    let (mut input, mut output, mut blocks, mut reused) = (0, 0, 0, 0);
    for (at, line) in text.lines().enumerate() {
        let request: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| request[name].as_u64().unwrap();
        let ids: Vec<u64> = request["hash_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        let known = ids.iter().take_while(|id| seen.contains(*id)).count() as u64 * 512;
        reused += ids.iter().filter(|id| seen.contains(*id)).count();
        blocks += ids.len();
        seen.extend(ids);
        let (after, prompt) = (number("timestamp") - last, number("input_length"));
        last = number("timestamp");
        (input, output) = (input + prompt, output + number("output_length"));
        if let Some(carried) = carried.get(at) {
            // The last token of a prompt is always computed.
            let row = format!("{after},{prompt},{},{}", number("output_length"), known.min(prompt - 1));
            assert_eq!(*carried, row, "request {at}");
        }
    }
    assert_eq!((text.lines().count(), last), (12_031, 3_536_999));
    assert_eq!((input, output, blocks, seen.len(), reused), (144_793_823, 4_122_048, 288_500, 182_790, 105_710));
}

/// A promise is broken by a ramp that the engine has no room for, and kept before; without one nobody is blamed.
#[test]
fn a_broken_promise_is_a_finding_and_a_kept_one_is_none() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios");
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
