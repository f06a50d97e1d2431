//! Since its process was replaced the engine gives less, and nothing on the node explains it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::queueing::{claim, fresh};
use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::{Cause, Evidence, Micro, Part, Severity, attribution};

thresholds! {
    /// Thresholds of `throughput_regression`.
    pub struct Thresholds {
        /// It must last so long: restarts, caches and compilers settle within minutes.
        for_ns: Nanos = Nanos::from_secs(600), Nanos::from_secs(60)..=Nanos::from_secs(86_400);
        /// The loss must begin within this time after the process was replaced. Later it is not the replacement's
        /// doing, as far as anybody can tell.
        after_ns: Nanos = Nanos::from_secs(300), Nanos::from_secs(10)..=Nanos::from_secs(86_400);
        /// Share of time in which the workload waits for I/O or CPU, in millionths, from which the node may be the
        /// reason. As low as a wait can be read apart from noise: a fifth would be starvation (io_stall.wait_some).
        waits: Part = Part(200_000), Part(0)..=Part::ONE;
        /// How long it must be good before the finding ends. As starved_clear_ns: one good minute.
        clear_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "Since its process was replaced (an update, another driver or build) the engine gives less than before, and nothing on \
            the node explains it: another numeric path, a lost kernel, a changed setting. If the driver or the kind of engine is another \
            one than when the normal was learnt, that is said.",
    inputs: "Tokens against the own normal of the same model, batch size, and number and kind of GPUs; the start of the engine's \
             process; driver and kind of engine; clocks, PSI and KV usage as what it is not.",
    formula: "A deficit of starved_warn and more that began within after_ns of the replacement and has lasted for_ns, without a \
              throttled clock, waits for I/O or CPU (waits), or a full KV cache. Ends after clear_ns.",
    silent: "An engine that was not replaced, one that recovers, one with another model or on other GPUs (its normal is learnt anew), \
             and a slowdown that the node explains.",
    advice: "Compare image, driver, dtype and engine arguments with those before; the log names the kernels and fallbacks it chose.",
    blind: "Which part of the software changed, but for driver and kind of engine; a change without a new process.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (engine, load) = match fresh(view) {
        Ok(found) => found,
        Err(outcome) => return *outcome,
    };
    let Some(replaced) = load.replaced else { return Outcome::Silent };
    let rule = &view.policy.throughput_regression;
    let Some(since) = view.unit.deficit_since else { return Outcome::Silent };
    // What is told began in time and has lasted: a moment of good progress makes nothing new of it.
    if !view.active && since.saturating_sub(replaced) > rule.after_ns {
        return Outcome::Silent;
    }
    let limit = rule.waits.as_fraction();
    let waits = view.unit.work.io_some.as_ref().is_some_and(|(some, _)| *some >= limit)
        || view.unit.work.cpu_some.is_some_and(|some| some >= limit);
    if view.unit.throttled || waits || load.full.0.is_some() {
        return Outcome::Suspended("the node, or a full KV cache, may be the reason".into());
    }
    if !view.active && view.host.now.saturating_sub(since) < rule.for_ns {
        return Outcome::Silent;
    }
    let ago = view.host.now.saturating_sub(replaced).as_secs_f64() / 60.0;
    let changed = view.unit.signals.and_then(|signals| signals.print.changed());
    let with = changed.map_or_else(String::new, |changed| format!(" ({changed})"));
    let mut proof: Vec<_> = attribution::victim_evidence(view);
    proof.push(Evidence::plain(format!("time since the process was replaced{with}"), &engine.url, ago, "min"));
    Outcome::Claim(Claim {
        cause: Some(Cause::Unexplained),
        pressure: Part::ONE,
        confidence: Part(600_000),
        summary: format!(
            "{} % of its normal progress since its process was replaced {} min ago{with}, and nothing on the node explains it",
            Micro::from_f64((1.0 - view.unit.deficit()) * 100.0),
            Micro::from_f64(ago)
        ),
        evidence: proof,
        rejected: attribution::cleared(view),
        advice: TEXT.advice.into(),
        ..claim(view, engine, Severity::Warn, since)
    })
}
