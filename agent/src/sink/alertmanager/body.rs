//! Alerts as Alertmanager's API v2 takes them: labels are identity and equal those of the shipped Prometheus rules;
//! everything that changes is an annotation.

use std::collections::BTreeMap;

use gpuprod_rules::Finding;
use gpuprod_snapshot::units::Nanos;
use serde::Serialize;

use crate::alerts::{Alert, Alerts, Phase, alert_name};
use crate::cost::{self, Cost};
use crate::tell;
use crate::text::{clean, utc_exact};

/// Longest annotation, in characters.
const LONGEST: usize = 4_096;
/// At most so many lines of evidence, victims and rejected causes.
const LINES: usize = 16;
/// An alert lasts at least so long: Alertmanager refuses one that ends when it begins.
const LEAST: Nanos = Nanos::from_secs(1);

/// An alert of this node that is to be posted, and how it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Identity.
    pub labels: BTreeMap<&'static str, String>,
    /// Labels of the site.
    pub site: BTreeMap<String, String>,
    /// What it says.
    pub annotations: BTreeMap<&'static str, String>,
    /// Since when, wall clock.
    pub starts_at: Nanos,
    /// When its finding ended; none while it fires.
    pub ended_at: Option<Nanos>,
}

/// One element of the posted array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Postable {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
}

/// What of the list is posted: what fires and what is over; what waits is not.
#[must_use]
pub fn items(alerts: &Alerts, findings: &[Finding], costs: &[Cost], site: &BTreeMap<String, String>) -> Vec<Item> {
    let posted = |alert: &&Alert| matches!(alert.phase, Phase::Firing | Phase::Resolved);
    let item = |alert: &Alert| Item {
        labels: labels(alert, &alerts.node),
        site: site.clone(),
        annotations: alert
            .finding(findings)
            .map_or_else(|| ended(alert), |finding| annotations(finding, cost::find(costs, finding), alert)),
        starts_at: alert.starts_at,
        ended_at: (alert.phase == Phase::Resolved).then(|| alert.ended_at.unwrap_or(alert.starts_at)),
    };
    alerts.list.iter().filter(posted).map(item).collect()
}

/// The labels of an alert without those of the site.
#[must_use]
pub fn labels(alert: &Alert, node: &str) -> BTreeMap<&'static str, String> {
    [
        ("alertname", alert_name(alert.rule)),
        ("node", held(node)),
        ("object", held(&alert.object)),
        ("rule", alert.rule.as_str().to_owned()),
        ("mode", alert.mode.as_str().to_owned()),
    ]
    .into()
}

/// As the series' labels are held: the same cap on both paths.
fn held(text: &str) -> String {
    text.chars().take(crate::catalogue::LABEL_CAP).collect()
}

fn ended(alert: &Alert) -> BTreeMap<&'static str, String> {
    let summary = if alert.summary.is_empty() { "its finding is over" } else { &alert.summary };
    [("summary", line(summary))].into()
}

/// The finding, whole: what the person who is paged reads first.
fn annotations(finding: &Finding, cost: Option<&Cost>, alert: &Alert) -> BTreeMap<&'static str, String> {
    let mut out = BTreeMap::new();
    let mut put = |name, text: String| {
        if !text.is_empty() {
            out.insert(name, text.chars().take(LONGEST).collect());
        }
    };
    put("summary", line(&finding.summary));
    put("severity", finding.severity.as_str().to_owned());
    if finding.rule != alert.rule {
        put("told_by", finding.rule.as_str().to_owned());
    }
    put("variant", line(finding.variant.as_deref().unwrap_or("")));
    put("cause", finding.cause.map_or("", |cause| cause.as_str()).to_owned());
    put("confidence", tell::sure(finding));
    put("onset", tell::began(finding));
    put("lost", tell::lost(finding, cost).unwrap_or_default());
    put("victims", line(&some(finding.victims.iter().map(|unit| unit.0.to_string()), ", ")));
    let evidence = finding.evidence.iter().map(|evidence| line(&tell::reading(evidence)));
    put("evidence", some(evidence, "\n"));
    let rejected = finding.rejected.iter().map(|rejected| line(&tell::rejected(rejected)));
    put("rejected", some(rejected, "\n"));
    put("advice", line(&finding.advice));
    put("runbook", "on the node: gpuprod check; gpuprod top".to_owned());
    out
}

/// Foreign text on one line.
fn line(text: &str) -> String {
    clean(text.trim())
}

/// The first few, and how many more there are.
fn some(items: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let more = items.len().saturating_sub(LINES);
    let mut shown: Vec<String> = items.take(LINES).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(between)
}

impl Item {
    /// As it is posted at this instant of the wall clock. A clock that has stepped back since the alert began must not
    /// leave it without an end, nor in the future: its beginning gives way, which is no part of its identity.
    #[must_use]
    pub fn postable(&self, realtime: Nanos, valid: Nanos) -> Postable {
        let (starts_at, ends_at) = match self.ended_at {
            None => (self.starts_at.min(realtime), realtime.saturating_add(valid)),
            Some(ended) => {
                let ended = ended.min(realtime);
                (self.starts_at.min(ended.saturating_sub(LEAST)), ended)
            }
        };
        let labels = self.labels.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Postable {
            labels: self.site.clone().into_iter().chain(labels).collect(),
            annotations: self.annotations.clone(),
            starts_at: utc_exact(starts_at),
            ends_at: utc_exact(ends_at),
        }
    }
}
