//! The node's own state: pressure.

use gpuprod_snapshot::host::{Pressure, Pressures, Stall};
use gpuprod_snapshot::units::Nanos;

use super::{Exact, Kind, Metric, value};
use crate::pipeline::Frame;

pub(super) const METRICS: &[Metric] = &[Metric {
    name: "gpuprod.psi.stalled",
    kind: Kind::Counter,
    unit: "s",
    labels: &["resource", "kind"],
    help: "Time in which some, or all, tasks of the node waited for the resource.",
    read: |frame, out| {
        each(frame, |resource, pressure| {
            let stalled = |stall: &Stall| -> Nanos { stall.total };
            out.put(&[resource, "some"], stalled(&pressure.some).exact());
            if let Some(full) = pressure.full.get() {
                out.put(&[resource, "full"], stalled(full).exact());
            }
        });
    },
}];

fn each(frame: &Frame<'_>, mut read: impl FnMut(&str, &Pressure)) {
    let Some(psi) = value(frame.known.psi.as_deref()) else {
        return;
    };
    let Pressures { cpu, io, memory } = &psi.system;
    for (resource, pressure) in [("cpu", cpu), ("io", io), ("memory", memory)] {
        if let Some(pressure) = pressure.get() {
            read(resource, pressure);
        }
    }
}
