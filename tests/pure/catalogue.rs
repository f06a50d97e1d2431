//! The metric catalogue: names, labels and help are sound, and the page of a full node keeps its budget.

use std::borrow::Cow;
use std::collections::BTreeSet;

use gpuprod::alerts::{Alert, Alerts, Desk, Phase, Posts, plan};
use gpuprod::catalogue::{self, Kind, names};
use gpuprod::config::{Config, Mode};
use gpuprod::own::{Drop, Failure, Lease, Otlp, Own};
use gpuprod::pipeline::Frame;
use gpuprod::prices::Priced;
use gpuprod::sink::prometheus::{Form, page};
use gpuprod::store::Status;
use gpuprod_rules::node::{Residual, Resource, Room};
use gpuprod_rules::{
    Bucket, Cause, Class, External, Judge, Judgement, KvSize, KvSource, Ledger, Meter, Micro, Part, Policy, Progress,
    RuleId, Serving, State, TenantIo, Weight, WeightSource,
};
use gpuprod_snapshot::units::{Bytes, Millijoules, Nanos};
use gpuprod_snapshot::{Stamp, Tick};

use crate::node;

/// Most series of an 8-GPU node by default.
const BUDGET: usize = 1_500;
/// Target labels of Prometheus and of its Kubernetes discovery.
const FORBIDDEN: &[&str] = &["job", "instance", "pod", "namespace"];

#[test]
fn names_are_valid_and_unique_and_say_their_unit() {
    let mut otel = BTreeSet::new();
    let mut prometheus = BTreeSet::new();
    for metric in catalogue::all() {
        let name = metric.name;
        assert!(name.starts_with("gpuprod."), "{name}");
        let sound = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '_';
        assert!(name.chars().all(sound), "{name}");
        assert!(otel.insert(name), "{name} is defined twice");
        let series = names::series(metric);
        assert!(prometheus.insert(series.clone()), "{series} is derived twice");
        assert_eq!(series.ends_with("_total"), metric.kind == Kind::Counter, "{series}");
        let words: Vec<&str> = series.split('_').collect();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{series} doubles a word");
        assert!(metric.help.len() > 10 && metric.help.ends_with('.'), "{name}: {:?}", metric.help);
        for label in metric.labels {
            assert!(!FORBIDDEN.contains(label), "{name} has the label {label}");
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}: {label}");
        }
    }
}

#[test]
fn derived_names_follow_the_specification() {
    // Pairs from OpenTelemetry's compatibility specification and from the project's contract.
    let series = |name: &str| catalogue::all().find(|metric| metric.name == name).map(names::series);
    for (otel, prometheus) in [
        ("gpuprod.gpu.ledger", "gpuprod_gpu_ledger_seconds_total"),
        ("gpuprod.gpu.productive", "gpuprod_gpu_productive_hours_total"),
        ("gpuprod.gpu.utilization", "gpuprod_gpu_utilization_ratio"),
        ("gpuprod.gpu.memory.used", "gpuprod_gpu_memory_used_bytes"),
        ("gpuprod.gpu.energy", "gpuprod_gpu_energy_joules_total"),
        ("gpuprod.gpu.temperature", "gpuprod_gpu_temperature_celsius"),
        ("gpuprod.md.sync.speed", "gpuprod_md_sync_speed_bytes_per_second"),
        ("gpuprod.engine.preemptions", "gpuprod_engine_preemptions_total"),
        ("gpuprod.rule.active", "gpuprod_rule_active"),
        ("gpuprod.self.probe_hung", "gpuprod_self_probe_hung_seconds"),
    ] {
        assert_eq!(series(otel).as_deref(), Some(prometheus), "{otel}");
    }
}

/// A node that had more trouble than one node has: every GPU went through many states and buckets.
fn troubled(tick: &Tick) -> (Judgement, Ledger) {
    let states = [
        (State::Productive(Progress::Decode), WeightSource::Tokens, 900_000),
        (State::Productive(Progress::Train), WeightSource::Proxy, 700_000),
        (State::Starved(Cause::Storage), WeightSource::Tokens, 200_000),
        (State::Starved(Cause::HostCpu), WeightSource::Util, 100_000),
        (State::Headroom, WeightSource::None, 0),
        (State::Idle, WeightSource::None, 0),
        (State::Unallocated, WeightSource::None, 0),
        (State::Unknown(gpuprod_rules::Unknown::Hung), WeightSource::None, 0),
    ];
    let mut judge = Judge::new(Policy::default());
    let mut ledger = Ledger::default();
    let mut last = Judgement::default();
    for (second, (state, source, w)) in (1..).zip(states) {
        let mut tick = tick.clone();
        let later = Nanos::from_secs(second);
        tick.stamp.boottime = tick.stamp.boottime.saturating_add(later);
        tick.stamp.monotonic = tick.stamp.monotonic.saturating_add(later);
        tick.stamp.realtime = tick.stamp.realtime.saturating_add(later);
        last = judge.step(&tick);
        assert_eq!(last.units.len(), 8, "a unit per GPU");
        for unit in &mut last.units {
            unit.state = state;
            unit.weight = Weight { w: Part(w), source };
            let rest = Part(w).rest();
            unit.external = vec![External { resource: Cause::Storage, tenant: "batch".into(), part: Part(400_000) }];
            let other = match state {
                State::Starved(cause) => Bucket::Lost(cause),
                State::Headroom => Bucket::Headroom,
                State::Idle => Bucket::Idle,
                State::Unallocated => Bucket::Unallocated,
                State::Unknown(reason) => Bucket::Unknown(reason),
                _ => Bucket::Lost(Cause::Unexplained),
            };
            unit.split = vec![(Bucket::Productive, Part(w)), (other, rest)];
            // More tenants than have a name, each GPU shared by two.
            let tenant = |n: u64| Some(format!("tenant-{}", n % 20));
            unit.tenants = vec![(tenant(2 * second), Part(500_000)), (tenant(2 * second + 1), Part(500_000))];
            unit.meter = Some(Meter::Counter(Millijoules(second * 700_000)));
        }
        let io = |n: u64| TenantIo { tenant: Some(format!("tenant-{}", n % 20)), read: Bytes(1), written: Bytes(2) };
        last.io = vec![io(2 * second), io(2 * second + 1), TenantIo { tenant: None, ..io(0) }];
        ledger.charge(&last);
    }
    whole(&mut last);
    (last, ledger)
}

/// All that can be said of the node as a whole.
fn whole(judgement: &mut Judgement) {
    let residual =
        |resource| Residual { resource, ratio: Part(500_000), free: Micro(4_000_000), capacity: Micro(8_000_000) };
    judgement.node.residual = Resource::ALL.iter().copied().map(residual).collect();
    judgement.node.rooms = Policy::default()
        .declared
        .shapes
        .iter()
        .map(|shape| Room {
            shape: shape.name.clone(),
            jobs: Some(1),
            binding: Some(Resource::Gpu),
            gpus: 1,
            stranded: false,
            unread: Vec::new(),
        })
        .collect();
    judgement.serving = vec![Serving {
        engine: "http://127.0.0.1:8000/metrics".into(),
        gpus: 8,
        arrivals: Some(Micro(5_500_000)),
        burst: Micro(1_500_000),
        prefill: Some(Micro(20_000_000_000)),
        decode: Some(Micro(2_400_000_000)),
        load: Some(Micro(450_000)),
        kv_tokens: Some(Micro(1_400_000_000)),
        kv_requests: Some(Micro(140_000_000)),
        kv_size: Some(KvSize { source: KvSource::Declared, bytes: Micro(183_500_800_000_000) }),
        headroom: Some(Micro(2_444_444)),
        gpus_prefill: Some(Micro(1_200_000)),
        gpus_decode: Some(Micro(5_400_000)),
        gpus_kv: Some(Micro(4_000_000)),
        ..Serving::default()
    }];
}

/// An alert about something else than the node's rules say, and an Alertmanager that takes posts.
fn alerts() -> Alerts {
    let config = Config::default();
    let mut alerts = Desk::new(plan(&config, "gpu-17")).step(&[], &Stamp::default()).clone();
    alerts.list.push(Alert {
        rule: RuleId::RaidRebuildImpact,
        object: "md0".into(),
        mode: Mode::Page,
        told_by: None,
        starts_at: Nanos(0),
        phase: Phase::Firing,
        ended_at: None,
        summary: String::new(),
    });
    alerts.posts.push(Posts { alertmanager: "http://am:9093/".into(), last_taken: Some(Nanos(1)), ..Posts::default() });
    alerts
}

fn samples(page: &str) -> Vec<&str> {
    page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn a_full_node_keeps_the_budget_and_no_series_comes_twice() {
    let tick = node::full();
    let (judgement, ledger) = troubled(&tick);
    let store = Status {
        start: Some(Nanos(1)),
        errors: ["busy", "corrupt", "denied", "full", "io", "read_only"].map(|reason| (reason.to_owned(), 1)).into(),
        ..Status::default()
    };
    let frame = Frame {
        known: Cow::Owned(tick),
        judgement: Cow::Owned(judgement),
        ledger: Cow::Owned(ledger),
        alerts: Cow::Owned(alerts()),
        own: Own {
            lease: Some(Lease { since: Nanos(0), until: Nanos(u64::MAX) }),
            otlp: Some(Otlp {
                failed: [(Failure::Connect, 1)].into(),
                dropped: [(Drop::Full, 1)].into(),
                success: Some(Nanos(0)),
                ..Otlp::default()
            }),
            store: Some(store),
            prices: vec![Priced {
                model: "NVIDIA H100 80GB HBM3".into(),
                class: Class::Serving,
                currency: "USD".into(),
                per_gpu_hour_millionths: 2_500_000,
            }],
            ..Own::default()
        },
    };
    let text = page(&frame, Form::OpenMetrics);
    let lines = samples(&text);
    let series: BTreeSet<&str> =
        lines.iter().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect();
    assert_eq!(series.len(), lines.len(), "a series stands twice");
    assert!(lines.len() <= BUDGET, "{} series", lines.len());
    assert!(lines.len() > 600, "{} series: the node is not full", lines.len());
    println!("{} series of {BUDGET}", lines.len());
    assert!(text.ends_with("# EOF\n"));
    // The classic form carries the same samples, but for hours: it has no way to declare that unit.
    let classic = page(&frame, Form::Text);
    let (hours, base): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.contains("_hours_total"));
    assert_eq!(samples(&classic), base);
    assert_eq!(hours.len(), 8, "{hours:?}");
    // Every family that can have a point on this node has one.
    let empty: Vec<&str> = catalogue::all()
        .filter(|metric| catalogue::points(metric, &frame).is_empty())
        .map(|metric| metric.name)
        .collect();
    assert_eq!(empty, ["gpuprod.self.collector.missing", "gpuprod.self.probe_hung"]);
}

#[test]
fn what_is_missing_makes_no_series() {
    let tick = Tick::default();
    let frame = Frame {
        known: Cow::Owned(tick),
        judgement: Cow::Owned(Judgement::default()),
        ledger: Cow::Owned(Ledger::default()),
        alerts: Cow::default(),
        own: Own::default(),
    };
    let text = page(&frame, Form::Text);
    let lines = samples(&text);
    assert!(lines.iter().all(|line| line.starts_with("gpuprod_self_")), "{lines:?}");
}

#[test]
fn the_public_frame_hides_who_runs_what() {
    let tick = node::full();
    let frame = Frame {
        known: Cow::Owned(tick),
        judgement: Cow::Owned(Judgement::default()),
        ledger: Cow::Owned(Ledger::default()),
        alerts: Cow::default(),
        own: Own::default(),
    };
    let whole = serde_json::to_string(&frame).unwrap();
    let public = serde_json::to_string(&frame.public()).unwrap();
    for secret in ["secret-command", "/secret.slice", "424242"] {
        assert!(whole.contains(secret), "{secret} is in the test's node");
        assert!(!public.contains(secret), "{secret} is public");
    }
}

/// Receivers of OTLP append a unit's word by themselves: a unit without a word here has another name there.
#[test]
fn every_unit_has_its_word_or_is_an_annotation() {
    for metric in catalogue::all() {
        let counts = metric.unit.starts_with('{') && metric.unit.ends_with('}');
        let nothing = metric.unit.is_empty() || counts || metric.unit == "1";
        let word = gpuprod::catalogue::names::unit_word(metric);
        assert!(nothing || word.is_some(), "{}: no word for {:?}", metric.name, metric.unit);
    }
}
