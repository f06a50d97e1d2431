//! Where the time of each unit went: the ledger's accounts.

use std::collections::BTreeSet;

use gpuprod_rules::{Bucket, Cause, Unknown, WeightSource};
use gpuprod_snapshot::units::Nanos;

use super::{Exact, Kind, Metric, Points, Value};
use crate::pipeline::Frame;

/// Shown with zero from the start, so that a rate over the first second of a loss, or of a restart, is not lost.
const CORE: &[(Bucket, WeightSource)] = &[
    (Bucket::Unknown(Unknown::AgentDown), WeightSource::None),
    (Bucket::Lost(Cause::Storage), WeightSource::Tokens),
    (Bucket::Lost(Cause::Unexplained), WeightSource::Tokens),
];

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.gpu.ledger",
        kind: Kind::Counter,
        unit: "s",
        labels: &["uuid", "bucket", "reason", "weight_source"],
        help: "Time of the unit by bucket, in seconds of a whole GPU; all buckets sum to the observed time.",
        read: ledger,
    },
    Metric {
        name: "gpuprod.gpu.productive",
        kind: Kind::Counter,
        unit: "h",
        labels: &["uuid"],
        help: "Productive hours of a whole GPU (on the OpenMetrics page only: the classic text allows base units alone).",
        read: productive,
    },
    Metric {
        name: "gpuprod.gpu.state.time",
        kind: Kind::Counter,
        unit: "s",
        labels: &["uuid", "state", "reason"],
        help: "Time of the unit by state, as the clock counts it.",
        read: states,
    },
    Metric {
        name: "gpuprod.gpu.observed",
        kind: Kind::Counter,
        unit: "s",
        labels: &["uuid"],
        help: "Time that the ledger has booked for the unit, the unknown included, in seconds of a whole GPU.",
        read: |frame, out| {
            for (unit, account) in &frame.ledger.accounts {
                out.put(&[&unit.0], account.observed_gpu().exact());
            }
        },
    },
];

fn ledger(frame: &Frame<'_>, out: &mut Points) {
    for (unit, account) in &frame.ledger.accounts {
        let put = |out: &mut Points, bucket: Bucket, source: WeightSource, value| {
            let labels = [&*unit.0, bucket.as_str(), bucket.reason(), source.as_str()];
            out.put(&labels, value);
        };
        let mut seen = BTreeSet::new();
        for total in account.totals() {
            seen.insert((total.bucket, total.source));
            put(out, total.bucket, total.source, total.time.exact());
        }
        for (bucket, source) in CORE {
            if !seen.contains(&(*bucket, *source)) {
                put(out, *bucket, *source, Nanos(0).exact());
            }
        }
    }
}

fn productive(frame: &Frame<'_>, out: &mut Points) {
    for (unit, account) in &frame.ledger.accounts {
        let hours = account.productive().as_secs_f64() / 3600.0;
        out.put(&[&unit.0], Value::Float(hours));
    }
}

fn states(frame: &Frame<'_>, out: &mut Points) {
    for (unit, account) in &frame.ledger.accounts {
        for (state, time) in account.states() {
            out.put(&[&unit.0, state.as_str(), state.reason()], time.exact());
        }
    }
}
