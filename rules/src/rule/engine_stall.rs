//! The engine has work and nothing of it moves.
//!
//! Its page answers all the while in most cases, and so does its health check: only counters that stand still, with
//! requests in them, tell. A long prompt looks the same on the counters; the GPU tells it apart.

use alloc::format;
use alloc::string::String;

use gpuprod_snapshot::engine::{Engine, SleepState};
use gpuprod_snapshot::units::{Nanos, from_f64};

use super::queueing::{claim, load, uncounted};
use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::signals::engine_load::EngineLoad;
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity, unit};

thresholds! {
    /// Thresholds of `engine_stall`.
    pub struct Thresholds {
        /// Nothing must move for so long: an engine steps every 20 to 500 ms, and pages lag up to 6 s (vllm#49538).
        for_ns: Nanos = Nanos::from_secs(15), Nanos::from_secs(5)..=Nanos::from_secs(600);
        /// Or for so many of the engine's own longest steps (99th percentile), if that is longer. A step is late by
        /// chance now and then; twenty of the longest in a row are none.
        steps: f64 = 20.0, 1.0..=1000.0;
        /// For so long where no GPU reading can exclude a long prompt: a million tokens take a minute and more.
        blind_for_ns: Nanos = Nanos::from_secs(120), Nanos::from_secs(15)..=Nanos::from_secs(1_800);
        /// Tensor or DRAM activity, in millionths, above which the GPU works: a long prompt. A spin is below .02 (H200).
        works: Part = Part(50_000), Part(0)..=Part::ONE;
        /// Without GPM: power, as a part of the span from bare idle to the limit, above which it works. Public hangs draw
        /// .14 to .24 of the limit.
        works_power: Part = Part(350_000), Part(0)..=Part::ONE;
        /// A process that has served nothing yet may warm up for so long after its first page. Compilation and capture
        /// of graphs go on for a minute or two while the page answers already.
        warm_up_ns: Nanos = Nanos::from_secs(120), Nanos(0)..=Nanos::from_secs(3_600);
        /// After the last sign of trouble the finding stays for so long. Six pages of an engine that lags: one step
        /// between two hangs does not end it.
        clear_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The engine has requests and nothing of them moves: it hangs, and its page and health check may answer all the same.",
    inputs: "Running and waiting requests, token and request counters, KV usage of the engine's page, and whether it answers; \
             tensor and DRAM activity, or power, of the GPU.",
    formula: "For for_ns (or steps longest steps of its own): requests in execution and no counter nor the cache moves \
              (running_frozen), nor any other number (page_frozen); requests wait and none is admitted (no_admission); the cache \
              is full and nothing runs (kv_full); or the page times out after it had requests, while the GPU does nothing \
              (page_timeout). Ends with the first progress, the finding after clear_ns.",
    silent: "A GPU that works (a long prompt), loading, warm-up, sleep mode, a page that fails while the GPU works, and an \
             engine without requests.",
    advice: "Take a stack dump (py-spy dump --pid, or the engine's own watchdog) and restart the engine; requests in it are lost.",
    blind: "An engine without a page, and one whose page shows no requests while it hangs (the squatter rule's hung_spin may see \
            the spin).",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (engine, load) = match load(view) {
        Ok(found) => found,
        Err(outcome) => return *outcome,
    };
    // Nothing can stand still where nothing is counted.
    if let Some(outcome) = uncounted(engine) {
        return outcome;
    }
    let rule = &view.policy.engine_stall;
    if unit::loading(view.unit) {
        return Outcome::Suspended("it is loading".into());
    }
    if engine.sleep.get().is_some_and(|sleep| *sleep != SleepState::Awake) {
        return Outcome::Suspended("it sleeps".into());
    }
    let warming = load.first.is_some_and(|first| view.host.now.saturating_sub(first) < rule.warm_up_ns) && !load.served;
    if warming {
        return Outcome::Suspended("it has served nothing yet and warms up".into());
    }
    let Some((variant, since, says)) = stuck(engine, load) else { return Outcome::Silent };
    let own = from_f64(load.latencies.step.unwrap_or(0.0) * rule.steps * 1e9).unwrap_or(0);
    let (works, least) = match works(view) {
        Some(works) => (works, rule.for_ns.max(Nanos(own))),
        // A page that times out while nobody can look at the GPU is trouble with reading, until the contrary is shown.
        None if variant == "page_timeout" => {
            return Outcome::Suspended("neither the page nor the driver answers".into());
        }
        None => (false, rule.blind_for_ns.max(Nanos(own))),
    };
    if works {
        return Outcome::Suspended(format!("{says}, and the GPU works: a long prompt, or a page that fails").into());
    }
    if view.host.now.saturating_sub(since) < least {
        return Outcome::Silent;
    }
    Outcome::Claim(Claim {
        variant: Some(variant.into()),
        cause: Some(Cause::Stall),
        pressure: Part::ONE,
        confidence: Part(if view.unit.gpu.is_some() { 900_000 } else { 600_000 }),
        summary: format!(
            "{says} for {} s, and {} does nothing",
            Micro::from_f64(view.host.now.saturating_sub(since).as_secs_f64()),
            view.unit.name
        ),
        evidence: proof(view, engine, load),
        rejected: alloc::vec![Rejected {
            cause: Cause::Upstream,
            of: String::new(),
            why: "requests are in the engine".into()
        }],
        advice: TEXT.advice.into(),
        ..claim(view, engine, Severity::Critical, since)
    })
}

/// In which way it is stuck, since when, and in words.
fn stuck(engine: &Engine, load: &EngineLoad) -> Option<(&'static str, Nanos, String)> {
    if engine.page.get().is_none() {
        let since = load.silent.0?;
        return Some(("page_timeout", since, "its page, which had requests in it, has timed out".into()));
    }
    let last = load.seconds.back()?;
    let requests = || format!("{} requests run and {} wait", last.running, last.waiting);
    if let Some(since) = load.dead_full.0.filter(|_| last.waiting > 0 || load.full.0.is_some()) {
        return Some(("kv_full", since, format!("{}, with a full cache, and nothing has moved", requests())));
    }
    if let Some(since) = load.unadmitted.0 {
        return Some(("no_admission", since, format!("{}: none has been admitted", requests())));
    }
    let since = load.frozen.0?;
    let variant = if load.page_frozen.0.is_some_and(|page| page <= since) { "page_frozen" } else { "running_frozen" };
    Some((variant, since, format!("{}, and no token has come", requests())))
}

/// Whether the GPU does work; nothing when nobody can tell.
fn works(view: &View<'_>) -> Option<bool> {
    let rule = &view.policy.engine_stall;
    let gpu = view.unit.gpu?;
    if let Some(gpm) = gpu.gpm.get() {
        let active = [gpm.tensor.copied(), gpm.dram.copied()].into_iter().flatten().map(|part| part.as_fraction());
        if let Some(most) = active.reduce(f64::max) {
            return Some(most > rule.works.as_fraction());
        }
    }
    let util = view.unit.util?;
    if util < 0.05 {
        return Some(false);
    }
    Some(view.unit.usage.block.power_share()? > rule.works_power.as_fraction())
}

fn proof(view: &View<'_>, engine: &Engine, load: &EngineLoad) -> alloc::vec::Vec<crate::Evidence> {
    let mut proof = alloc::vec::Vec::new();
    if let Some(last) = load.seconds.back() {
        proof.push(Evidence::plain("requests in execution", &engine.url, f64::from(last.running), "requests"));
        proof.push(Evidence::plain("requests that wait", &engine.url, f64::from(last.waiting), "requests"));
        proof
            .extend(last.kv().map(|kv| Evidence::plain("KV cache in use", &engine.url, kv.as_fraction() * 100.0, "%")));
    }
    proof.extend(view.unit.util.map(|util| Evidence::plain("utilization", &view.unit.name, util * 100.0, "%")));
    proof
}
