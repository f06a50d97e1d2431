//! The GPU looks busy and makes less progress than it normally does with the same demand.

use alloc::format;
use alloc::vec::Vec;

use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::{Cause, Micro, Part, Severity, WeightSource, attribution};

thresholds! {
    /// Thresholds of `busy_but_starved`; the deficits that it shares with others stand in the policy itself.
    pub struct Thresholds {
        /// Utilization from which a GPU counts as busy, in millionths. Serving and training that do well read .8 and
        /// more; below .6 utilization alone shows the trouble, and no rule is needed (productive GPU-hours article: 79
        /// to 84 % while starved).
        busy_util: Part = Part(600_000), Part(0)..=Part::ONE;
    }
}

pub(super) const TEXT: Text = Text {
    means: "The GPU looks busy and makes less progress than it normally does with the same demand.",
    inputs: "Tokens of the engine against its own normal for the batch size; utilization; running and waiting requests; \
             latency and queue of the devices in its path; PSI; clock events.",
    formula: "Utilization of busy_util and more, a deficit of starved_warn and more since starved_for_ns, and progress \
              that left its own baseline (deviation_z, or the change-point test). Critical from starved_critical. Ends \
              after starved_clear_ns below starved_clear.",
    silent: "No requests, a throttled GPU, a baseline that is not learnt yet, batch sizes that were never seen; without a \
             named cause, a GPU that the driver has told of for less than starved_for_ns.",
    advice: "Look at the named cause first; without one, at what was rejected and why.",
    blind: "Without a progress source (tokens) it cannot tell work from waiting, and says so. A wait outside of this node \
            is visible only as missing demand.",
};

/// Needs a progress source (an engine's tokens, a job's steps): utilization alone cannot tell work from waiting.
pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if unit.engine.is_none() && unit.trainer.page.is_none() {
        // Nobody is on it: there is no progress that a page could tell.
        if unit.rest || unit.vacant_since.is_some() {
            return Outcome::Absent;
        }
        return Outcome::Unsupported(
            "no engine or training job is linked to this GPU: give its metrics page with --engine URL".into(),
        );
    }
    let Some(util) = unit.util else {
        return Outcome::Suspended("no utilization is read".into());
    };
    let (Some(deviation), WeightSource::Tokens | WeightSource::Steps) = (&unit.deviation, unit.weight.source) else {
        return Outcome::Suspended("the workload's own normal is not learnt yet".into());
    };
    let floor = if view.active { view.policy.starved_clear } else { view.policy.starved_warn };
    let starved = unit.deficit() >= floor.as_fraction() && unit.deficit_since.is_some();
    let busy = util >= view.policy.busy_but_starved.busy_util.as_fraction();
    // A throttled GPU is slow by its own clocks: that is another rule's finding.
    if !(starved && busy && unit.wanted()) || unit.throttled {
        return Outcome::Silent;
    }
    let firm = view.active || attribution::far(deviation, view.policy);
    if !firm && !attribution::deviates(deviation, view) {
        return Outcome::Silent;
    }
    let claim = claim(view, util);
    let nobody = claim.cause == Some(Cause::Unexplained) && !view.active;
    // What holds a GPU up is looked for when the driver answers again: until then nobody can say that nothing does.
    let read = unit.device.signals.is_none_or(|device| device.trust.is_read(view.host.now, view.policy.starved_for_ns));
    if nobody && !read {
        return Outcome::Suspended("its GPU was not read until a moment ago".into());
    }
    // What single blocks do not show needs a cause that passes the gates.
    if nobody && !firm { Outcome::Silent } else { Outcome::Claim(claim) }
}

fn claim(view: &View<'_>, util: f64) -> Claim {
    let unit = view.unit;
    // The finding stands by now, and to stay blamed takes less than to be blamed: asked in the first second as in those after
    // it, else that one alone would blame nobody.
    let attribution::Verdict { causes, rejected: not } = attribution::verdict(&View { active: true, ..*view });
    let mut rejected = attribution::cleared(view);
    rejected.extend(not);
    let mut causes = causes.into_iter();
    let best = causes.next();
    let says = |more: &str| {
        view.words(|| {
            format!(
                "busy at {} % utilization, {} % of its normal progress; {more}",
                Micro::from_f64(util * 100.0),
                Micro::from_f64((1.0 - unit.deficit()) * 100.0)
            )
        })
    };
    let mut evidence = attribution::victim_evidence(view);
    let critical = unit.deficit() >= view.policy.starved_critical.as_fraction();
    match best {
        Some(blame) => {
            evidence.extend(blame.evidence);
            // What else is to blame carries its part of the loss, and stands below the first.
            evidence.extend(causes.flat_map(|other| other.evidence));
            Claim {
                variant: None,
                severity: if critical { Severity::Critical } else { Severity::Warn },
                cause: Some(blame.cause),
                summary: says(&blame.says),
                object: blame.object,
                deficit: unit.weight.w.rest(),
                onset: unit.deficit_since.unwrap_or(view.host.now),
                pressure: blame.pressure,
                confidence: blame.confidence,
                evidence,
                rejected,
                advice: blame.advice,
                holders: Vec::new(),
            }
        }
        None => Claim {
            variant: None,
            // Nobody is woken for a cause that cannot be named.
            severity: Severity::Warn,
            cause: Some(Cause::Unexplained),
            // One workload is one trouble, on however many GPUs.
            object: unit.engine.or(unit.trainer.page).map_or_else(|| unit.name.clone(), |page| page.url.clone()),
            deficit: unit.weight.w.rest(),
            onset: unit.deficit_since.unwrap_or(view.host.now),
            pressure: Part::ONE,
            confidence: Part::from_fraction(0.3).min(unit.weight.source.confidence()),
            summary: says("what starves it cannot be told from this node's readings"),
            evidence,
            rejected,
            advice: "see what was rejected and why; `gpuprod doctor` names the readings that are missing here".into(),
            holders: Vec::new(),
        },
    }
}
