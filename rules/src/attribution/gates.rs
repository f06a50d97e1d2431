//! The four gates, for a candidate of any cause.
//!
//! 1. *Deviation*: the victim does worse than its own baseline ([`super::deviates`]; the rule asks before it blames).
//! 2. *Saturation*: the resource is beyond its own normal.
//! 3. *Order and coupling*: it did not begin after the victim's trouble (else it is the consequence), the victim hangs
//!    on it (it has it open, and it waits where it shows its waits), and its course goes with the victim's loss (rank correlation, the cause leading by up to two blocks).
//! 4. *Counterfactual*: units that do not use it, and have no trouble of their own, did not lose as much.
//!
//! Points: 2 for each point of saturation (0 to 3), 2 for order, 2 for coupling, 3 for the link, 3 for the
//! counterfactual. Whole numbers, so that the same recording gives the same rank everywhere.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::candidate::{Candidate, Link, Weighed};
use super::did;
use super::switch::Switch;
use crate::baseline::{Deviation, RECENT};
use crate::rule::View;
use crate::{Evidence, Gate, Micro, Part, Policy, Rejected};

/// The most points that a candidate can have.
pub(crate) const MOST: u8 = 16;
/// What each gate is worth in the confidence, 1 - product of (1 - p).
const P_DEVIATION: f64 = 0.3;
const P_SATURATION: f64 = 0.3;
const P_ORDER: f64 = 0.2;
const P_COUPLING: f64 = 0.3;
const P_LINK: f64 = 0.4;
const P_COUNTERFACTUAL: f64 = 0.5;

/// Since when the victim is in trouble. Without a progress source that is when its GPU ran out of work.
pub(crate) fn victim_onset(view: &View<'_>) -> Option<Nanos> {
    let hungry = || view.unit.usage.hungry.since().filter(|_| view.unit.engine.is_none());
    view.unit.deviation.and_then(|deviation| deviation.onset).or_else(hungry)
}

/// How far the beginning of a deviation may be off because it came slowly, or hardly leaves the noise: a block of noise may
/// have stood where its course was still within it. What begins with an edge is known to the block.
fn blur(deviation: Option<&Deviation>, policy: &Policy) -> Nanos {
    let longest = deviation.map_or(Nanos(0), |deviation| deviation.lead.max(deviation.faint));
    longest.min(policy.attribution.onset_blur_ns)
}

/// Lets a candidate through the gates, or says with numbers at which it failed.
pub(crate) fn weigh(view: &View<'_>, candidate: Candidate) -> Result<Weighed, Rejected> {
    let policy = view.policy;
    let Candidate {
        cause,
        object,
        onset,
        pressure,
        saturation,
        link,
        series,
        switch,
        uses,
        mut evidence,
        says,
        advice,
    } = candidate;
    let reject = |why: String| Rejected { cause, of: object.clone(), why };
    match &link {
        Link::Missing(why) if policy.asks(Gate::Link) => return Err(reject(why.clone())),
        _ => {}
    }
    if saturation.points == 0 {
        return Err(reject(saturation.why));
    }
    let victim = victim_onset(view);
    // What is blamed already began in time when it was: that a queue comes to rest for a moment, or that something is added
    // to the loss, makes no consequence of it.
    let blamed = view.blames(&object);
    if let (Some(victim), Some(began), true) = (victim, onset, policy.asks(Gate::Order) && !blamed) {
        let slack = policy.block_ns.0.saturating_mul(u64::from(policy.order_slack_blocks));
        let slack = slack.saturating_add(blur(view.unit.deviation.as_ref(), policy).0);
        if began.0 > victim.0.saturating_add(slack) {
            let late = Nanos(began.0.saturating_sub(victim.0)).as_secs_f64();
            let late = Micro::from_f64(late);
            let why = || format!("a consequence: it began {late} s after the victim slowed down");
            return Err(reject(view.words(why)));
        }
    }
    let rho = coupling(view, &series).filter(|rho| *rho >= policy.coupling_rho);
    let compared = policy.asks(Gate::Counterfactual).then(|| {
        let since = |onset| Switch::since(onset, view.host.now, policy.block_ns);
        did::compare(view, &object, uses, switch.or(onset.map(since))?)
    });
    let compared = compared.flatten();
    if let Some(did) = compared.filter(|did| did.denies(&policy.attribution)) {
        return Err(reject(view.words(|| format!(
            "units that do not use it lost {} points when it was in trouble, this one {} (medians of {} blocks on and {} off)",
            points(-did.control.unwrap_or(0.0)),
            points(-did.victim),
            did.on,
            did.off
        ))));
    }
    // Of what nobody knows the beginning, nobody knows the order.
    let ordered = policy.asks(Gate::Order) && (blamed || (victim.is_some() && onset.is_some()));
    let did = compared.filter(|did| did.significant);
    let linked = link == Link::Proven;
    let gates = [
        (view.unit.deviation.is_some(), 0, P_DEVIATION),
        (true, 2 * saturation.points, P_SATURATION),
        (ordered, 2, P_ORDER),
        (rho.is_some(), 2, P_COUPLING),
        (linked && policy.asks(Gate::Link), 3, P_LINK),
        (did.is_some(), 3, P_COUNTERFACTUAL),
    ];
    let passed = gates.iter().filter(|(passed, ..)| *passed);
    let score = passed.clone().map(|(_, points, _)| *points).fold(0_u8, u8::saturating_add).min(MOST);
    let doubt: f64 = passed.map(|(.., p)| 1.0 - p).product();
    if view.tells {
        let mut show =
            |what, value, unit: Cow<'static, str>| evidence.push(Evidence::plain(what, &object, value, unit));
        if let (Some(victim), Some(began)) = (victim, onset)
            && began <= victim
        {
            show("began before its victim fell behind, by", victim.saturating_sub(began).as_secs_f64(), "s".into());
        }
        if let Some(rho) = rho {
            show("rank correlation of its course with the deficit", rho, "rho".into());
        }
        if let Some(did) = did {
            let what = match did.control {
                Some(_) => "progress while it was in trouble, less that of units that do not use it",
                None => "progress while it was in trouble, less that before and after",
            };
            show(what, did.difference() * 100.0, "points".into());
        }
        show("blame", f64::from(score), format!("of {MOST}").into());
    }
    Ok(Weighed {
        cause,
        score,
        confidence: Part::from_fraction(1.0 - doubt).min(view.unit.weight.source.confidence()),
        pressure,
        evidence,
        says,
        advice,
        object,
    })
}

fn points(part: f64) -> Micro {
    Micro::from_f64(part * 100.0)
}

/// The rank correlation of a resource's course with the victim's loss; the cause may lead by up to two blocks.
fn coupling(view: &View<'_>, series: &[Option<f64>]) -> Option<f64> {
    if series.is_empty() {
        return None;
    }
    let deficit: Vec<Option<f64>> = match view.unit.signals.filter(|_| view.unit.deviation.is_some()) {
        Some(signals) => signals.ratio.recent().map(|ratio| ratio.map(|ratio| 1.0 - ratio)).collect(),
        None => view.host.history.deficit(&view.unit.id, RECENT),
    };
    view.host.history.coupled(series, deficit)
}

/// What passed, the most convincing first, and what did not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) causes: Vec<Weighed>,
    pub(crate) rejected: Vec<Rejected>,
}

/// Weighs all candidates. Of equal scores the cause that stands first in the order of losses is first, then the name.
pub(crate) fn rank(view: &View<'_>, candidates: impl IntoIterator<Item = Candidate>) -> Verdict {
    let mut verdict = Verdict::default();
    for candidate in candidates {
        match weigh(view, candidate) {
            Ok(cause) => verdict.causes.push(cause),
            Err(no) => verdict.rejected.push(no),
        }
    }
    verdict.causes.sort_by(|a, b| (b.score, a.cause, &a.object).cmp(&(a.score, b.cause, &b.object)));
    verdict
}
