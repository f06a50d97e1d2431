//! What the rules about an engine's load have in common.

use alloc::boxed::Box;
use alloc::vec::Vec;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::units::Nanos;

use super::{Claim, Outcome, View};
use crate::signals::engine_load::EngineLoad;
use crate::{Cause, Part, Severity};

/// The engine and its last two minutes, or why nothing can be said.
pub(super) fn load<'a>(view: &View<'a>) -> Result<(&'a Engine, &'a EngineLoad), Box<Outcome>> {
    let Some(engine) = view.unit.engine else { return Err(Box::new(Outcome::Absent)) };
    let Some(load) = view.host.signals.load.get(&engine.url) else {
        return Err(Box::new(Outcome::Suspended("the engine's page was read once only".into())));
    };
    Ok((engine, load))
}

/// Nothing, or why the page that is there tells nothing of the engine's load, now or ever.
pub(super) fn uncounted(engine: &Engine) -> Option<Outcome> {
    let counts = engine.running.get().is_some() && engine.waiting.get().is_some();
    let why = "the engine's page does not say how many requests run and wait";
    (!counts && engine.page.get().is_some()).then(|| Outcome::Unsupported(why.into()))
}

/// The same as [`load`], where the page must be there and fresh.
pub(super) fn fresh<'a>(view: &View<'a>) -> Result<(&'a Engine, &'a EngineLoad), Box<Outcome>> {
    let (engine, load) = load(view)?;
    if let Some(outcome) = uncounted(engine) {
        return Err(Box::new(outcome));
    }
    // Seconds are those of pages that count: an old one is a page that has not answered since.
    if engine.page.get().is_none() || !load.is_fresh(view.host.now) {
        return Err(Box::new(Outcome::Suspended("the engine's page does not answer".into())));
    }
    Ok((engine, load))
}

/// Whether trouble that begins at an instant may be what slows the unit down. What began later than the unit's own
/// deficit is its consequence: an engine that is starved fills its cache and its queue, and what it leaves there has to be
/// worked off when it is well again. What is blamed already began in time when it was: that a cache has room for a moment and
/// fills again makes no consequence of it.
pub(super) fn before_deficit(view: &View<'_>, load: &EngineLoad, since: Nanos) -> bool {
    let slack = view.policy.block_ns.0.saturating_mul(u64::from(view.policy.order_slack_blocks));
    let in_time = || view.unit.deficit_since.is_none_or(|deficit| since.0 <= deficit.0.saturating_add(slack));
    view.active || (load.backlog.is_none() && in_time())
}

/// A claim about an engine, to be filled in.
pub(super) fn claim(view: &View<'_>, engine: &Engine, severity: Severity, onset: Nanos) -> Claim {
    Claim {
        variant: None,
        severity,
        cause: None,
        object: engine.url.clone(),
        deficit: view.unit.weight.w.rest(),
        onset,
        pressure: Part(0),
        confidence: Part(900_000),
        summary: alloc::string::String::new(),
        evidence: Vec::new(),
        rejected: Vec::new(),
        advice: alloc::string::String::new(),
        holders: Vec::new(),
    }
}

/// The cause, if the evidence carries a loss and the unit has one.
pub(super) fn costs(view: &View<'_>, cause: Cause) -> Option<Cause> {
    view.unit.deficit_since.map(|_| cause)
}
