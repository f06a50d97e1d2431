//! The catalogue as a page: Prometheus text 0.0.4 and OpenMetrics 1.0.

use std::fmt::Write as _;

use gpuprod_snapshot::is_unseen;

use crate::catalogue::{self, Kind, Metric, Value, names};
use crate::pipeline::Frame;

/// Which form of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Form {
    /// The one that an `Accept` header asks for: OpenMetrics when it is named and not refused with `q=0`.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let wanted = accept.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            parts.next() == Some("application/openmetrics-text") && !parts.any(|part| matches!(part, "q=0" | "q=0.0"))
        });
        if wanted { Self::OpenMetrics } else { Self::Text }
    }

    /// The `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The whole page. Families without a point are left out.
///
/// The classic text can declare no unit, so its linter allows base units alone: hours, which the contract names,
/// stand on the OpenMetrics page only, with their `# UNIT`. That is the form that Prometheus asks for.
#[must_use]
pub fn page(frame: &Frame<'_>, form: Form) -> String {
    let mut page = String::with_capacity(1 << 16);
    for metric in catalogue::all() {
        if form == Form::OpenMetrics || metric.unit != "h" {
            family(&mut page, metric, &catalogue::points(metric, frame), form);
        }
    }
    if form == Form::OpenMetrics {
        page.push_str("# EOF\n");
    }
    page
}

fn family(page: &mut String, metric: &Metric, rows: &[(Vec<String>, Value)], form: Form) {
    if rows.is_empty() {
        return;
    }
    let series = names::series(metric);
    let family = match form {
        Form::Text => series.clone(),
        Form::OpenMetrics => names::family(metric),
    };
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(page, "# HELP {family} {}", metric.help);
    let _ = writeln!(page, "# TYPE {family} {kind}");
    if let (Form::OpenMetrics, Some(unit)) = (form, names::unit_word(metric)) {
        let _ = writeln!(page, "# UNIT {family} {unit}");
    }
    for (labels, value) in rows {
        page.push_str(&series);
        for (place, (name, value)) in metric.labels.iter().zip(labels).enumerate() {
            let _ = write!(page, "{}{name}=\"", if place == 0 { '{' } else { ',' });
            escape(page, value);
            page.push('"');
        }
        if !metric.labels.is_empty() {
            page.push('}');
        }
        page.push(' ');
        number(page, *value);
        page.push('\n');
    }
}

/// Names come from engines and jobs, and the page is read on terminals too: what does not show stands there as its
/// number. One `?` for all of them would give two names one series.
fn escape(page: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            c if is_unseen(c) => {
                let _ = write!(page, "\\\\u{{{:x}}}", u32::from(c));
            }
            c => page.push(c),
        }
    }
}

/// A number as it stands on the page.
#[must_use]
pub fn text(value: Value) -> String {
    let mut text = String::new();
    number(&mut text, value);
    text
}

fn number(page: &mut String, value: Value) {
    let _ = match value {
        Value::Float(value) => write!(page, "{value}"),
        Value::Decimal(value, 0) => write!(page, "{value}"),
        Value::Decimal(value, digits) => {
            let unit = 10_u128.pow(digits.into());
            let magnitude = value.unsigned_abs();
            let (whole, rest) = (magnitude / unit, magnitude % unit);
            let sign = if value < 0 { "-" } else { "" };
            if rest == 0 {
                write!(page, "{sign}{whole}")
            } else {
                let rest = format!("{rest:0width$}", width = usize::from(digits));
                write!(page, "{sign}{whole}.{}", rest.trim_end_matches('0'))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        assert_eq!(text(Value::Decimal(9_007_199_254_740_993_000_000_001, 9)), "9007199254740993.000000001");
        assert_eq!(text(Value::Decimal(1_500, 3)), "1.5");
        assert_eq!(text(Value::Decimal(-40, 0)), "-40");
        assert_eq!(text(Value::Decimal(-1_250, 3)), "-1.25");
        assert_eq!(text(Value::Decimal(2_000_000_000, 9)), "2");
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = String::new();
        escape(&mut page, "a\"b\\c\nd");
        assert_eq!(page, "a\\\"b\\\\c\\nd");
    }

    #[test]
    fn labels_carry_nothing_to_a_terminal() {
        let shown = |value: &str| {
            let mut page = String::new();
            escape(&mut page, value);
            page
        };
        assert_eq!(shown("a\x1b[31m\x07\x7f"), r"a\\u{1b}[31m\\u{7}\\u{7f}");
        assert_eq!(
            shown("a\u{9b}31m\u{202e}\u{2069}\u{200f}\u{61c}é"),
            r"a\\u{9b}31m\\u{202e}\\u{2069}\\u{200f}\\u{61c}é"
        );
        assert_ne!(shown("a\x1b"), shown("a\u{9b}"), "two names stay two series");
    }

    #[test]
    fn accept_decides() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Form::accepted(prometheus), Form::OpenMetrics);
        assert_eq!(Form::accepted("text/plain"), Form::Text);
        assert_eq!(Form::accepted("application/openmetrics-text;q=0"), Form::Text);
        assert_eq!(Form::accepted(""), Form::Text);
    }
}
