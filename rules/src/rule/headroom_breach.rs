//! The engine is too near its capacity for the bursts that it must expect, or far too far from it.

use alloc::format;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::units::Nanos;

use super::queueing::{claim, fresh};
use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::serving::{self, Room};
use crate::signals::engine_load::EngineLoad;
use crate::{Evidence, Micro, Part, Severity};

thresholds! {
    /// Thresholds of `headroom_breach`.
    pub struct Thresholds {
        /// Share of the requests' time that is spent in the queue, in millionths, from which an engine is too near its
        /// capacity (handbook, serving sizing: a material share).
        queued: Part = Part(200_000), Part(0)..=Part::ONE;
        /// Blocks of 5 s, of the last twelve, that must show it. Forty seconds of a minute: one burst is what the room
        /// is for.
        blocks: u32 = 8, 1..=12;
        /// How many times its mean the busiest minute of a hundred has, as long as half an hour of the engine's own requests
        /// was not seen (Azure conversation trace: 1.5; its code trace has 3.8).
        burst: f64 = 1.5, 1.0..=100.0;
        /// Room that is so many times what a burst takes is more than anybody needs. Twice: capacity that two bursts
        /// at once would not fill (handbook, serving sizing).
        spare: f64 = 2.0, 1.0..=100.0;
        /// Nobody may have come, or there must have been that much room, for so long before it is called over-reserved
        /// (information). A day: the trough of a daily course is no surplus.
        over_reserved_ns: Nanos = Nanos::from_secs(86_400), Nanos::from_secs(3_600)..=Nanos::from_secs(2_592_000);
        /// How long it must last. A minute: shorter is one burst of the public traces (Azure), which the room is for.
        for_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
        /// How long it must be good before the finding ends. As long as it takes to be told (for_ns), so that a queue
        /// around the limit is one finding.
        clear_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The engine has no room left for bursts: what it has left of its capacity is less than a burst takes (burst, information), \
            or requests spend a material share of their time in its queue (queue_share, information); or it has had far more \
            room than that, or nothing to do, for a day (over_reserved, information).",
    inputs: "Tokens, running and waiting requests, histograms of queue time and of whole requests of the engine's page. Its \
             capacity is learnt: what it did (90th percentile, prompts and generated tokens apart) while requests waited for ten \
             seconds and nothing was wrong. So are its bursts: arrivals per minute, over four hours.",
    formula: "burst: over a minute, capacity less load is below load times (burst - 1), its own burst, after half an hour of its requests. queue_share: the mean queue time is queued \
              of the mean request and more, in blocks of the last twelve blocks, over for_ns. over_reserved: no request, or spare \
              times that room, for over_reserved_ns. Ends after clear_ns.",
    silent: "Short queues; an engine whose page shows no queue times.",
    advice: "burst, queue_share: add a replica before the next burst. over_reserved: fewer replicas, or another model beside it.",
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
            evidence: alloc::vec![Evidence::plain("time without a request", &engine.url, hours, "h")],
            advice: TEXT.advice.into(),
            ..claim(view, engine, Severity::Info, since)
        });
    }
    if let Some(since) = load.roomy.0
        && view.host.now.saturating_sub(since) >= rule.over_reserved_ns
    {
        let hours = view.host.now.saturating_sub(since).as_secs_f64() / 3600.0;
        return Outcome::Claim(Claim {
            variant: Some("over_reserved".into()),
            summary: format!("more than twice the room that its bursts take, for {} h", Micro::from_f64(hours)),
            evidence: alloc::vec![Evidence::plain("time with room to spare", &engine.url, hours, "h")],
            advice: TEXT.advice.into(),
            ..claim(view, engine, Severity::Info, since)
        });
    }
    // To stay takes a little less than to enter.
    let slack = if view.active { 1.2 } else { 1.0 };
    // How bursty others' requests are is no evidence against this engine: its own must have been seen.
    let (burst, learnt) = serving::burst(load, view.policy);
    let room = if learnt { serving::room(load, view.policy) } else { None };
    if let Some(room) = room.filter(|room| room.usable < room.needed * slack) {
        return tight(view, (engine, load), room, burst);
    }
    if engine.queue_time.get().is_none() || engine.e2e.get().is_none() {
        return Outcome::Unsupported("the engine's page has no queue times".into());
    }
    let limit = rule.queued.as_fraction() / if view.active { 2.0 } else { 1.0 };
    let mut blocks = load.latencies.queued.recent().rev().flatten().take(12).peekable();
    let Some(latest) = blocks.peek().copied() else {
        return Outcome::Suspended("too few requests finish to tell their queue time".into());
    };
    let over = u32::try_from(blocks.filter(|share| *share >= limit).count()).unwrap_or(0);
    if over < rule.blocks {
        return Outcome::Silent;
    }
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
            ..Evidence::plain("queue time, of the time of whole requests", &engine.url, latest * 100.0, "%")
        }],
        advice: TEXT.advice.into(),
        ..claim(view, engine, Severity::Info, view.host.now.saturating_sub(rule.for_ns))
    })
}

/// What is left is less than a burst takes.
fn tight(view: &View<'_>, (engine, load): (&Engine, &EngineLoad), room: Room, burst: f64) -> Outcome {
    let percent = |part: f64| Micro::from_f64(libm::round(part * 100.0));
    let most = load.capacity.most.unwrap_or_default();
    let mut proof = alloc::vec![
        Evidence::plain("load of the last minute, of its capacity", &engine.url, room.load * 100.0, "%"),
        Evidence::plain("what a burst takes on top, of its capacity", &engine.url, room.needed * 100.0, "%"),
        Evidence::plain("busiest minute of a hundred, over the mean", &engine.url, burst, "x"),
    ];
    for (what, rate) in [("prompt tokens at its limit", most.prefill), ("generated tokens at its limit", most.decode)] {
        proof.push(Evidence::plain(what, &engine.url, rate, "tok/s"));
    }
    Outcome::Claim(Claim {
        variant: Some("burst".into()),
        summary: format!(
            "{} % of its capacity is in use, and a burst takes {} % more",
            percent(room.load),
            percent(room.needed)
        ),
        evidence: proof,
        advice: TEXT.advice.into(),
        ..claim(view, engine, Severity::Info, view.host.now.saturating_sub(view.policy.headroom_breach.for_ns))
    })
}
