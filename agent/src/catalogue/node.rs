//! The node as a whole: whether jobs should be placed here.

use gpuprod_rules::node::Verdict;

use super::{Exact, Kind, Metric};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.node.fit",
        kind: Kind::Gauge,
        unit: "",
        labels: &["class"],
        help: "Whether the next job of the class should be placed here: 0 unfit, 1 degraded, 2 fit. Absent while it cannot be told.",
        read: |frame, out| {
            for fit in &frame.judgement.node.fit {
                let value = match fit.verdict {
                    Verdict::Unfit => 0_u32,
                    Verdict::Degraded => 1,
                    Verdict::Fit => 2,
                    Verdict::CannotTell => continue,
                };
                out.put(&[fit.class.as_str()], value.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.node.fit.unknown",
        kind: Kind::Gauge,
        unit: "",
        labels: &["class"],
        help: "1 while it cannot be told whether jobs of the class should be placed here.",
        read: |frame, out| {
            for fit in &frame.judgement.node.fit {
                out.put(&[fit.class.as_str()], u32::from(fit.verdict == Verdict::CannotTell).exact());
            }
        },
    },
    Metric {
        name: "gpuprod.residual",
        kind: Kind::Gauge,
        unit: "1",
        labels: &["resource"],
        help: "Free part of a resource of the node. A resource whose capacity is not known, or not learnt yet, is absent.",
        read: |frame, out| {
            for residual in &frame.judgement.node.residual {
                out.put(&[residual.resource.as_str()], residual.ratio.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.residual.free",
        kind: Kind::Gauge,
        unit: "",
        labels: &["resource", "unit"],
        help: "What is free of a resource of the node, in the unit of its label.",
        read: |frame, out| {
            for residual in &frame.judgement.node.residual {
                out.put(&[residual.resource.as_str(), residual.resource.unit()], residual.free.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.residual.capacity",
        kind: Kind::Gauge,
        unit: "",
        labels: &["resource", "unit"],
        help: "All of a resource of the node: what hardware says it has, or the most that drives were seen to give.",
        read: |frame, out| {
            for residual in &frame.judgement.node.residual {
                out.put(&[residual.resource.as_str(), residual.resource.unit()], residual.capacity.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.node.room",
        kind: Kind::Gauge,
        unit: "{job}",
        labels: &["shape"],
        help: "So many jobs of the shape (rules.shapes) find room on the node. Absent while that cannot be told.",
        read: |frame, out| {
            for room in &frame.judgement.node.rooms {
                if let Some(jobs) = room.jobs {
                    out.put(&[&room.shape], jobs.exact());
                }
            }
        },
    },
    Metric {
        name: "gpuprod.node.stranded",
        kind: Kind::Gauge,
        unit: "{gpu}",
        labels: &[],
        help: "GPUs that nobody has and jobs cannot use for want of another resource, weighted by the part of the shapes that is kept out.",
        read: |frame, out| {
            if let Some(stranded) = frame.judgement.node.stranded() {
                out.put(&[], stranded.exact());
            }
        },
    },
];
