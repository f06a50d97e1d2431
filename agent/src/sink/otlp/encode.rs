//! The catalogue as OTLP: pure; what it remembers between two exports is which series there were.
//!
//! A gauge is a gauge. A counter is a cumulative, monotonic sum with the start that its figures are counted from:
//! after an outage, a late or a doubled delivery the sums are still exact. A series that is gone is closed with one
//! point without a value, as a scrape would notice it.

use std::collections::BTreeMap;
use std::mem;

use gpuprod_snapshot::units::Nanos;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, Gauge, Metric as Message, NumberDataPoint, ResourceMetrics, ScopeMetrics,
    Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::number::{Number, fell, is_zero, number, zero};
use super::resource::attribute;
use crate::catalogue::hw::{SCHEMA_URL, STANDARD};
use crate::catalogue::{self, Kind, Metric, Value};
use crate::pipeline::Frame;

/// Where a counter counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The first charge of the ledger; it outlives restarts, as the figures do.
    Ledger,
    /// The start of this process.
    Process,
    /// The boot of the host. What steps back after that (a driver that was loaded again, a counter that wrapped)
    /// begins anew at the point before.
    Boot,
    /// Not known: another program's counter. No start is sent.
    Foreign,
}

/// Receivers refuse points that are too old, and the whole batch with them.
const OLDEST_ZERO: Nanos = Nanos::from_secs(900);

/// By the beginning of the name; the first that fits.
const ORIGINS: &[(&str, Origin)] = &[
    ("gpuprod.gpu.ledger", Origin::Ledger),
    ("gpuprod.tenant.", Origin::Ledger),
    ("gpuprod.gpu.productive", Origin::Ledger),
    ("gpuprod.gpu.state.time", Origin::Ledger),
    ("gpuprod.gpu.observed", Origin::Ledger),
    ("gpuprod.self.clock.steps", Origin::Ledger),
    ("gpuprod.self.", Origin::Process),
    ("gpuprod.gpu.", Origin::Boot),
    ("gpuprod.block.", Origin::Boot),
    ("gpuprod.psi.", Origin::Boot),
    ("gpuprod.net.", Origin::Boot),
    ("hw.", Origin::Boot),
];

/// Where a counter counts from; what nobody listed has no known start.
#[must_use]
pub fn origin(metric: &Metric) -> Origin {
    ORIGINS.iter().find(|(name, _)| metric.name.starts_with(name)).map_or(Origin::Foreign, |(_, origin)| *origin)
}

/// Starts on the wall clock, fixed while the process lives: a start that drifts with the clock would look like a reset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starts {
    /// Of this process.
    pub process: Nanos,
    /// Of this boot.
    pub boot: Nanos,
}

/// What was last sent of a series.
#[derive(Debug)]
struct Seen {
    start: Nanos,
    at: Nanos,
    value: Value,
}

type Series = BTreeMap<Vec<String>, Seen>;

/// Turns frames into requests.
#[derive(Debug)]
pub struct Encoder {
    resource: Resource,
    starts: Starts,
    /// Per family, in the order of the lists.
    seen: Vec<Series>,
    last: Option<Nanos>,
}

impl Encoder {
    /// Has sent nothing yet.
    #[must_use]
    pub fn new(resource: Resource, starts: Starts) -> Self {
        Self { resource, starts, seen: Vec::new(), last: None }
    }

    /// Who sends, from now on; series go on.
    pub fn set_resource(&mut self, resource: Resource) {
        self.resource = resource;
    }

    /// Everything in a frame, at the frame's own time.
    pub fn encode(&mut self, frame: &Frame<'_>) -> ExportMetricsServiceRequest {
        let metrics = self.export(frame, frame.known.stamp.realtime);
        let scope = InstrumentationScope {
            name: "gpuprod".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope = ScopeMetrics { scope: Some(scope), metrics, schema_url: SCHEMA_URL.to_owned() };
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![scope],
                schema_url: SCHEMA_URL.to_owned(),
            }],
        }
    }

    fn export(&mut self, frame: &Frame<'_>, now: Nanos) -> Vec<Message> {
        let parents = parents(frame);
        // Without a store the ledger begins with the process.
        let ledger = frame.own.store.as_ref().map_or(Some(self.starts.process), |store| store.start);
        let mut messages = Vec::new();
        for (place, (metric, up_down)) in families().enumerate() {
            if self.seen.len() <= place {
                self.seen.push(Series::new());
            }
            let known = self.seen.get_mut(place).map(mem::take).unwrap_or_default();
            let moment = Moment {
                now,
                last: self.last,
                process: self.starts.process,
                start: match origin(metric) {
                    Origin::Ledger => ledger,
                    Origin::Process => Some(self.starts.process),
                    Origin::Boot => Some(self.starts.boot),
                    Origin::Foreign => None,
                },
            };
            let (points, series) = family(metric, frame, known, &moment, &parents);
            if let Some(slot) = self.seen.get_mut(place) {
                *slot = series;
            }
            if !points.is_empty() {
                messages.push(message(metric, up_down, points));
            }
        }
        self.last = Some(now);
        messages
    }
}

/// When a family is exported, and since when it counts.
struct Moment {
    now: Nanos,
    last: Option<Nanos>,
    process: Nanos,
    start: Option<Nanos>,
}

/// Ours and the standard ones; true for an UpDownCounter.
fn families() -> impl Iterator<Item = (&'static Metric, bool)> {
    let standard = STANDARD.iter().map(|standard| (&standard.metric, standard.up_down));
    catalogue::all().map(|metric| (metric, false)).chain(standard)
}

fn family(
    metric: &Metric,
    frame: &Frame<'_>,
    mut known: Series,
    moment: &Moment,
    parents: &BTreeMap<&str, &str>,
) -> (Vec<NumberDataPoint>, Series) {
    let now = moment.now;
    let mut points = Vec::new();
    let mut series = Series::new();
    for (labels, value) in catalogue::points(metric, frame) {
        let Some(carried) = number(value) else { continue };
        let before = known.remove(&labels);
        let mut start = Nanos(0);
        let attributes = attributes(metric, &labels, parents);
        if metric.kind == Kind::Counter
            && let Some(origin) = moment.start
        {
            start = match &before {
                Some(before) if fell(before.value, value) => before.at,
                Some(before) => before.start,
                None => origin,
            };
            start = start.min(now);
            if let Some(at) = zero_at(metric, before.as_ref(), value, moment) {
                points.push(point(attributes.clone(), start.min(at), at, Some(zero(carried))));
            }
        }
        points.push(point(attributes, start, now, Some(carried)));
        series.insert(labels, Seen { start, at: now, value });
    }
    for (labels, seen) in known {
        points.push(point(attributes(metric, &labels, parents), seen.start, now, None));
    }
    (points, series)
}

/// When a new series of our own was last zero: many receivers take the first value of a series as its base, and
/// would lose what it had counted by then. Only where it is sure: the ledger and the process begin at zero, and
/// none of their series ever goes away.
fn zero_at(metric: &Metric, before: Option<&Seen>, value: Value, moment: &Moment) -> Option<Nanos> {
    if before.is_some() || is_zero(value) {
        return None;
    }
    let start = moment.start?;
    let first = match origin(metric) {
        // Only a ledger that this process began was empty before the first export.
        Origin::Ledger => (start >= moment.process).then_some(start),
        Origin::Process => Some(start),
        Origin::Boot | Origin::Foreign => return None,
    };
    let at = moment.last.or(first)?.max(start);
    (at < moment.now && moment.now.saturating_sub(at) <= OLDEST_ZERO).then_some(at)
}

fn point(attributes: Vec<KeyValue>, start: Nanos, at: Nanos, value: Option<Number>) -> NumberDataPoint {
    let flags = if value.is_none() { DataPointFlags::NoRecordedValueMask } else { DataPointFlags::DoNotUse };
    NumberDataPoint {
        attributes,
        start_time_unix_nano: start.0,
        time_unix_nano: at.0,
        flags: u32::try_from(i32::from(flags)).unwrap_or_default(),
        value,
        ..NumberDataPoint::default()
    }
}

/// Labels that say nothing are left out: to every receiver of Prometheus' kind they are the same as none. A point of
/// a GPU carries the names of the hardware conventions beside ours.
fn attributes(metric: &Metric, labels: &[String], parents: &BTreeMap<&str, &str>) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(labels.len() + 3);
    let mut unit = None;
    for (name, value) in metric.labels.iter().zip(labels).filter(|(_, value)| !value.is_empty()) {
        attributes.push(attribute(name, value));
        match *name {
            "uuid" => {
                attributes.push(attribute("hw.id", value));
                unit = Some(value.as_str());
            }
            "hw.id" => unit = Some(value.as_str()),
            _ => {}
        }
    }
    if let Some(unit) = unit {
        attributes.push(attribute("hw.type", "gpu"));
        if let Some(parent) = parents.get(unit) {
            attributes.push(attribute("hw.parent", parent));
        }
    }
    attributes
}

/// The GPU of each part of one.
fn parents<'a>(frame: &'a Frame<'_>) -> BTreeMap<&'a str, &'a str> {
    let accounts = frame.ledger.accounts.iter();
    accounts.filter_map(|(unit, account)| Some((&*unit.0, &*account.gpu.as_ref()?.0))).collect()
}

fn message(metric: &Metric, up_down: bool, data_points: Vec<NumberDataPoint>) -> Message {
    let monotonic = metric.kind == Kind::Counter;
    let data = if monotonic || up_down {
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: monotonic })
    } else {
        Data::Gauge(Gauge { data_points })
    };
    Message {
        name: metric.name.to_owned(),
        description: metric.help.to_owned(),
        unit: metric.unit.to_owned(),
        data: Some(data),
        ..Message::default()
    }
}
