//! Disks and what is made of them: the kernel's raw counters, so that rates and latencies are made in the query.

use gpuprod_snapshot::storage::{BlockDevice, IoCounters};
use gpuprod_snapshot::units::Bytes;

use super::{Exact, Kind, Metric, Value, millis, value};
use crate::pipeline::Frame;

macro_rules! both {
    ($name:literal, $unit:literal, $help:literal, $read:expr, $write:expr) => {
        Metric {
            name: $name,
            kind: Kind::Counter,
            unit: $unit,
            labels: &["device", "direction"],
            help: $help,
            read: |frame, out| {
                each(frame, |name, io| {
                    let (read, write): (fn(&IoCounters) -> Value, fn(&IoCounters) -> Value) = ($read, $write);
                    out.put(&[name, "read"], read(io));
                    out.put(&[name, "write"], write(io));
                });
            },
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    both!("gpuprod.block.io", "By", "Bytes read and written.", |io| sectors(io.sectors_read), |io| sectors(
        io.sectors_written
    )),
    both!("gpuprod.block.operations", "{operation}", "Requests completed.", |io| io.reads.exact(), |io| io
        .writes
        .exact()),
    both!(
        "gpuprod.block.operation.time",
        "s",
        "Time of requests, summed; the kernel's counter wraps at 2^32 ms.",
        |io| millis(io.read_ms.into()),
        |io| millis(io.write_ms.into())
    ),
    Metric {
        name: "gpuprod.block.busy.time",
        kind: Kind::Counter,
        unit: "s",
        labels: &["device"],
        help: "Time with at least one request in flight; the kernel's counter wraps at 2^32 ms.",
        read: |frame, out| each(frame, |name, io| out.put(&[name], millis(io.io_ticks_ms.into()))),
    },
    Metric {
        name: "gpuprod.block.inflight",
        kind: Kind::Gauge,
        unit: "{request}",
        labels: &["device"],
        help: "Requests in flight.",
        read: |frame, out| each(frame, |name, io| out.put(&[name], io.in_flight.exact())),
    },
];

/// At most so many devices: a node with thousands of loop devices must not flood the backend.
const DEVICES: usize = 64;

/// Whole devices with counters; partitions repeat what their disk says.
fn each(frame: &Frame<'_>, mut read: impl FnMut(&str, &IoCounters)) {
    let whole = |device: &&BlockDevice| device.partition_of.is_none();
    for device in
        value(frame.known.block.as_deref()).map_or(&[][..], |block| &block.devices).iter().filter(whole).take(DEVICES)
    {
        if let Some(io) = device.io.get() {
            read(&device.name, io);
        }
    }
}

fn sectors(count: u64) -> Value {
    Bytes(count.saturating_mul(512)).exact()
}
