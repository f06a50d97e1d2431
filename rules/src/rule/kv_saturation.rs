//! The KV cache is full and requests wait for room in it.

use alloc::format;

use gpuprod_snapshot::units::Nanos;

use super::queueing::{before_deficit, claim, costs, fresh};
use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity};

thresholds! {
    /// Thresholds of `kv_saturation`.
    pub struct Thresholds {
        /// Use of the cache, in millionths, from which it is full. It never stays at 1: a paged engine under the public
        /// conversation trace has .95 and more in 71 to 80 % of the seconds, .91 to .93 on average.
        full: Part = Part(950_000), Part(0)..=Part::ONE;
        /// Share of the last minute, in millionths, for which it must be full. More than half of it: under the public
        /// traces a full cache breathes with every request that ends (Azure, Mooncake, engine simulated).
        share: Part = Part(600_000), Part(0)..=Part::ONE;
        /// Use below which it is over, in millionths. A tenth below full: contexts that end at once make room of that
        /// size without the trouble being over.
        clear: Part = Part(850_000), Part(0)..=Part::ONE;
        /// A queue that takes longer than this at the pace of the last minute is critical: whoever comes now waits so long.
        drain_ns: Nanos = Nanos::from_secs(120), Nanos::from_secs(1)..=Nanos::from_secs(86_400);
        /// It must have room for so long before the finding ends. As long as it is looked at (share): a minute without
        /// trouble after a minute of it.
        clear_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The KV cache is full and requests wait for room in it: the engine is at its capacity for contexts, not for arithmetic.",
    inputs: "KV usage, waiting requests, preemptions and finished requests of the engine's page.",
    formula: "Full (usage of full and more, or a request is preempted: none is while there is room) in share of the last minute's \
              seconds, while requests wait in most of them or are preempted. \
              Critical when the queue takes longer than drain_ns. Ends after clear_ns below clear.",
    silent: "A full cache without a queue (that is good), and one that filled after the engine had slowed down (a consequence, \
             told as information).",
    advice: "Lower max-model-len or raise gpu_memory_utilization, put the cache in a smaller type (fp8), add a replica, or \
             limit admission upstream.",
    blind: "Which client's contexts fill the cache.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (engine, load) = match fresh(view) {
        Ok(found) => found,
        Err(outcome) => return *outcome,
    };
    let rule = &view.policy.kv_saturation;
    let Some(usage) = engine.kv_usage.copied() else {
        return Outcome::Unsupported("the engine's page does not show the use of its KV cache".into());
    };
    let minute = Nanos::from_secs(60);
    let Some(full) = load.lately.full else {
        return Outcome::Suspended("less than half a minute was seen".into());
    };
    let last = Nanos::from_secs(10);
    let still =
        view.active && load.share(last, |second| second.kv().is_some_and(|kv| kv >= rule.clear)) >= Some(rule.share);
    if full < rule.share && !still {
        return Outcome::Silent;
    }
    let waits = load.share(minute, |second| second.waiting > 0).unwrap_or_default();
    let preempts = load.rate(minute, |second| second.preempted().unwrap_or(0)).unwrap_or(0.0);
    // To stay takes half of what it takes to enter.
    if waits < Part(if view.active { 250_000 } else { 500_000 }) && preempts <= 0.0 {
        return Outcome::Silent;
    }
    let since = load.full.0.unwrap_or(view.host.now);
    let queue = load.drain();
    let waiting = load.seconds.back().map_or(0, |second| second.waiting);
    let first = before_deficit(view, load, since);
    let critical = queue.is_some_and(|queue| queue >= rule.drain_ns);
    let severity = match (first, critical) {
        (false, _) => Severity::Info,
        (true, true) => Severity::Critical,
        (true, false) => Severity::Warn,
    };
    let percent = |part: Part| Micro::from_f64(part.as_fraction() * 100.0);
    let mut proof = alloc::vec![
        Evidence::plain("KV cache in use", &engine.url, usage.as_fraction() * 100.0, "%"),
        Evidence::plain("time with a full KV cache, of the last minute", &engine.url, full.as_fraction() * 100.0, "%"),
        Evidence::plain("requests that wait", &engine.url, f64::from(waiting), "requests"),
        Evidence::plain("preemptions", &engine.url, preempts, "/s"),
    ];
    proof
        .extend(queue.map(|queue| Evidence::plain("time that the queue takes", &engine.url, queue.as_secs_f64(), "s")));
    let rejected = if first {
        alloc::vec::Vec::new()
    } else {
        alloc::vec![Rejected {
            cause: Cause::Kv,
            of: engine.url.clone(),
            why: "the cache filled after the engine had slowed down: a consequence".into()
        }]
    };
    Outcome::Claim(Claim {
        cause: if first { costs(view, Cause::Kv) } else { None },
        pressure: full,
        summary: format!("KV cache full for {} % of the last minute, {waiting} requests wait", percent(full)),
        evidence: proof,
        rejected,
        advice: TEXT.advice.into(),
        ..claim(view, engine, severity, since)
    })
}
