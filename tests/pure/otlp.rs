//! What goes out by OTLP says what the page says, with the times and starts that make it exact after an outage.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use gpuprod::catalogue::{self, Kind, names};
use gpuprod::own::{Otlp, Own};
use gpuprod::pipeline::Frame;
use gpuprod::sink::otlp::{Encoder, Origin, Starts, origin, resource};
use gpuprod::sink::prometheus::{Form, page};
use gpuprod::store::Status;
use gpuprod_rules::{Bucket, Judge, Ledger, Part, Policy, State};
use gpuprod_snapshot::units::{Bytes, Nanos};
use gpuprod_snapshot::{Reading, Tick};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};

use crate::node;

/// One series: name, attributes without those of the hardware conventions.
type Series = (String, BTreeMap<String, String>);

const SECOND: u64 = 1_000_000_000;
const BOOT: Nanos = Nanos(1_799_999_000 * SECOND);
const PROCESS: Nanos = Nanos(1_799_999_990 * SECOND);

fn encoder() -> Encoder {
    let attributes = [("service.name".to_owned(), "gpuprod".to_owned())].into();
    Encoder::new(resource(&attributes), Starts { process: PROCESS, boot: BOOT })
}

/// A node that goes on second by second, with a state of one's own.
struct Node {
    tick: Tick,
    judge: Judge,
    ledger: Ledger,
}

impl Node {
    fn new() -> Self {
        Self { tick: node::full(), judge: Judge::new(Policy::default()), ledger: Ledger::default() }
    }

    fn step(&mut self, seconds: u64, bucket: Bucket) -> Frame<'static> {
        let later = Nanos::from_secs(seconds);
        let stamp = &mut self.tick.stamp;
        stamp.boottime = stamp.boottime.saturating_add(later);
        stamp.monotonic = stamp.monotonic.saturating_add(later);
        stamp.realtime = stamp.realtime.saturating_add(later);
        let mut judgement = self.judge.step(&self.tick);
        judgement.period = later.max(Nanos::from_secs(1));
        for unit in &mut judgement.units {
            unit.state = State::Idle;
            unit.split = vec![(bucket, Part(1_000_000))];
        }
        self.ledger.charge(&judgement);
        Frame {
            known: Cow::Owned(self.tick.clone()),
            judgement: Cow::Owned(judgement),
            ledger: Cow::Owned(self.ledger.clone()),
            alerts: Cow::default(),
            own: Own { otlp: Some(Otlp::default()), ..Own::default() },
        }
    }
}

fn metrics(request: &ExportMetricsServiceRequest) -> &[Metric] {
    &request.resource_metrics[0].scope_metrics[0].metrics
}

fn points(metric: &Metric) -> &[NumberDataPoint] {
    match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Sum(sum) => &sum.data_points,
        other => panic!("{other:?}"),
    }
}

fn of<'a>(request: &'a ExportMetricsServiceRequest, name: &str) -> &'a [NumberDataPoint] {
    metrics(request).iter().find(|metric| metric.name == name).map_or(&[], points)
}

fn labels(point: &NumberDataPoint) -> BTreeMap<String, String> {
    let text = |pair: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        let Some(opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(text)) =
            pair.value.clone().and_then(|value| value.value)
        else {
            panic!("{pair:?}")
        };
        (pair.key.clone(), text)
    };
    point.attributes.iter().map(text).collect()
}

fn number(point: &NumberDataPoint) -> Option<f64> {
    match point.value.as_ref()? {
        Number::AsInt(value) => Some(value.to_string().parse().unwrap()),
        Number::AsDouble(value) => Some(*value),
    }
}

/// The page's samples; labels of the test's node hold neither commas nor quotes.
fn shown(text: &str) -> BTreeMap<Series, f64> {
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, rest) = series.split_once('{').unwrap_or((series, ""));
        let labels = rest.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
        let labels = labels.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()));
        let labels = labels.filter(|(_, value)| !value.is_empty()).collect();
        ((name.to_owned(), labels), value.parse().unwrap())
    };
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(sample).collect()
}

#[test]
fn every_series_of_the_page_goes_out_with_the_same_value() {
    let mut node = Node::new();
    let mut encoder = encoder();
    node.step(1, Bucket::Productive);
    let frame = node.step(1, Bucket::Idle);
    let request = encoder.encode(&frame);
    let now = frame.known.stamp.realtime.0;
    let prometheus: BTreeMap<&str, String> =
        catalogue::all().map(|metric| (metric.name, names::series(metric))).collect();
    let mut sent: BTreeMap<Series, f64> = BTreeMap::new();
    for metric in metrics(&request) {
        let Some(name) = prometheus.get(metric.name.as_str()) else {
            assert!(metric.name.starts_with("hw."), "{}", metric.name);
            continue;
        };
        for point in points(metric).iter().filter(|point| point.time_unix_nano == now) {
            let mut labels = labels(point);
            if labels.contains_key("uuid") {
                assert_eq!(labels.remove("hw.type").as_deref(), Some("gpu"), "{}", metric.name);
                assert_eq!(labels.remove("hw.id").as_ref(), labels.get("uuid"));
            }
            let twice = sent.insert((name.clone(), labels), number(point).unwrap());
            assert_eq!(twice, None, "{} stands twice", metric.name);
        }
    }
    let shown = shown(&page(&frame, Form::OpenMetrics));
    assert!(shown.len() > 600, "{}", shown.len());
    assert_eq!(sent, shown);
    // The standard names, with the values of ours.
    assert_eq!(number(&of(&request, "hw.gpu.utilization")[0]), Some(0.84));
    assert_eq!(of(&request, "hw.gpu.memory.usage")[0].value, Some(Number::AsInt(70 << 30)));
    assert_eq!(number(&of(&request, "hw.energy")[0]), Some(123_456.789));
    assert_eq!(labels(&of(&request, "hw.gpu.io")[1])["network.io.direction"], "transmit");
}

#[test]
fn every_counter_has_an_origin_and_a_family_has_one_form() {
    let frame = Node::new().step(1, Bucket::Idle);
    for metric in catalogue::all() {
        if metric.kind == Kind::Counter && origin(metric) == Origin::Foreign {
            assert!(metric.name.starts_with("gpuprod.engine."), "{}: say where it counts from", metric.name);
        }
    }
    let form = |point: &NumberDataPoint| point.value.as_ref().map(|value| matches!(value, Number::AsInt(_)));
    let request = encoder().encode(&frame);
    for metric in metrics(&request) {
        let first = form(&points(metric)[0]);
        assert!(points(metric).iter().all(|point| form(point) == first), "{} mixes integers and floats", metric.name);
    }
}

#[test]
fn sums_carry_the_start_that_they_are_counted_from() {
    let mut node = Node::new();
    // Without a store the ledger begins with the process.
    let began = PROCESS;
    let request = encoder().encode(&node.step(1, Bucket::Idle));
    for (name, start) in [
        ("gpuprod.gpu.ledger", began.0),
        ("gpuprod.gpu.productive", began.0),
        ("gpuprod.self.otlp.sent", PROCESS.0),
        ("gpuprod.gpu.energy", BOOT.0),
        ("gpuprod.block.io", BOOT.0),
        ("gpuprod.engine.tokens.generated", 0),
        ("gpuprod.gpu.power", 0),
    ] {
        let points = of(&request, name);
        assert!(!points.is_empty(), "{name}");
        assert!(points.iter().all(|point| point.start_time_unix_nano == start), "{name}: {points:?}");
    }
    for metric in metrics(&request) {
        let Some(Data::Sum(sum)) = &metric.data else { continue };
        assert_eq!(sum.aggregation_temporality, 2, "cumulative");
        assert_eq!(sum.is_monotonic, !metric.name.starts_with("hw.gpu.memory."), "{}", metric.name);
        assert!(sum.data_points.iter().all(|point| point.start_time_unix_nano <= point.time_unix_nano));
    }
}

/// Time and value of the points of one bucket of one GPU.
fn bucket(request: &ExportMetricsServiceRequest, bucket: &str) -> Vec<(u64, Option<f64>)> {
    let wanted = |point: &&NumberDataPoint| {
        let labels = labels(point);
        labels["bucket"] == bucket && labels["uuid"].starts_with("GPU-00000000")
    };
    of(request, "gpuprod.gpu.ledger").iter().filter(wanted).map(|point| (point.time_unix_nano, number(point))).collect()
}

#[test]
fn a_new_bucket_begins_with_its_zero() {
    let mut node = Node::new();
    let mut encoder = encoder();
    let frame = node.step(1, Bucket::Idle);
    let first = frame.known.stamp.realtime.0;
    encoder.encode(&frame);
    let request = encoder.encode(&node.step(1, Bucket::Idle));
    assert_eq!(bucket(&request, "idle"), [(first, Some(0.0)), (first + SECOND, Some(1.0))]);
    let request = encoder.encode(&node.step(10, Bucket::Headroom));
    assert_eq!(bucket(&request, "idle"), [(first + 11 * SECOND, Some(1.0))]);
    assert_eq!(bucket(&request, "headroom"), [(first + SECOND, Some(0.0)), (first + 11 * SECOND, Some(10.0))]);
    // A zero so old that a receiver may refuse it, and the batch with it, is left out.
    let request = encoder.encode(&node.step(3_600, Bucket::Unallocated));
    assert_eq!(bucket(&request, "unallocated"), [(first + 3_611 * SECOND, Some(3_600.0))]);
}

#[test]
fn what_a_restart_adds_is_an_increase() {
    let mut node = Node::new();
    let started = node.step(1, Bucket::Idle).known.stamp.realtime;
    let mut left = node.step(1, Bucket::Idle);
    let upto = left.known.stamp.realtime.0;
    // Another process goes on with the ledger after 30 s of nobody. First it shows what was left.
    let store = Some(Status { start: Some(started), ..Status::default() });
    let starts = Starts { process: Nanos(upto + 30 * SECOND), boot: BOOT };
    let mut encoder = Encoder::new(resource(&BTreeMap::new()), starts);
    left.known.to_mut().stamp.realtime.0 += 30 * SECOND;
    left.own.store.clone_from(&store);
    let request = encoder.encode(&left);
    assert_eq!(bucket(&request, "idle"), [(upto + 30 * SECOND, Some(1.0))], "it was not zero before");
    assert_eq!(bucket(&request, "unknown"), [(upto + 30 * SECOND, Some(0.0))], "shown as zero from the start");
    assert!(of(&request, "gpuprod.gpu.ledger").iter().all(|point| point.start_time_unix_nano == started.0));
    node.ledger.resume();
    let mut next = node.step(35, Bucket::Idle);
    next.own.store = store;
    let request = encoder.encode(&next);
    assert_eq!(bucket(&request, "idle"), [(upto + 35 * SECOND, Some(1.0))]);
    assert_eq!(bucket(&request, "unknown"), [(upto + 35 * SECOND, Some(35.0))]);
    assert!(of(&request, "gpuprod.gpu.ledger").iter().all(|point| point.start_time_unix_nano == started.0));
}

#[test]
fn a_series_that_went_is_closed_and_a_counter_that_stepped_back_begins_anew() {
    let mut node = Node::new();
    let mut encoder = encoder();
    let first = encoder.encode(&node.step(1, Bucket::Idle));
    let before = of(&first, "gpuprod.gpu.power")[0].time_unix_nano;
    let gpus = |tick: &mut Tick, change: &dyn Fn(&mut gpuprod_snapshot::gpu::Gpu)| {
        if let Some(Reading::Value(gpus)) = tick.gpu.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
            change(&mut gpus.devices[0]);
        }
    };
    gpus(&mut node.tick, &|gpu| {
        gpu.power = Reading::default();
        gpu.pcie.tx = Bytes(0).into();
    });
    let second = encoder.encode(&node.step(10, Bucket::Idle));
    let power = of(&second, "gpuprod.gpu.power");
    let gone: Vec<_> = power.iter().filter(|point| point.value.is_none()).collect();
    assert_eq!((power.len(), gone.len()), (8, 1));
    assert_eq!((gone[0].flags, gone[0].time_unix_nano), (1, before + 10 * SECOND));
    assert!(labels(gone[0])["uuid"].starts_with("GPU-00000000"));
    let wrapped = of(&second, "gpuprod.gpu.pcie.io").iter().find(|point| number(point) == Some(0.0)).unwrap();
    assert_eq!(wrapped.start_time_unix_nano, before, "it was zero after the point before");
    let third = encoder.encode(&node.step(10, Bucket::Idle));
    assert_eq!(of(&third, "gpuprod.gpu.power").len(), 7, "closed once");
}
