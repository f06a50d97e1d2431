//! What the operator is told: the series that the shipped Prometheus rules read, and how direct posts fare.

use gpuprod_snapshot::units::Nanos;

use super::{Exact, Kind, Metric};
use crate::alerts::Posts;

macro_rules! posts {
    ($name:literal, $unit:literal, $kind:ident, $help:literal, $read:expr) => {
        Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            labels: &["alertmanager"],
            help: $help,
            read: |frame, out| {
                let read: fn(&Posts) -> Option<super::Value> = $read;
                for posts in &frame.alerts.posts {
                    if let Some(value) = read(posts) {
                        out.put(&[&posts.alertmanager], value);
                    }
                }
            },
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.node.info",
        kind: Kind::Gauge,
        unit: "",
        labels: &["node"],
        help: "The node's name, as its alerts carry it; join other series to it by instance.",
        read: |frame, out| {
            if !frame.alerts.node.is_empty() {
                out.put(&[&frame.alerts.node], 1_u32.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.alert.active",
        kind: Kind::Gauge,
        unit: "",
        labels: &["node", "rule", "object", "mode"],
        help: "1 while the finding about the object is an alert: a ticket or a page. The shipped rules hand it on.",
        read: |frame, out| {
            let alerts = frame.alerts.as_ref();
            for alert in alerts.list.iter().filter(|alert| alert.is_active()) {
                let labels = [&alerts.node, alert.rule.as_str(), &alert.object, alert.mode.as_str()];
                out.put(&labels, 1_u32.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.rule.mode",
        kind: Kind::Gauge,
        unit: "",
        labels: &["rule", "mode"],
        help: "1 for what the rule may do when it fires: off, shadow (series only), ticket, page.",
        read: |frame, out| {
            for (rule, mode) in &frame.alerts.modes {
                out.put(&[rule.as_str(), mode.as_str()], 1_u32.exact());
            }
        },
    },
    Metric {
        name: "gpuprod.self.alerts.suppressed",
        kind: Kind::Counter,
        unit: "{alert}",
        labels: &["reason"],
        help: "Alerts held back: silence (a maintenance window, nobody was told), limit (a page above the hour's limit went as a ticket).",
        read: |frame, out| {
            if !frame.alerts.node.is_empty() {
                out.put(&["silence"], frame.alerts.suppressed.silence.exact());
                out.put(&["limit"], frame.alerts.suppressed.limit.exact());
            }
        },
    },
    posts!("gpuprod.self.alerts.posts", "{post}", Counter, "Posts that the Alertmanager took.", |posts| Some(
        posts.taken.exact()
    )),
    posts!(
        "gpuprod.self.alerts.failures",
        "{post}",
        Counter,
        "Posts that failed: not reached, too slow or refused.",
        |posts| Some(posts.failed.exact())
    ),
    posts!(
        "gpuprod.self.alerts.last_post.timestamp",
        "s",
        Gauge,
        "Unix time of the last post that the Alertmanager took.",
        |posts| posts.last_taken.map(Nanos::exact)
    ),
];
