//! The engine is too near its capacity for the bursts that it must expect, or far too far from it.

use alloc::format;

use gpuprod_snapshot::units::Nanos;

use super::queueing::{claim, evidence, fresh};
use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::{Evidence, Micro, Part, Severity};

thresholds! {
    /// Thresholds of `headroom_breach`.
    pub struct Thresholds {
        /// Share of the requests' time that is spent in the queue, in millionths, from which an engine is too near its
        /// capacity (handbook, serving sizing: a material share).
        queued: Part = Part(200_000), Part(0)..=Part::ONE;
        /// Blocks of 5 s, of the last twelve, that must show it.
        blocks: u32 = 8, 1..=12;
        /// Nobody may have come for so long before it is called over-reserved (information).
        over_reserved_ns: Nanos = Nanos::from_secs(86_400), Nanos::from_secs(3_600)..=Nanos::from_secs(2_592_000);
        /// How long it must last.
        for_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
        /// How long it must be good before the finding ends.
        clear_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The engine has no room left for bursts: requests spend a material share of their time in its queue (queue_share, information); or \
            it has had nothing to do for a day (over_reserved, information).",
    inputs: "Histograms of queue time and of whole requests, running and waiting requests of the engine's page.",
    formula: "queue_share: the mean queue time is queued of the mean request and more, in blocks of the last twelve blocks, over \
              for_ns. over_reserved: no request for over_reserved_ns. Ends after clear_ns.",
    silent: "Short queues; an engine whose page shows no queue times.",
    advice: "queue_share: add a replica before the next burst. over_reserved: fewer replicas, or another model beside it.",
    blind: "The capacity of an engine that was never at its limit; bursts longer than what was seen.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (engine, load) = match fresh(view) {
        Ok(found) => found,
        Err(outcome) => return *outcome,
    };
    let rule = &view.policy.headroom_breach;
    if let Some(since) = load.idle.0
        && view.host.now.saturating_sub(since) >= rule.over_reserved_ns
    {
        let hours = view.host.now.saturating_sub(since).as_secs_f64() / 3600.0;
        return Outcome::Claim(Claim {
            variant: Some("over_reserved".into()),
            summary: format!("ready, and not asked for {} h", Micro::from_f64(hours)),
            evidence: alloc::vec![evidence("time without a request", &engine.url, hours, "h")],
            advice: TEXT.advice.into(),
            ..claim(view, engine, Severity::Info, since)
        });
    }
    if engine.queue_time.get().is_none() || engine.e2e.get().is_none() {
        return Outcome::Unsupported("the engine's page has no queue times".into());
    }
    let limit = rule.queued.as_fraction() / if view.active { 2.0 } else { 1.0 };
    let blocks: alloc::vec::Vec<f64> = load.latencies.queued.recent().flatten().collect();
    let last = blocks.iter().rev().take(12);
    let over = u32::try_from(last.clone().filter(|share| **share >= limit).count()).unwrap_or(0);
    if blocks.is_empty() {
        return Outcome::Suspended("too few requests finish to tell their queue time".into());
    }
    if over < rule.blocks {
        return Outcome::Silent;
    }
    let latest = blocks.last().copied().unwrap_or(0.0);
    let normal = load.latencies.queued.deviation(view.policy).map(|deviation| crate::baseline::Deviation {
        value: deviation.value * 100.0,
        normal: deviation.normal * 100.0,
        spread: deviation.spread * 100.0,
        ..deviation
    });
    Outcome::Claim(Claim {
        variant: Some("queue_share".into()),
        summary: format!("requests spend {} % of their time in the queue", Micro::from_f64(latest * 100.0)),
        evidence: alloc::vec![Evidence {
            normal: normal.map(|normal| normal.as_normal()),
            ..evidence("queue time, of the time of whole requests", &engine.url, latest * 100.0, "%")
        }],
        advice: TEXT.advice.into(),
        ..claim(view, engine, Severity::Info, view.host.now.saturating_sub(rule.for_ns))
    })
}
