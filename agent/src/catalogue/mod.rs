//! Every series, defined once: name, kind, unit, labels, help, and how to read it from a frame.
//!
//! The name and unit are those of OpenTelemetry; the Prometheus name is derived from them ([`names`]). One file
//! per room. `/metrics`, `gpuprod metrics` and the tests come from this list and nothing else.

mod alert;
mod block;
mod engine;
mod gpu;
mod host;
pub mod hw;
mod ledger;
mod md;
pub mod names;
mod node;
mod pci;
mod rule;
mod self_;
mod serving;
mod store;
mod tenant;

use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Reading, Sample};
use serde::Serialize;

use crate::pipeline::Frame;

/// How a value moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Only grows; a step back is a restart of the thing that counts.
    Counter,
    /// Moves freely.
    Gauge,
}

/// One series family.
#[derive(Debug, Serialize)]
pub struct Metric {
    /// OpenTelemetry's name.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// Unit in UCUM (`s`, `By`, `1`, `{unit}`), empty for info series.
    pub unit: &'static str,
    /// Names of the labels, in the order of the values.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
    /// Reads it.
    #[serde(skip)]
    pub read: fn(&Frame<'_>, &mut Points),
}

/// The rooms, in the order of the page.
const ROOMS: &[&[Metric]] = &[
    ledger::METRICS,
    tenant::METRICS,
    gpu::METRICS,
    rule::METRICS,
    alert::METRICS,
    node::METRICS,
    engine::METRICS,
    serving::METRICS,
    md::METRICS,
    block::METRICS,
    host::METRICS,
    pci::METRICS,
    self_::METRICS,
    store::METRICS,
];

/// Every series family there is.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    ROOMS.iter().copied().flatten()
}

/// A number as it is exported: integers with a decimal point set in, so that nothing is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer and the number of its digits after the point.
    Decimal(i128, u8),
    /// What has no exact decimal form (hours).
    Float(f64),
}

/// Longest label value: what a foreign name can put on the page.
pub(crate) const LABEL_CAP: usize = 256;

/// The points of one family.
#[derive(Debug, Default)]
pub struct Points {
    rows: Vec<(Vec<String>, Value)>,
}

impl Points {
    /// A point with its label values.
    pub fn put(&mut self, labels: &[&str], value: Value) {
        let held = |label: &&str| label.chars().take(LABEL_CAP).collect();
        let labels = labels.iter().map(held).collect();
        self.rows.push((labels, value));
    }

    /// A point if the reading has a value; nothing at all if it has none.
    pub fn read<T: Copy + Exact>(&mut self, labels: &[&str], reading: &Reading<T>) {
        if let Some(value) = reading.copied() {
            self.put(labels, value.exact());
        }
    }

    /// The points, as they were put.
    #[must_use]
    pub fn rows(&self) -> &[(Vec<String>, Value)] {
        &self.rows
    }
}

/// Quantities that are exported exactly, in base units.
pub trait Exact {
    /// In the base unit.
    fn exact(self) -> Value;
}

macro_rules! exact {
    ($($ty:ty => $digits:literal,)+) => {
        $(impl Exact for $ty { fn exact(self) -> Value { Value::Decimal(self.0.into(), $digits) } })+
    };
}
exact! {
    gpuprod_snapshot::units::Nanos => 9,
    gpuprod_snapshot::units::Bytes => 0,
    gpuprod_snapshot::units::BytesPerSecond => 0,
    gpuprod_snapshot::units::Millijoules => 3,
    gpuprod_snapshot::units::Milliwatts => 3,
    gpuprod_snapshot::units::Permille => 3,
    gpuprod_snapshot::units::Ppb => 9,
    gpuprod_snapshot::units::Celsius => 0,
    gpuprod_rules::Part => 6,
    gpuprod_rules::Micro => 6,
}
macro_rules! plain {
    ($($ty:ty),+) => { $(impl Exact for $ty { fn exact(self) -> Value { Value::Decimal(self.into(), 0) } })+ };
}
plain!(u32, u64, bool);

/// Milliseconds of the kernel's counters.
fn millis(value: u64) -> Value {
    Nanos::from_millis(value).exact()
}

/// The value of a sample, if the source gave one.
fn value<T>(sample: Option<&Sample<T>>) -> Option<&T> {
    sample.and_then(|sample| sample.value.get())
}

/// One family read from a frame: rows sorted by labels, one per set of labels (the later wins), so that a page
/// never carries a series twice, whatever a hostile source repeats.
#[must_use]
pub fn points(metric: &Metric, frame: &Frame<'_>) -> Vec<(Vec<String>, Value)> {
    let mut points = Points::default();
    (metric.read)(frame, &mut points);
    let mut rows = points.rows;
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = later.1;
        }
        same
    });
    rows
}
