//! The state that each unit is in, and how its time is split.

use alloc::vec::Vec;

use gpuprod_snapshot::gpu::Gpus;
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Missing, Reading, Source};

use super::{Unit, Units};
use crate::facts::{Demand, UnitFacts};
use crate::hold::{Active, Now};
use crate::merge::Share;
use crate::signals::device::Lie;
use crate::state::split;
use crate::window::Window;
use crate::{Bucket, Cause, Loading, Policy, Progress, State, UnitJudgement, Unknown, Weight, WeightSource};

/// A state after a cause ends when the deficit was gone for so long.
const STARVED_LEAVES: Nanos = Nanos::from_secs(30);

/// Settles state and split of every unit.
pub(crate) fn settle<'a>(
    facts: impl Iterator<Item = (&'a UnitFacts<'a>, Option<&'a Active>, Option<Cause>, Vec<Share<'a>>)>,
    window: &Window,
    units: &mut Units,
    now: Now<'_>,
    policy: &Policy,
) -> Vec<UnitJudgement> {
    let gpus = window.value(Source::Gpu, |tick| &tick.gpu);
    let mut judged = Vec::new();
    for (facts, blame, borrowed, shares) in facts {
        let Some(unit) = units.units.get_mut(&facts.id) else {
            continue;
        };
        let state = state(unit, facts, (blame, borrowed), &gpus, now, policy);
        let since = match unit.state {
            Some((before, since)) if before == state => since,
            _ => now.boottime,
        };
        unit.state = Some((state, since));
        let weight = match state {
            State::Productive(_) | State::Starved(_) | State::Throttled | State::Headroom | State::Idle => facts.weight,
            _ => Weight::NONE,
        };
        let class = facts.class();
        judged.push(UnitJudgement {
            unit: facts.id.clone(),
            gpu: unit.formerly.clone().or_else(|| (unit.gpu != facts.id).then(|| unit.gpu.clone())),
            // While NVML says nothing at all, people still want to know which GPU is meant.
            index: if gpus.get().is_some() { facts.gpu.and(unit.index) } else { unit.index },
            slices: unit.slices,
            slices_whole: unit.slices_whole,
            state,
            since,
            weight,
            split: split(state, facts.booked(weight), facts.rest(), &shares),
            cumulative: matches!(weight.source, WeightSource::Tokens | WeightSource::Steps),
            class,
            class_inferred: facts.ownership.class.is_none(),
            tenant: facts.ownership.sole(),
            tenants: facts.ownership.shared(),
            model: unit.model.clone(),
            external: Vec::new(),
            meter: facts.gpu.and_then(crate::ledger::energy::meter),
        });
    }
    judged
}

fn state(
    unit: &mut Unit,
    facts: &UnitFacts<'_>,
    (blame, borrowed): (Option<&Active>, Option<Cause>),
    gpus: &Reading<&Gpus>,
    now: Now<'_>,
    policy: &Policy,
) -> State {
    let recovered = facts.weight.w.rest() < policy.starved_clear;
    unit.recovered_since = recovered.then(|| unit.recovered_since.unwrap_or(now.boottime));
    if let Some(fault) = facts.device.fault {
        return State::Faulted(fault);
    }
    let steps = facts.weight.source == WeightSource::Steps;
    let tokens = steps || facts.weight.source == WeightSource::Tokens;
    // Tokens and steps stay valid while the driver does not answer: whoever counts them is another witness.
    if let (Some(missing), false) = (gpus.missing(), tokens) {
        return State::Unknown(reason(missing));
    }
    // What a rule says of a holder stands above what the process list says: the dead are not on it, and an engine
    // that is gone for good looks like one that loads. It ends with the first reading that says otherwise.
    match blame.filter(|active| active.current).and_then(|active| active.claim.cause) {
        Some(Cause::Squat) => return State::Squatted,
        Some(Cause::Stall) => return State::Stalled,
        _ => {}
    }
    if unit.allocated(facts) == Some(false) && !facts.declared {
        return State::Unallocated;
    }
    if facts.device.is(Lie::Frozen) && !tokens {
        return State::Unknown(Unknown::Stale);
    }
    if facts.weight.source == WeightSource::None {
        return State::Unknown(Unknown::Unsupported);
    }
    if loading(facts) {
        return State::Loading(Loading::Weights);
    }
    // The clock that is missing is the loss, whatever a weight that is full too early says.
    if facts.throttled && facts.deficit().max(facts.slower) >= 0.05 {
        return State::Throttled;
    }
    if facts.checkpoint {
        return State::Productive(Progress::Checkpoint);
    }
    let lasts = unit.recovered_since.is_none_or(|since| now.boottime.saturating_sub(since) < STARVED_LEAVES);
    let cause = blame.and_then(|active| active.claim.cause).or(borrowed);
    if let (Some(cause), true) =
        (cause.filter(|cause| !matches!(cause, Cause::Fault | Cause::Throttle | Cause::Squat | Cause::Stall)), lasts)
    {
        return State::Starved(cause);
    }
    if facts.trainer.evaluates {
        return State::Productive(Progress::Eval);
    }
    let quiet = if facts.rest() == Bucket::Headroom { State::Headroom } else { State::Idle };
    let busy = facts.util.is_some_and(|util| util > 0.0)
        || facts.device.is(Lie::DeadUtil)
        || facts.usage.dead.since().is_some()
        || matches!(facts.demand, Demand::Present { .. });
    match (facts.demand, facts.weight.w.0 > 0 && busy) {
        (Demand::Met, _) if facts.util.is_none_or(|util| util < 0.05) => quiet,
        (_, true) if steps => State::Productive(Progress::Train),
        (_, true) => State::Productive(if tokens { Progress::Decode } else { Progress::Other }),
        // Work outstanding and no progress at all: a rule will say whose doing; until then it is lost, unexplained.
        (Demand::Present { .. }, false) => State::Starved(Cause::Unexplained),
        (Demand::Met, _) | (Demand::Unknown, false) => quiet,
    }
}

/// An engine's process holds the GPU and its page is not there yet: the port is bound before it listens.
pub(crate) fn loading(facts: &UnitFacts<'_>) -> bool {
    facts
        .engine
        .is_some_and(|engine| engine.page.missing() == Some(Missing::Gone) && engine.generation_tokens.get().is_none())
        && facts.util.is_none_or(|util| util < 0.6)
}

fn reason(missing: Missing) -> Unknown {
    match missing {
        Missing::TimedOut => Unknown::Hung,
        Missing::Released => Unknown::Released,
        Missing::Stale | Missing::NotYet => Unknown::Stale,
        Missing::Unsupported | Missing::Denied | Missing::Gone | Missing::Malformed => Unknown::NvmlError,
    }
}
