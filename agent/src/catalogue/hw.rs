//! OpenTelemetry's standard hardware metrics of GPUs, from the same readings as ours. They go out by OTLP only: on
//! `/metrics` they would say everything twice.
//!
//! Names, units and attributes are those of the semantic conventions at [`SCHEMA_URL`] (hardware: status Development).

use gpuprod_snapshot::gpu::Gpu;

use super::{Kind, Metric, Points, value};
use crate::pipeline::Frame;

/// The version of the conventions that the names come from.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.40.0";

/// One standard metric.
#[derive(Debug)]
pub struct Standard {
    /// As in the catalogue; labels are attributes as the conventions name them.
    pub metric: Metric,
    /// An UpDownCounter: a sum that may fall. The catalogue's gauges are none.
    pub up_down: bool,
}

macro_rules! standard {
    ($kind:ident, $up_down:literal, $name:literal, $unit:literal, [$($label:literal)?], $help:literal, $($value:literal => $($field:ident).+),+) => {
        Standard {
            metric: Metric {
                name: $name,
                kind: Kind::$kind,
                unit: $unit,
                labels: &["hw.id", $($label)?],
                help: $help,
                read: |frame, out| {
                    each(frame, out, |out, id, gpu| {
                        $(out.read(labels(&[id, $value]), &gpu.$($field).+);)+
                    });
                },
            },
            up_down: $up_down,
        }
    };
}

/// Every standard metric.
pub const STANDARD: &[Standard] = &[
    standard!(Gauge, false, "hw.gpu.utilization", "1", ["hw.gpu.task"], "Fraction of time spent in a specific task.",
        "general" => util),
    standard!(Gauge, true, "hw.gpu.memory.usage", "By", [], "GPU memory used.", "" => mem_used),
    standard!(Gauge, true, "hw.gpu.memory.limit", "By", [], "Size of the GPU memory.", "" => mem_total),
    standard!(Counter, false, "hw.gpu.io", "By", ["network.io.direction"], "Received and transmitted bytes by the GPU.",
        "transmit" => pcie.tx, "receive" => pcie.rx),
    standard!(Counter, false, "hw.errors", "{error}", ["error.type"], "Number of errors encountered by the component.",
        "corrected" => ecc.corrected, "uncorrected" => ecc.uncorrected),
    standard!(Gauge, false, "hw.power", "W", [], "Instantaneous power consumed by the component.", "" => power),
    standard!(Counter, false, "hw.energy", "J", [], "Energy consumed by the component.", "" => energy),
];

/// Without the second label where a metric has none.
fn labels<'a>(pair: &'a [&'a str; 2]) -> &'a [&'a str] {
    let [_, second] = pair;
    if second.is_empty() { pair.get(..1).unwrap_or(pair) } else { pair }
}

fn each(frame: &Frame<'_>, out: &mut Points, read: fn(&mut Points, &str, &Gpu)) {
    for gpu in value(frame.known.gpu.as_deref()).map_or(&[][..], |gpus| &gpus.devices) {
        if let Some(uuid) = gpu.uuid.get() {
            read(out, uuid, gpu);
        }
    }
}
