//! The agent about itself.

use gpuprod_snapshot::{Missing, Sample, Source};

use super::{Exact, Kind, Metric, Points};
use crate::pipeline::Frame;

macro_rules! otlp {
    ($kind:ident, $name:literal, $unit:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            labels: &[],
            help: $help,
            read: |frame, out| {
                if let Some(otlp) = &frame.own.otlp {
                    out.put(&[], otlp.$field.exact());
                }
            },
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.self.info",
        kind: Kind::Gauge,
        unit: "",
        labels: &["version"],
        help: "Version of the agent.",
        read: |_, out| out.put(&[env!("CARGO_PKG_VERSION")], 1_u32.exact()),
    },
    Metric {
        name: "gpuprod.self.tick.period",
        kind: Kind::Gauge,
        unit: "s",
        labels: &[],
        help: "Nominal length of a tick.",
        read: |frame, out| out.put(&[], frame.known.period.exact()),
    },
    Metric {
        name: "gpuprod.self.tick.timestamp",
        kind: Kind::Gauge,
        unit: "s",
        labels: &[],
        help: "Unix time of the last tick.",
        read: |frame, out| out.put(&[], frame.known.stamp.realtime.exact()),
    },
    Metric {
        name: "gpuprod.self.collector.duration",
        kind: Kind::Gauge,
        unit: "s",
        labels: &["collector"],
        help: "How long the last read of the source took.",
        read: |frame, out| {
            each(frame, out, |out, name, sample| out.put(&[name], sample.took.exact()));
        },
    },
    Metric {
        name: "gpuprod.self.collector.success",
        kind: Kind::Gauge,
        unit: "",
        labels: &["collector"],
        help: "1 when the last read of the source gave a value.",
        read: |frame, out| {
            each(frame, out, |out, name, sample| {
                out.put(&[name], sample.value.get().is_some().exact());
            });
        },
    },
    Metric {
        name: "gpuprod.self.collector.missing",
        kind: Kind::Gauge,
        unit: "",
        labels: &["collector", "reason"],
        help: "1 while the source as a whole gives nothing, and why.",
        read: |frame, out| {
            each(frame, out, |out, name, sample| {
                if let Some(missing) = sample.value.missing() {
                    out.put(&[name, Missing::as_str(missing)], 1_u32.exact());
                }
            });
        },
    },
    Metric {
        name: "gpuprod.self.collector.age",
        kind: Kind::Gauge,
        unit: "s",
        labels: &["collector"],
        help: "Age of the source's last sample at the last tick.",
        read: |frame, out| {
            let now = frame.known.stamp.boottime;
            each(frame, out, |out, name, sample| {
                out.put(&[name], now.saturating_sub(sample.at).exact());
            });
        },
    },
    Metric {
        name: "gpuprod.self.probe_hung",
        kind: Kind::Gauge,
        unit: "s",
        labels: &["collector", "call"],
        help: "For how long a read of the source has not come back, and in which call it is.",
        read: |frame, out| {
            for probe in &frame.judgement.probes {
                out.put(&[&probe.collector, &probe.call], probe.age.exact());
            }
            let now = frame.known.stamp.boottime;
            each(frame, out, |out, name, sample| {
                if let Some(hung) = &sample.hung {
                    out.put(&[name, &hung.call], now.saturating_sub(hung.since).exact());
                }
            });
        },
    },
    Metric {
        name: "gpuprod.self.config.reloads",
        kind: Kind::Counter,
        unit: "{file}",
        labels: &[],
        help: "Config files that were taken over without a restart (SIGHUP).",
        read: |frame, out| out.put(&[], frame.own.config.reloads.exact()),
    },
    Metric {
        name: "gpuprod.self.config.failures",
        kind: Kind::Counter,
        unit: "{file}",
        labels: &[],
        help: "Config files that were refused: the one before stays in force.",
        read: |frame, out| out.put(&[], frame.own.config.failures.exact()),
    },
    Metric {
        name: "gpuprod.self.config.timestamp",
        kind: Kind::Gauge,
        unit: "s",
        labels: &[],
        help: "Unix time at which the config in force was read.",
        read: |frame, out| out.put(&[], frame.own.config.taken.exact()),
    },
    Metric {
        name: "gpuprod.self.gpu_lease.remaining",
        kind: Kind::Gauge,
        unit: "s",
        labels: &[],
        help: "For how long the driver's handles stay closed (gpuprod release-gpu).",
        read: |frame, out| {
            if let Some(lease) = frame.own.lease {
                out.put(&[], lease.until.saturating_sub(frame.known.stamp.boottime).exact());
            }
        },
    },
    Metric {
        name: "gpuprod.self.clock.steps",
        kind: Kind::Counter,
        unit: "{step}",
        labels: &[],
        help: "Steps of the wall clock and counters that stepped back: noted, without effect on the ledger.",
        read: |frame, out| out.put(&[], frame.ledger.clock_steps.exact()),
    },
    otlp!(
        Counter,
        "gpuprod.self.otlp.sent",
        "{batch}",
        "Batches (exports of every series) that the OTLP peer took.",
        sent
    ),
    Metric {
        name: "gpuprod.self.otlp.failed",
        kind: Kind::Counter,
        unit: "{attempt}",
        labels: &["reason"],
        help: "Attempts to deliver by OTLP that failed; a batch is tried again unless it was refused.",
        read: |frame, out| {
            for (reason, count) in frame.own.otlp.iter().flat_map(|otlp| &otlp.failed) {
                out.put(&[reason.as_str()], (*count).exact());
            }
        },
    },
    Metric {
        name: "gpuprod.self.otlp.dropped",
        kind: Kind::Counter,
        unit: "{batch}",
        labels: &["reason"],
        help: "Batches that were given up: the queue was full (the oldest went), or the OTLP peer refused them.",
        read: |frame, out| {
            for (reason, count) in frame.own.otlp.iter().flat_map(|otlp| &otlp.dropped) {
                out.put(&[reason.as_str()], (*count).exact());
            }
        },
    },
    otlp!(
        Counter,
        "gpuprod.self.otlp.rejected",
        "{point}",
        "Points that the OTLP peer left out of batches that it took.",
        rejected
    ),
    otlp!(Gauge, "gpuprod.self.otlp.queue.size", "By", "Bytes that wait for the OTLP peer, compressed.", queue_bytes),
    Metric {
        name: "gpuprod.self.otlp.success.age",
        kind: Kind::Gauge,
        unit: "s",
        labels: &[],
        help: "Time since the OTLP peer last took a batch; nothing before the first.",
        read: |frame, out| {
            if let Some(success) = frame.own.otlp.as_ref().and_then(|otlp| otlp.success) {
                out.put(&[], frame.known.stamp.boottime.saturating_sub(success).exact());
            }
        },
    },
];

fn each(frame: &Frame<'_>, out: &mut Points, read: impl Fn(&mut Points, &'static str, &Sample<()>)) {
    for source in Source::ALL {
        if let Some(sample) = frame.known.status(*source) {
            read(out, source.as_str(), &sample);
        }
    }
}
