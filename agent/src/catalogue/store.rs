//! The store: whether counters move, and what it had to let go.

use super::{Exact, Kind, Metric, Points, Value};
use crate::pipeline::Frame;
use crate::store::Status;

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.self.store.lag",
        kind: Kind::Gauge,
        unit: "s",
        labels: &[],
        help: "How far the shown counters are behind the last tick: usually under 6 s; it grows while the disk does not answer.",
        read: |frame, out| one(frame, out, |status| status.lag.exact()),
    },
    Metric {
        name: "gpuprod.self.store.start.timestamp",
        kind: Kind::Gauge,
        unit: "s",
        labels: &[],
        help: "Unix time at which the ledger's counters began at zero; it survives restarts.",
        read: |frame, out| {
            if let Some(start) = frame.own.store.as_ref().and_then(|status| status.start) {
                out.put(&[], start.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.self.store.commits",
        kind: Kind::Counter,
        unit: "{commit}",
        labels: &[],
        help: "Commits of this process.",
        read: |frame, out| one(frame, out, |status| status.commits.exact()),
    },
    Metric {
        name: "gpuprod.self.store.errors",
        kind: Kind::Counter,
        unit: "{error}",
        labels: &["reason"],
        help: "Commits and reads of the store that failed; what was to be written is kept and tried again.",
        read: |frame, out| {
            for (reason, count) in frame.own.store.iter().flat_map(|status| &status.errors) {
                out.put(&[reason], count.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.self.store.outbox.size",
        kind: Kind::Gauge,
        unit: "By",
        labels: &[],
        help: "What waits to be sent.",
        read: |frame, out| one(frame, out, |status| status.outbox_bytes.exact()),
    },
    Metric {
        name: "gpuprod.self.store.outbox.dropped",
        kind: Kind::Counter,
        unit: "{body}",
        labels: &[],
        help: "Bodies that had to leave the queue before they were sent, the oldest first.",
        read: |frame, out| one(frame, out, |status| status.outbox_dropped.exact()),
    },
    Metric {
        name: "gpuprod.self.store.history.size",
        kind: Kind::Gauge,
        unit: "By",
        labels: &[],
        help: "What the history takes.",
        read: |frame, out| one(frame, out, |status| status.history_bytes.exact()),
    },
    Metric {
        name: "gpuprod.self.store.history.dropped",
        kind: Kind::Counter,
        unit: "{tick}",
        labels: &[],
        help: "Ticks that the history lacks because the disk did not take them in time.",
        read: |frame, out| one(frame, out, |status| status.history_dropped.exact()),
    },
];

fn one(frame: &Frame<'_>, out: &mut Points, read: impl Fn(&Status) -> Value) {
    if let Some(status) = &frame.own.store {
        out.put(&[], read(status));
    }
}
