//! What the rules about the node around the GPU have in common: the victim, and a wait that rose before it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::io_stall::hungry;
use super::{Claim, View};
use crate::attribution::Switch;
use crate::attribution::{self, Candidate, Weighed};
use crate::baseline::{Deviation, Track};
use crate::{Evidence, Micro, Rejected, Severity};

/// A quantity that is high, and out of its own normal where that is known.
#[derive(Clone, Debug)]
pub(super) struct Raised {
    pub(super) value: f64,
    pub(super) normal: Option<Deviation>,
    /// Its first bad block.
    pub(super) onset: Option<Nanos>,
    /// In which blocks it was bad, and how it went.
    pub(super) switch: Option<Switch>,
    pub(super) series: Vec<Option<f64>>,
}

/// Whether a quantity has reached a floor and is out of its own normal; to stay so takes half of both.
/// Where the workload tells its progress, an own normal must be known; without one the floor has to do.
pub(super) fn raised(view: &View<'_>, track: &Track, floor: f64) -> Result<Raised, Calm> {
    let value = track.latest().ok_or(Calm::Unread)?;
    let floor = if view.active { floor / 2.0 } else { floor };
    if value < floor {
        return Err(Calm::Below(value, floor));
    }
    let series = || track.recent().collect();
    let Some(normal) = track.deviation(view.policy) else {
        if view.unit.deviation.is_some() && (view.unit.engine.is_some() || view.unit.usage.hungry.since().is_none()) {
            return Err(Calm::Unlearnt(value, track.blocks()));
        }
        return Ok(Raised { value, normal: None, onset: None, switch: None, series: series() });
    };
    if normal.z < view.policy.deviation_z / if view.active { 2.0 } else { 1.0 } {
        return Err(Calm::Usual(value, normal.normal));
    }
    Ok(Raised { value, normal: Some(normal), onset: normal.onset, switch: Some(track.switch()), series: series() })
}

/// Why a quantity is not raised. Most of the time nobody asks: the words are made when somebody does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Calm {
    Unread,
    /// Of the network: how much it normally waits.
    NoNormal,
    Below(f64, f64),
    Unlearnt(f64, u32),
    Usual(f64, f64),
    /// How bad it was while nobody suffered.
    Borne(f64, f64),
}

impl Calm {
    /// In words, with the figures as they are shown for this quantity.
    pub(super) fn why(self, shown: fn(f64) -> String) -> String {
        match self {
            Self::Unread => "it is not read".into(),
            Self::NoNormal => "its own normal is not learnt yet".into(),
            Self::Below(value, floor) => format!("{}, below {}", shown(value), shown(floor)),
            Self::Unlearnt(value, blocks) => {
                format!("{}, but its own normal is not learnt yet ({blocks} blocks)", shown(value))
            }
            Self::Borne(value, borne) => {
                format!("{}, no worse than while nobody suffered ({})", shown(value), shown(borne))
            }
            Self::Usual(value, normal) => format!("{}, as it is normally ({})", shown(value), shown(normal)),
        }
    }
}

impl Raised {
    /// As evidence, in the unit that the factor leads to.
    pub(super) fn evidence(&self, what: &'static str, of: &str, factor: f64, unit: &'static str) -> Evidence {
        let normal = self.normal.map(|normal| {
            Deviation { normal: normal.normal * factor, spread: normal.spread * factor, ..normal }.as_normal()
        });
        Evidence { normal, ..Evidence::plain(what, of, self.value * factor, unit) }
    }
}

/// The claim about a candidate that passed its gates, for a victim that has less to do since `since`; else the gate at
/// which it failed.
pub(super) fn blame(view: &View<'_>, variant: Option<&str>, candidate: Candidate) -> Result<Claim, Rejected> {
    let nobody = || Rejected {
        cause: candidate.cause,
        of: candidate.object.clone(),
        why: "the workload lacks nothing that it normally has".into(),
    };
    let since = hungry(view).ok_or_else(nobody)?;
    let onset = candidate.onset.unwrap_or(since).max(since).min(view.host.now);
    let cause = candidate.cause;
    let Weighed { object, confidence, pressure, evidence: found, says, advice, .. } =
        attribution::weigh(view, candidate)?;
    let mut evidence = attribution::victim_evidence(view);
    evidence.extend(found);
    let mut rejected = attribution::cleared(view);
    rejected.retain(|rejected| rejected.cause != cause);
    Ok(Claim {
        variant: variant.map(Into::into),
        severity: severity(view),
        cause: Some(cause),
        object,
        deficit: view.unit.weight.w.rest(),
        onset,
        pressure,
        confidence,
        summary: format!("{says}; the workload makes {} of its progress", percent(1.0 - view.unit.deficit())),
        evidence,
        rejected,
        advice,
        holders: Vec::new(),
    })
}

pub(super) fn severity(view: &View<'_>) -> Severity {
    let critical = view.unit.deficit() >= view.policy.starved_critical.as_fraction();
    if critical { Severity::Critical } else { Severity::Warn }
}

pub(super) fn percent(share: f64) -> String {
    format!("{} %", Micro::from_f64(share * 100.0))
}
