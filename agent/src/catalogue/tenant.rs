//! Whose the time was, what the GPUs are for, and what an hour of them costs.

use std::collections::BTreeMap;

use gpuprod_snapshot::units::Nanos;

use super::{Exact, Kind, Metric, Points, Value};
use crate::pipeline::Frame;

/// What belongs to nobody.
const NOBODY: &str = "unattributed";

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.tenant.ledger",
        kind: Kind::Counter,
        unit: "s",
        labels: &["tenant", "bucket", "reason", "weight_source"],
        help: "Time of this node's units by tenant, in seconds of a whole GPU; with `unattributed` and `other` it sums to gpuprod.gpu.ledger.",
        read: ledger,
    },
    Metric {
        name: "gpuprod.tenant.externality",
        kind: Kind::Counter,
        unit: "s",
        labels: &["cause_tenant", "victim_tenant", "resource"],
        help: "GPU time that one tenant's use of a resource beyond its equal share cost another; a part of what was lost to that cause.",
        read: externality,
    },
    Metric {
        name: "gpuprod.tenant.energy",
        kind: Kind::Counter,
        unit: "J",
        labels: &["tenant"],
        help: "Energy of this node's GPUs by tenant, split as their time is; with `unattributed` and `other` it sums to what the GPUs took while the ledger looked.",
        read: energy,
    },
    Metric {
        name: "gpuprod.tenant.io",
        kind: Kind::Counter,
        unit: "By",
        labels: &["tenant", "direction"],
        help: "Bytes that the cgroups of a tenant's GPU workloads read from block devices and wrote there, while the agent looked.",
        read: io,
    },
    Metric {
        name: "gpuprod.gpu.class",
        kind: Kind::Gauge,
        unit: "",
        labels: &["uuid", "model", "class", "declared"],
        help: "1 for what the unit is for now, and whether that was declared or is inferred.",
        read: |frame, out| {
            for unit in &frame.judgement.units {
                let declared = if unit.class_inferred { "false" } else { "true" };
                let model = unit.model.as_deref().unwrap_or_default();
                out.put(&[&unit.unit.0, model, unit.class.as_str(), declared], 1_u32.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.price",
        kind: Kind::Gauge,
        unit: "",
        labels: &["model", "class", "currency"],
        help: "Money per hour of a whole GPU of this model and class, as the price list has it now. Money itself is a recording rule.",
        read: |frame, out| {
            for price in &frame.own.prices {
                let labels = [price.model.as_str(), price.class.as_str(), price.currency.as_str()];
                out.put(&labels, Value::Decimal(price.per_gpu_hour_millionths.into(), 6));
            }
        },
    },
];

fn ledger(frame: &Frame<'_>, out: &mut Points) {
    if frame.own.tenants_hidden {
        return;
    }
    let mut totals: BTreeMap<_, Nanos> = BTreeMap::new();
    for account in frame.ledger.accounts.values() {
        for (key, time) in account.tenants() {
            let total = totals.entry(key).or_default();
            *total = total.saturating_add(time);
        }
    }
    // Where nobody is named there is nothing to tell apart.
    if totals.keys().all(|(tenant, ..)| tenant.is_none()) {
        return;
    }
    for ((tenant, bucket, source), time) in totals {
        let labels = [tenant.unwrap_or(NOBODY), bucket.as_str(), bucket.reason(), source.as_str()];
        out.put(&labels, time.exact());
    }
}

fn externality(frame: &Frame<'_>, out: &mut Points) {
    if frame.own.tenants_hidden {
        return;
    }
    let mut totals: BTreeMap<_, Nanos> = BTreeMap::new();
    for account in frame.ledger.accounts.values() {
        for (key, time) in account.external() {
            let total = totals.entry(key).or_default();
            *total = total.saturating_add(time);
        }
    }
    for ((resource, cause, victim), time) in totals {
        out.put(&[cause, victim.unwrap_or(NOBODY), resource.as_str()], time.exact());
    }
}

fn energy(frame: &Frame<'_>, out: &mut Points) {
    let totals = frame.ledger.energy();
    if frame.own.tenants_hidden || totals.keys().all(Option::is_none) {
        return;
    }
    for (tenant, microjoules) in totals {
        out.put(&[tenant.unwrap_or(NOBODY)], Value::Decimal(microjoules.into(), 6));
    }
}

fn io(frame: &Frame<'_>, out: &mut Points) {
    let all = &frame.ledger.io;
    if frame.own.tenants_hidden || all.iter().all(|io| io.tenant.is_none()) {
        return;
    }
    for io in all {
        let tenant = io.tenant.as_deref().unwrap_or(NOBODY);
        out.put(&[tenant, "read"], io.read.exact());
        out.put(&[tenant, "write"], io.written.exact());
    }
}
