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
];
