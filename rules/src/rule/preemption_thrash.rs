//! The engine throws work away: requests are preempted and computed again, or swapped to the host and back.

use alloc::format;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::units::{Nanos, to_f64};

use super::queueing::{before_deficit, claim, costs, fresh};
use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::signals::engine_load::{EngineLoad, Second};
use crate::{Cause, Evidence, Micro, Part, Severity};

thresholds! {
    /// Thresholds of `preemption_thrash`.
    pub struct Thresholds {
        /// Preemptions per second from which it may thrash; single ones are a full cache's ordinary life. One in ten
        /// seconds: at public rates of requests (Azure, Mooncake, engine simulated) an engine with room has none.
        rate: f64 = 0.1, 0.0..=10_000.0;
        /// Useful part of all tokens that are computed, in millionths, below which it does. A tenth of the work done
        /// twice is what MLPerf Storage's .90 calls starved.
        goodput: Part = Part(900_000), Part(0)..=Part::ONE;
        /// Share of half a minute, in millionths, in which requests must be swapped out (engines that swap). Nearly
        /// all of it: single swapped requests come back within seconds.
        swapped: Part = Part(800_000), Part(0)..=Part::ONE;
        /// How long it must last. As for any starvation: one long context that is preempted and comes back takes
        /// seconds.
        for_ns: Nanos = Nanos::from_secs(30), Nanos::from_secs(5)..=Nanos::from_secs(3_600);
        /// How long it must be over before the finding ends. As starved_clear_ns: one good minute.
        clear_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The engine takes in more than its cache holds, and throws work away: requests are preempted and computed again \
            (recompute), or swapped to the host's memory and back (swap).",
    inputs: "Preemptions, KV usage and size, running and swapped requests, tokens of the engine's page; progress against its own \
             normal.",
    formula: "recompute: rate preemptions per second and more over for_ns, and less than goodput of the computed tokens is useful; \
              what is computed again is a preemption's share of the tokens in the cache. swap: requests are swapped out for \
              swapped of for_ns and progress is below its normal. Ends after clear_ns of less than half of that.",
    silent: "Rare preemptions: a full cache's ordinary life.",
    advice: "Lower max-num-seqs, or the longest context, so that what is admitted fits; a faster GPU does not help.",
    blind: "The exact tokens that are computed again (no page shows them).",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (engine, load) = match fresh(view) {
        Ok(found) => found,
        Err(outcome) => return *outcome,
    };
    let rule = &view.policy.preemption_thrash;
    if engine.preemptions.get().is_none() && engine.swapped.get().is_none() {
        return Outcome::Unsupported("the engine's page shows neither preemptions nor swapped requests".into());
    }
    let Some(swaps) = load.lately.swapped else { return Outcome::Suspended("too little was seen".into()) };
    // To stay takes half of what it takes to enter.
    let half = |limit: f64| if view.active { limit / 2.0 } else { limit };
    if swaps.as_fraction() >= half(rule.swapped.as_fraction()) && (view.active || view.unit.deficit_since.is_some()) {
        let swapped = load.seconds.back().and_then(Second::swapped).unwrap_or(0);
        let summary =
            format!("{swapped} requests are swapped out to the host's memory, and progress is below its normal");
        let proof = alloc::vec![Evidence::plain("requests swapped out", &engine.url, f64::from(swapped), "requests")];
        return speak(view, engine, load, ("swap", summary, proof, swaps));
    }
    let rate = load.lately.preempted.unwrap_or(0.0);
    if rate < half(rule.rate) {
        return Outcome::Silent;
    }
    let Some(useful) = goodput(engine, load, rate, rule.for_ns) else {
        return Outcome::Suspended("neither the size of the cache nor prompts tell how much is computed again".into());
    };
    if useful.rest().as_fraction() <= half(rule.goodput.rest().as_fraction()) {
        return Outcome::Silent;
    }
    let summary = format!(
        "{} preemptions per second: {} % of the computed tokens are useful",
        Micro::from_f64(rate),
        Micro::from_f64(useful.as_fraction() * 100.0)
    );
    let proof = alloc::vec![
        Evidence::plain("preemptions", &engine.url, rate, "/s"),
        Evidence::plain("useful part of the computed tokens", &engine.url, useful.as_fraction() * 100.0, "%"),
    ];
    speak(view, engine, load, ("recompute", summary, proof, useful.rest()))
}

type Words = (&'static str, alloc::string::String, alloc::vec::Vec<crate::Evidence>, Part);

fn speak(view: &View<'_>, engine: &Engine, load: &EngineLoad, (variant, summary, proof, pressure): Words) -> Outcome {
    let since = load.full.0.unwrap_or(view.host.now);
    let first = before_deficit(view, load, since);
    Outcome::Claim(Claim {
        variant: Some(variant.into()),
        cause: if first { costs(view, Cause::Kv) } else { None },
        pressure,
        summary,
        evidence: proof,
        advice: TEXT.advice.into(),
        ..claim(view, engine, if first { Severity::Warn } else { Severity::Info }, since)
    })
}

/// Useful part of the tokens that are computed. A preempted request loses what it has in the cache: on average the
/// cache's tokens over the requests that run.
fn goodput(engine: &Engine, load: &EngineLoad, rate: f64, stretch: Nanos) -> Option<Part> {
    let tokens = load.rate(stretch, |second| second.generated.saturating_add(second.prompt))?;
    let last = load.seconds.back()?;
    let capacity = to_f64(engine.kv_capacity_tokens.copied()?);
    let each = capacity * last.kv()?.as_fraction() / f64::from(last.running.max(1));
    let all = tokens + rate * each;
    (all > 0.0).then(|| Part::from_fraction(tokens / all))
}
