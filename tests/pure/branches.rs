//! Words of rules that no scenario file can ask for: information, which blames nobody, and nodes whose readings lack what
//! a rule needs.

use std::sync::Arc;

use gpuprod::pipeline::Pipeline;
use gpuprod_rules::{Finding, Judgement, Policy, RuleId as R, RuleStatus, Severity};
use gpuprod_sim::Scenario;
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Missing, Reading, Tick};

/// Every judgement of a scenario whose ticks are changed before they are judged.
fn judged(text: &str, policy: &Policy, mut change: impl FnMut(u64, &mut Tick)) -> Vec<Judgement> {
    let scenario = Scenario::parse(text).unwrap();
    let mut pipeline = Pipeline::new(policy.clone());
    let ticks = (0..).zip(scenario.ticks());
    ticks
        .map(|(second, mut tick)| {
            change(second, &mut tick);
            pipeline.feed(&tick).judgement.into_owned()
        })
        .collect()
}

/// In which seconds a rule says so, and the first finding of them.
fn said(all: &[Judgement], rule: R, variant: &str) -> (Vec<usize>, Option<Finding>) {
    let is = |finding: &&Finding| finding.rule == rule && finding.variant.as_deref() == Some(variant);
    let found: Vec<_> =
        all.iter().enumerate().filter_map(|(at, one)| Some((at, one.findings.iter().find(is)?))).collect();
    (found.iter().map(|(at, _)| *at).collect(), found.first().map(|(_, finding)| (*finding).clone()))
}

fn status(judgement: &Judgement, rule: R) -> &RuleStatus {
    &judgement.rules.iter().find(|report| report.rule == rule).unwrap().status
}

fn after(minutes: u64) -> Policy {
    let mut policy = Policy::default();
    policy.headroom_breach.over_reserved_ns = Nanos::from_secs(60 * minutes);
    policy
}

/// A day by default; five minutes here.
#[test]
fn an_engine_that_nobody_asks_is_over_reserved_after_its_time_and_nobody_is_paged() {
    let text = "scenario spare\nseed 3\nlength 8m\ngpu 1\n\
                engine spare gpus 0 rate 0tok/s prompt 0tok/s running 0 waiting 0 kv 0% util 0% power 120W\n";
    let (seconds, found) = said(&judged(text, &after(5), |_, _| {}), R::HeadroomBreach, "over_reserved");
    let found = found.unwrap();
    assert!((300..310).contains(&seconds[0]) && seconds.len() > 160, "{seconds:?}");
    assert_eq!(found.severity, Severity::Info);
    assert!(found.summary.starts_with("ready, and not asked for"), "{}", found.summary);
    assert_eq!(found.evidence[0].what, "time without a request");
    let by_default = judged(text, &Policy::default(), |_, _| {});
    assert_eq!(said(&by_default, R::HeadroomBreach, "over_reserved").1, None);
}

/// It was at its limit for three minutes, so that its capacity is known, and does a tenth of that ever after.
#[test]
fn an_engine_with_far_more_room_than_its_bursts_take_is_over_reserved_too() {
    let text = |later: &str| {
        format!(
            "scenario roomy\nseed 4\nlength 16m\ngpu 1\n\
             engine vllm gpus 0 rate 1200tok/s prompt 3000tok/s running 16 waiting 8\n\
             at 3m set vllm {later}\n"
        )
    };
    let roomy = text("rate 120tok/s prompt 300tok/s running 2 waiting 0 util 12% power 200W");
    let (seconds, found) = said(&judged(&roomy, &after(5), |_, _| {}), R::HeadroomBreach, "over_reserved");
    let found = found.unwrap();
    assert!(seconds[0] > 480 && seconds[0] < 600, "{seconds:?}");
    assert_eq!(found.severity, Severity::Info);
    assert!(found.summary.starts_with("more than twice the room that its bursts take"), "{}", found.summary);
    // Half of its capacity is what a burst of its own size may take: no surplus.
    let used = text("rate 720tok/s prompt 1800tok/s running 10 waiting 0 util 60% power 350W");
    assert_eq!(said(&judged(&used, &after(5), |_, _| {}), R::HeadroomBreach, "over_reserved").1, None);
}

/// Tokens come as ever out of a silicon that rests: one of the two is wrong, and nobody can tell which.
#[test]
fn tokens_without_any_work_of_the_silicon_are_a_conflict_and_no_verdict() {
    let text = "scenario conflict\nseed 5\nlength 15m\ngpu 1\nengine vllm gpus 0 rate 1200tok/s running 16 waiting 4\n\
                at 8m set vllm work 0%\nat 12m set vllm work 84%\n";
    let all = judged(text, &Policy::default(), |_, _| {});
    let (seconds, found) = said(&all, R::TelemetryDegraded, "provenance_conflict");
    let found = found.unwrap();
    assert!((540..570).contains(&seconds[0]) && seconds.contains(&700), "{seconds:?}");
    assert!(*seconds.last().unwrap() < 12 * 60 + 90, "{seconds:?}");
    assert_eq!((found.severity, found.subject.as_str()), (Severity::Info, "GPU-0"));
    assert!(found.summary.contains("engine's tokens"), "{}", found.summary);
    let loud = all.iter().flat_map(|one| &one.findings).find(|finding| finding.severity > Severity::Info);
    assert_eq!(loud, None, "information wakes nobody");
}

/// Pages that answer and do not say how many requests run and wait: the rules about load say that they are blind.
#[test]
fn a_page_without_a_count_of_requests_is_unsupported_and_not_well() {
    let text = "scenario uncounted\nseed 6\nlength 4m\ngpu 1\nengine vllm gpus 0 rate 1200tok/s running 16 waiting 4\n";
    let rules = [
        R::EngineStall,
        R::QueueInstability,
        R::KvSaturation,
        R::PreemptionThrash,
        R::LatencyClassViolation,
        R::HeadroomBreach,
        R::ThroughputRegression,
    ];
    let blind = judged(text, &Policy::default(), |_, tick| {
        let sample = tick.engine.as_mut().map(|sample| &mut Arc::make_mut(sample).value);
        if let Some(Reading::Value(engines)) = sample {
            for engine in &mut engines.engines {
                let none = || Reading::Missing(Missing::Unsupported);
                (engine.running, engine.waiting) = (none(), none());
            }
        }
    });
    let sees = judged(text, &Policy::default(), |_, _| {});
    for rule in rules {
        let (blind, sees) = (status(blind.last().unwrap(), rule), status(sees.last().unwrap(), rule));
        assert!(
            matches!(blind, RuleStatus::Unsupported(why) if why.contains("how many requests")),
            "{rule}: {blind:?}"
        );
        assert!(!matches!(sees, RuleStatus::Unsupported(_)), "{rule}: {sees:?}");
    }
}

/// A GPU that nobody has lacks no page; one with a process on it does.
#[test]
fn a_gpu_that_nobody_has_is_absent_for_what_starves_work() {
    let text = "scenario half\nseed 7\nlength 2m\ngpu 2\njob train gpus 0 util 90% power 600W mem 40GB\n";
    let all = judged(text, &Policy::default(), |_, _| {});
    let last = all.last().unwrap();
    let of = |gpu: u32| {
        let unit = last.units.iter().find(|unit| unit.index == Some(gpu)).unwrap();
        let report = last.rules.iter().find(|report| report.rule == R::BusyButStarved && report.unit == unit.unit);
        report.unwrap().status.clone()
    };
    assert!(matches!(of(0), RuleStatus::Unsupported(why) if why.contains("--engine")));
    assert_eq!(of(1), RuleStatus::Absent);
}

/// A cable that damages symbols: at 400 Gb/s one bit in 10^12 is .4 a second, and twelve hundred in five minutes are ten
/// times that.
#[test]
fn a_link_that_damages_symbols_is_a_fault_of_the_fabric() {
    let text = "scenario symbols\nseed 8\nlength 16m\ngpu 2\nport mlx5_0 infiniband\n\
                job train gpus 0-1 util 95% power 620W mem 70GB rdma 1 peers 4\n";
    let played = |counter: &'static str, a_second: u64| {
        let mut sum = 0;
        let all = judged(text, &Policy::default(), |second, tick| {
            sum += if (300..480).contains(&second) { a_second } else { 0 };
            let sample = tick.net.as_mut().map(|sample| &mut Arc::make_mut(sample).value);
            if let Some(Reading::Value(net)) = sample {
                let counters = &mut net.ports[0].counters;
                counters.push((counter.to_owned(), sum));
                counters.sort();
            }
        });
        said(&all, R::FabricCongestion, "fabric_fault")
    };
    for counter in ["symbol_error", "local_link_integrity_errors"] {
        let (seconds, found) = played(counter, 4);
        let found = found.unwrap();
        assert!((300..345).contains(&seconds[0]), "{counter}: {seconds:?}");
        // It stays until five minutes were clean, and a minute more.
        let last = *seconds.last().unwrap();
        assert!(
            seconds.len() == last - seconds[0] + 1 && (480 + 60..16 * 60).contains(&last),
            "{counter}: {seconds:?}"
        );
        assert_eq!((found.severity, found.cause, found.subject.as_str()), (Severity::Warn, None, "mlx5_0"));
        assert!(found.summary.contains("damages"), "{}", found.summary);
        assert_eq!(played(counter, 0).1, None);
    }
    // A handful in three minutes is what a good link has; packets that are damaged elsewhere are no symbols.
    let mut sum = 0;
    let few = judged(text, &Policy::default(), |second, tick| {
        sum += u64::from(second % 60 == 0);
        if let Some(Reading::Value(net)) = tick.net.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
            net.ports[0].counters.push(("symbol_error".to_owned(), sum));
        }
    });
    assert_eq!(said(&few, R::FabricCongestion, "fabric_fault").1, None);
    assert_eq!(played("port_rcv_errors", 4).1, None);
}
