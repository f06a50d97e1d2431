//! What the rules say, and whether they could speak at all.

use std::collections::BTreeMap;

use gpuprod_rules::{RuleReport, RuleStatus};

use super::{Exact, Kind, Metric};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.rule.active",
        kind: Kind::Gauge,
        unit: "",
        labels: &["rule", "severity", "subject"],
        help: "1 while the rule has a finding about the subject (an array, a disk, a GPU).",
        read: |frame, out| {
            for finding in frame.judgement.findings.iter().take(FINDINGS) {
                let labels = [finding.rule.as_str(), finding.severity.as_str(), finding.subject.as_str()];
                out.put(&labels, 1_u32.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.rule.victims",
        kind: Kind::Gauge,
        unit: "{unit}",
        labels: &["rule", "subject"],
        help: "Units that suffer from the finding.",
        read: |frame, out| {
            for finding in frame.judgement.findings.iter().take(FINDINGS) {
                let victims = u64::try_from(finding.victims.len()).unwrap_or(u64::MAX);
                out.put(&[finding.rule.as_str(), &finding.subject], victims.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.rule.state",
        kind: Kind::Gauge,
        unit: "{unit}",
        labels: &["rule", "status"],
        help: "Units about which the rule was evaluated, is unsupported, absent or suspended: a rule that is silently dead shows here.",
        read: |frame, out| {
            let mut count: BTreeMap<(&str, &str), u64> = BTreeMap::new();
            for report in &frame.judgement.rules {
                *count.entry((report.rule.as_str(), status(report))).or_default() += 1;
            }
            for ((rule, status), units) in count {
                out.put(&[rule, status], units.exact());
            }
        },
    },
];

/// At most so many findings.
const FINDINGS: usize = 64;

fn status(report: &RuleReport) -> &'static str {
    match report.status {
        RuleStatus::Evaluated => "evaluated",
        RuleStatus::Unsupported(_) => "unsupported",
        RuleStatus::Absent => "absent",
        RuleStatus::Suspended(_) => "suspended",
    }
}
