//! Prometheus names, derived by the rule of OpenTelemetry's compatibility specification: dots become underscores,
//! the unit's word is appended, then `_total` for counters; nothing is doubled; `{annotations}` are dropped.

use super::{Kind, Metric};

/// UCUM unit and the word that Prometheus uses.
const WORDS: &[(&str, &str)] = &[
    ("s", "seconds"),
    ("h", "hours"),
    ("By", "bytes"),
    ("W", "watts"),
    ("J", "joules"),
    ("Hz", "hertz"),
    ("Cel", "celsius"),
    ("By/s", "bytes_per_second"),
    ("/s", "per_second"),
];

/// The unit's word; none for what has none.
#[must_use]
pub fn unit_word(metric: &Metric) -> Option<&'static str> {
    if metric.unit == "1" {
        return (metric.kind == Kind::Gauge).then_some("ratio");
    }
    // What is counted is an annotation, and no part of the name: `{token}/s`.
    let bare =
        metric.unit.strip_prefix('{').and_then(|unit| unit.split_once('}')).map_or(metric.unit, |(_, rest)| rest);
    WORDS.iter().find(|(unit, _)| *unit == bare).map(|(_, word)| *word)
}

/// The family's name as OpenMetrics writes it: without `_total`.
#[must_use]
pub fn family(metric: &Metric) -> String {
    let mut name = metric.name.replace('.', "_");
    if metric.kind == Kind::Counter {
        name = name.strip_suffix("_total").unwrap_or(&name).to_owned();
    }
    if let Some(word) = unit_word(metric)
        && !name.ends_with(&format!("_{word}"))
    {
        name.push('_');
        name.push_str(word);
    }
    name
}

/// The name of the series.
#[must_use]
pub fn series(metric: &Metric) -> String {
    let family = family(metric);
    match metric.kind {
        Kind::Counter => format!("{family}_total"),
        Kind::Gauge => family,
    }
}

/// The list as text: series, kind, labels, help.
#[must_use]
pub fn table(metrics: &[&Metric]) -> String {
    let row = |metric: &&Metric| {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let unit = if metric.unit.is_empty() { "-" } else { metric.unit };
        format!(
            "{} ({kind})\n    {} in {unit}, labels: {}\n    {}\n",
            series(metric),
            metric.name,
            if metric.labels.is_empty() { "none".to_owned() } else { metric.labels.join(", ") },
            metric.help
        )
    };
    metrics.iter().map(row).collect()
}
